"""The newest sessions of this machine in a local file, for hooks: they have no time to ask a server."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from ...model import session_id
from ...sqlite import Unusable, connect, prepare, transaction
from ..glance import GLANCES
from ..rows import SessionRow

_MOST_SESSIONS = 2_000
# The columns that `archive/glance.py` reads.
_COLUMNS = (
    "key", "source", "title", "branch", "parent", "cwd", "last_cwd", "updated_at", "turn_count", "event_count",
    "completed",
)  # fmt: skip
_MIGRATIONS = (
    """
    CREATE TABLE session (
        key TEXT PRIMARY KEY, source TEXT NOT NULL, title TEXT NOT NULL, branch TEXT, parent TEXT, cwd TEXT,
        last_cwd TEXT, updated_at INTEGER NOT NULL, turn_count INTEGER NOT NULL, event_count INTEGER NOT NULL,
        completed INTEGER NOT NULL, public_id TEXT NOT NULL
    ) STRICT;
    CREATE INDEX session_updated ON session (updated_at)
    """,
)
_WRITE = (
    f"INSERT OR REPLACE INTO session ({', '.join(_COLUMNS)}, public_id) VALUES ({', '.join('?' * len(_COLUMNS))}, ?)"
)
_CUT = (
    "DELETE FROM session WHERE updated_at < (SELECT updated_at FROM session ORDER BY updated_at DESC LIMIT 1 OFFSET ?)"
)


class Glances:
    """A help for hooks, no part of the archive: a failure here stops nothing."""

    def __init__(self, home: Path) -> None:
        self._path = home / GLANCES

    def write(self, sessions: Sequence[SessionRow]) -> None:
        self._change(_WRITE, [(*(getattr(row, name) for name in _COLUMNS), session_id(row.key)) for row in sessions])

    def delete(self, keys: Iterable[str]) -> None:
        self._change("DELETE FROM session WHERE key = ?", [(key,) for key in keys])

    def keep(self, is_kept: Callable[[Sequence[str]], Sequence[str]]) -> None:
        """Delete the sessions that `is_kept` does not give back: another machine may have had them forgotten."""
        keys: list[str] = []
        with suppress(sqlite3.Error):
            if self._path.exists():
                with closing(connect(self._path, writable=False)) as db:
                    keys = [key for (key,) in db.execute("SELECT key FROM session")]
        self.delete(set(keys).difference(is_kept(keys)))

    def _change(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if not rows:
            return
        with suppress(sqlite3.Error, OSError, Unusable):
            prepare(self._path, _MIGRATIONS)
            with closing(connect(self._path, writable=True)) as db, transaction(db):
                db.executemany(statement, rows)
                db.execute(_CUT, (_MOST_SESSIONS,))
