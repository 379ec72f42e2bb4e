"""The outbox of a machine: how far its archive was looked at, what waits to be sent, and what the server has.

It is a small database beside the archive. Nothing leaves the list of what is due before the server has acknowledged
it; what is sent twice is there once, because rows have their keys from the transcripts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from msgspec import Struct

from ..sqlite import connect, prepare, transaction

_MIGRATIONS = (
    # `due.turn`: 0 stands for the rows of the session itself, -1 for everything of it. `sent.events` has the states of
    # the events of a turn in order.
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
    CREATE TABLE shared (
        session TEXT PRIMARY KEY, row BLOB NOT NULL, exchanges BLOB NOT NULL,
        first_at INTEGER NOT NULL, last_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE sent (
        session TEXT NOT NULL, turn INTEGER NOT NULL, events BLOB NOT NULL, PRIMARY KEY (session, turn)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE due (
        session TEXT NOT NULL, turn INTEGER NOT NULL, PRIMARY KEY (session, turn)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE rewrite (session TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;
    CREATE TABLE refused (
        session TEXT PRIMARY KEY, message TEXT NOT NULL, retry_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE withheld (
        session TEXT PRIMARY KEY, since INTEGER NOT NULL, withdrawn_at INTEGER
    ) STRICT, WITHOUT ROWID;
    """,
    "CREATE TABLE lost (session TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;",
)
EVERYTHING = -1
STATE_BYTES = 16
_RETRY_MS = _ASK_AGAIN_MS = 3_600_000


class Shared(Struct, frozen=True):
    """A session that the server has, with the digests of its own row and of its exchanges."""

    session: str
    row: bytes
    exchanges: bytes
    first_at: int
    last_at: int


class Withheld(Struct, frozen=True):
    """A session that is not shared, also where the rules cover it; `withdrawn_at` once the server has forgotten it."""

    session: str
    since: int
    withdrawn_at: int | None


class Refused(Struct, frozen=True):
    session: str
    message: str
    retry_at: int


def outbox_path(home: Path) -> Path:
    return home / "outbox.db"


class Outbox:
    """Any process reads it and withholds sessions; the one that pushes writes the rest."""

    def __init__(self, home: Path) -> None:
        path = outbox_path(home)
        prepare(path, _MIGRATIONS)
        # Withholding is a promise; the rest could be lost, and would be sent again.
        self._db = connect(path, writable=True, pragmas={"synchronous": "FULL"})

    def transaction(self) -> AbstractContextManager[None]:
        return transaction(self._db)

    def close(self) -> None:
        self._db.close()

    # The position in the archive, and other values

    def value(self, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def keep(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))

    @property
    def position(self) -> int:
        """The last change of the archive that was looked at. Changes up to it are noted as due, or are not shared."""
        return int(self.value("position") or 0)

    @position.setter
    def position(self, change: int) -> None:
        self.keep("position", str(change))

    def look_again(self) -> None:
        """Compare everything with what was sent, without sending what is the same."""
        self.position = 0
        self._db.execute("INSERT OR IGNORE INTO due (session, turn) SELECT session, ? FROM shared", (EVERYTHING,))

    def begin_anew(self) -> None:
        """Forget what was sent: the server is another one, or was restored, and may have nothing."""
        for table in ("shared", "sent", "due", "rewrite", "refused", "lost"):
            self._db.execute(f"DELETE FROM {table}")
        self._db.execute("UPDATE withheld SET withdrawn_at = NULL")
        self.position = 0

    # What is due

    def add_due(self, places: Iterable[tuple[str, int]]) -> None:
        self._db.executemany("INSERT OR IGNORE INTO due (session, turn) VALUES (?, ?)", places)

    def due(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for session, turn in self._db.execute("SELECT session, turn FROM due ORDER BY session"):
            found.setdefault(session, set()).add(turn)
        return found

    def refused(self) -> dict[str, Refused]:
        rows = self._db.execute("SELECT session, message, retry_at FROM refused")
        return {row[0]: Refused(*row) for row in rows}

    def refuse(self, session: str, message: str) -> None:
        retry_at = _now() + _RETRY_MS
        self._db.execute("INSERT OR REPLACE INTO refused VALUES (?, ?, ?)", (session, message, retry_at))

    def retry_refused(self) -> None:
        self._db.execute("UPDATE refused SET retry_at = 0")

    # What the server has

    def shared(self, session: str | None = None) -> dict[str, Shared]:
        """All sessions, or one."""
        rows = self._db.execute(
            "SELECT session, row, exchanges, first_at, last_at FROM shared WHERE ?1 IS NULL OR session = ?1", (session,)
        )
        return {row[0]: Shared(*row) for row in rows}

    def sent(self, session: str) -> dict[int, bytes]:
        """The states of the events that were sent, by turn."""
        return dict(self._db.execute("SELECT turn, events FROM sent WHERE session = ?", (session,)).fetchall())

    def sent_events(self) -> dict[str, int]:
        """The number of events that the server has, by session."""
        query = f"SELECT session, sum(length(events)) / {STATE_BYTES} FROM sent GROUP BY session"
        return dict(self._db.execute(query).fetchall())

    def acknowledge_turn(self, session: str, turn: int, events: bytes) -> None:
        self._db.execute("INSERT OR REPLACE INTO sent VALUES (?, ?, ?)", (session, turn, events))
        self._db.execute("DELETE FROM rewrite WHERE session = ?", (session,))

    def acknowledge_session(self, session: str, row: bytes, exchanges: bytes) -> None:
        """Everything that was due of the session is on the server."""
        self._db.execute(
            "INSERT INTO shared VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (session) "
            "DO UPDATE SET row = ?2, exchanges = ?3, last_at = ?4",
            (session, row, exchanges, _now()),
        )
        for table in ("due", "refused", "rewrite", "lost"):
            self._db.execute(f"DELETE FROM {table} WHERE session = ?", (session,))

    def rewriting(self, session: str) -> bool:
        """True if the rows on the server are to be deleted before others are sent."""
        return self._db.execute("SELECT 1 FROM rewrite WHERE session = ?", (session,)).fetchone() is not None

    def rewrite(self, session: str) -> None:
        """Send everything of a session again, in place of what the server has."""
        self._db.execute("DELETE FROM sent WHERE session = ?", (session,))
        self._db.execute("UPDATE shared SET exchanges = x'' WHERE session = ?", (session,))
        self._db.execute("INSERT OR IGNORE INTO rewrite VALUES (?)", (session,))
        self.add_due([(session, EVERYTHING)])

    # What the server has lost

    def is_to_ask(self) -> bool:
        """True if the server was not asked for an hour which sessions it still has."""
        return _now() - int(self.value("asked_at") or 0) > _ASK_AGAIN_MS

    def asked(self) -> None:
        self.keep("asked_at", str(_now()))

    def ask_again(self) -> None:
        self.keep("asked_at", "0")

    def lost(self) -> set[str]:
        """Sessions that were accepted, and that the server did not have any more when it was asked."""
        return {row[0] for row in self._db.execute("SELECT session FROM lost")}

    def note_lost(self, sessions: Sequence[str]) -> None:
        """These, and no others."""
        self._db.execute("DELETE FROM lost")
        self._db.executemany("INSERT INTO lost (session) VALUES (?)", [(key,) for key in sessions])

    # What is taken back

    def withhold(self, sessions: Sequence[str]) -> None:
        """Keep sessions from being shared from now on, and take them back from the server."""
        with self.transaction():
            self._db.executemany(
                "INSERT OR IGNORE INTO withheld (session, since) VALUES (?, ?)", [(key, _now()) for key in sessions]
            )
            self._forget(sessions)

    def withheld(self) -> dict[str, Withheld]:
        rows = self._db.execute("SELECT session, since, withdrawn_at FROM withheld")
        return {row[0]: Withheld(*row) for row in rows}

    def withdrawn(self, session: str) -> None:
        self._db.execute("UPDATE withheld SET withdrawn_at = ? WHERE session = ?", (_now(), session))
        self._forget([session])

    def _forget(self, sessions: Sequence[str]) -> None:
        for table in ("due", "sent", "rewrite", "refused", "shared", "lost"):
            self._db.executemany(f"DELETE FROM {table} WHERE session = ?", [(key,) for key in sessions])


def _now() -> int:
    return time.time_ns() // 1_000_000
