"""Writing the archive: one process at a time, the record first, the index after it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import msgspec

from ...sqlite import CHECKPOINT_PAGES, WRITER_MAPPED_BYTES, rewrite, transaction
from ..base import EVERYTHING, ArchiveError, Batch, EventRow, Part, SessionRow, SyncState
from ..lock import WriterLock
from .bodies import Bodies, train_dictionary
from .bulk import BulkLog, Follower, Presence, rare_collections
from .database import Followed, highest, mark, newest_change, progress_of, stored_dictionary
from .feed import Feed
from .forgetting import clean, delete_requested, delete_sessions, requested, withdraw
from .index import Index
from .reading import Reading
from .rows import (
    INSERT_EVENT,
    REPLACE_EVENT,
    UPSERT_EXCHANGE,
    UPSERT_FILE,
    UPSERT_SESSION,
    UPSERT_TURN,
    UPSERT_USAGE,
    Values,
    event_values,
    exchange_values,
    file_values,
    session_values,
    turn_values,
    usage_values,
)

_log = logging.getLogger(__name__)

# From this size on a second process is worth its start.
_BULK_BYTES = 16 << 20


_NAME_FILE = "INSERT OR IGNORE INTO file_name (path, name) VALUES (?, ?)"
_DELETE_EXCHANGES = "DELETE FROM exchange WHERE session = ? AND number >= ?"
_MARK_STALE = "INSERT INTO stale (session, turn, event) SELECT session, turn, id FROM event WHERE uid = ?"
# The index knows the exchanges of a session by its folder.
_FEED_MOVED = "INSERT INTO stale (session, turn, event) SELECT id, 0, 0 FROM session WHERE key = ? AND folder <> ?"
# Traces show usage: its turn has changed, also when another session reports the call again.
_TOUCH_TURN = (
    "UPDATE turn SET change = ?1 FROM usage u WHERE u.key = ?2 AND turn.session = u.session "
    "AND turn.ordinal = max(u.turn, 1) AND turn.change < ?1"
)
_IDENTIFY_FOLDER = "UPDATE project SET identity = ?1 WHERE id = ?2 AND identity IS NOT ?1"
# An identity with `@` is of a repository that had no remote.
_IDENTIFY_SESSIONS = "UPDATE session SET project = ? WHERE cwd = ? AND (project IS NULL OR instr(project, '@') > 0)"
# A flush projects traces for so many seconds; the next one does the rest.
_PROJECT_SECONDS = 3.0


class LocalWriter(Reading):
    """Holds the writer lock until it is closed."""

    def __init__(
        self,
        home: Path,
        connection: sqlite3.Connection,
        feed: Callable[[sqlite3.Connection], Feed],
        events: Index,
        projection: str | None,
        lock: WriterLock,
    ) -> None:
        super().__init__(lambda: connection)
        self._home = home
        self._lock = lock
        self._events = events
        self._session_ids: dict[str, int] = {}
        # True if those are all sessions of the record, so that others are known to be new without a look.
        self._has_all_ids = False
        self._numbers: dict[tuple[str, str], int] = {}
        # The events of the record, if it had none when much was about to be written.
        self._presence: Presence | None = None
        self._next_event = 1 + highest(connection, "event")
        self._highest_session = highest(connection, "session")
        self._change = newest_change(connection)
        self._forgets: bool | None = None
        self._open_feed = feed
        self._feed = feed(connection)
        self._projection = projection
        self._follower: Follower | None = None
        self._log: BulkLog | None = None

    # Reading: rows as the writer's connection has them

    def forgotten(self, digests: Sequence[bytes]) -> frozenset[bytes]:
        return super().forgotten(digests) if self._has_forgotten else frozenset()

    @property
    def _has_forgotten(self) -> bool:
        if self._forgets is None:
            self._forgets = bool(self._scalar("SELECT EXISTS (SELECT 1 FROM forgotten)"))
        return self._forgets

    def session(self, key: str) -> SessionRow | None:
        return super().session(key) if self._session_id(key) else None

    def events(self, key: str | None = None, turn: int | None = None, part: Part = EVERYTHING) -> list[EventRow]:
        if part.uids is not None and self._presence is not None:
            uids = self._presence.among(part.uids)
            if not uids:
                return []
            part = msgspec.structs.replace(part, uids=tuple(uids))
        return super().events(key, turn, part)

    def turn_keys(self, key: str) -> frozenset[str]:
        return super().turn_keys(key) if self._session_id(key) or self._has_forgotten else frozenset()

    def sync_state(self, *, folders: bool = False) -> SyncState:
        state = progress_of(self._db).sync
        state.folders = self._folders() if folders else ()
        return state

    # Writing

    def write(self, batch: Batch) -> None:
        new_dictionary = None
        if not self._bodies.trained and batch.events:
            new_dictionary = train_dictionary(event.text for event in batch.events)
        first_event = self._next_event
        try:
            with self._transaction(durable=bool(batch.replaced or batch.removed)):
                if batch.removed:
                    self._remove(batch.removed)
                if new_dictionary:
                    self._db.execute("INSERT INTO meta (name, value) VALUES ('dictionary', ?)", (new_dictionary,))
                    self._bodies.learn(new_dictionary)
                self._write_rows(batch)
        except BaseException:
            self._reset(first_event)
            raise
        if self._log is not None:
            self._log.bound()
        if self._follower is not None:
            self._follower.follow()

    @contextmanager
    def _transaction(self, *, durable: bool) -> Iterator[None]:
        """`durable`: the index deletes documents because of it, so a power cut must not undo it."""
        if durable:
            self._db.execute("PRAGMA synchronous=FULL")
        try:
            with transaction(self._db):
                yield
        finally:
            if durable:
                self._db.execute("PRAGMA synchronous=NORMAL")

    def _write_rows(self, batch: Batch) -> None:
        db = self._db
        for session in batch.sessions:
            self._number("source", "name", session.source)
            if session.folder:
                self._number("project", "path", session.folder)
        db.executemany(_FEED_MOVED, [(row.key, row.folder) for row in batch.sessions if row.folder])
        sessions = [session_values(self._session_number(row.key), row) for row in batch.sessions]
        db.executemany(UPSERT_SESSION, sessions)
        self._write_projects(batch)
        db.executemany(_MARK_STALE, [(row.uid,) for row in batch.replaced])
        db.executemany(REPLACE_EVENT, self._numbered(batch.replaced))
        db.executemany(INSERT_EVENT, self._numbered(batch.events))
        if batch.turns or batch.usage or batch.exchanges:
            self._change += 1
            turns = [turn_values(self._session_id(row.session), self._change, row) for row in batch.turns]
            db.executemany(UPSERT_TURN, turns)
            self._set_meta("change", self._change)
        self._write_exchanges(batch)
        db.executemany(UPSERT_USAGE, [usage_values(self._session_id(row.session), row) for row in batch.usage])
        changed = {(row.session, row.ordinal) for row in batch.turns}
        touched = [row.key for row in batch.usage if (row.session, max(row.turn, 1)) not in changed]
        db.executemany(_TOUCH_TURN, [(self._change, key) for key in touched])
        db.executemany(UPSERT_FILE, [file_values(row) for row in batch.files])
        db.executemany(_NAME_FILE, [(row.path, name) for row in batch.files for name in row.names])
        if batch.folders is not None:
            db.execute("DELETE FROM folder")
            rows = [(row.path, row.source, row.mtime_ns) for row in batch.folders]
            db.executemany("INSERT INTO folder (path, source, mtime_ns) VALUES (?, ?, ?)", rows)
        db.executemany("INSERT OR IGNORE INTO forgotten (mark) VALUES (?)", [(mark(d),) for d in batch.forgotten])
        if batch.forgotten:
            self._forgets = None
        if batch.sync is not None:
            # The other fields are computed when the state is read.
            stored = msgspec.structs.replace(
                batch.sync, index_behind=False, read_only=False, recovered=True, forgetting=(), writing=False
            )
            self._set_meta("sync", msgspec.json.encode(stored).decode())

    def _write_projects(self, batch: Batch) -> None:
        of_sessions = {row.cwd: row.project for row in batch.sessions if row.cwd and row.project}
        for folder, identity in {**of_sessions, **batch.projects}.items():
            number = self._number("project", "path", folder)
            self._db.execute(_IDENTIFY_FOLDER, (identity, number))
        self._db.executemany(_IDENTIFY_SESSIONS, [(name, folder) for folder, name in batch.projects.items()])

    def _remove(self, keys: Sequence[str]) -> None:
        delete_sessions(self._db, keys)
        self._change = newest_change(self._db)
        self._reset(self._next_event)

    def _numbered(self, events: Sequence[EventRow]) -> list[Values]:
        values, pack = [], self._bodies.packer()
        session, number = "", 0
        for row in events:
            if row.session != session:
                session, number = row.session, self._session_id(row.session)
            project = self._number("project", "path", row.cwd) if row.cwd else None
            values.append(event_values(self._next_event, number, project, row, pack))
            self._next_event += 1
        if self._presence is not None:
            self._presence.add([row.uid for row in events])
        return values

    def _write_exchanges(self, batch: Batch) -> None:
        rows = ((self._session_id(row.session), row) for row in batch.exchanges)
        values = [exchange_values(session, self._change, row, self._bodies) for session, row in rows]
        self._db.executemany(UPSERT_EXCHANGE, values)
        # An update may have made more of them (`SessionRow.provisional`).
        for session, count in [(self._session_id(row.key), row.exchange_count) for row in batch.sessions]:
            if count and self._db.execute(_DELETE_EXCHANGES, (session, count)).rowcount:
                self._db.execute("INSERT INTO stale (session, turn, event) VALUES (?, 0, 0)", (session,))

    def _reset(self, next_event: int) -> None:
        """Drop what was cached of rows that were rolled back or deleted."""
        self._next_event = next_event
        self._highest_session = highest(self._db, "session")
        self._session_ids, self._has_all_ids = {}, False
        self._numbers.clear()
        self._bodies = Bodies(lambda: stored_dictionary(self._db))

    # Index and traces, which follow from the record

    @contextmanager
    def bulk(self, size: int) -> Iterator[None]:
        if size >= _BULK_BYTES and (follower := Follower.start(self._home, self._projection)) is not None:
            self._feed.close()
            self._follower = follower
            self._session_ids = dict(self._db.execute("SELECT key, id FROM session"))
            self._has_all_ids = True
            if not self._scalar("SELECT EXISTS (SELECT 1 FROM event)"):
                self._presence = Presence()
            self._log = BulkLog(self._db, self._home / "archive.db")
            # Only the beginning of the file would be mapped, which is memory for nothing when the file is large.
            self._db.execute("PRAGMA mmap_size=0")
        try:
            with nullcontext() if self._follower is None else rare_collections():
                yield
        finally:
            self._end_follower()

    def flush(self, *, wait: bool = True) -> None:
        if self._follower is not None:
            stale = self._scalar("SELECT max(id) FROM stale")
            if self._follower.flush(wait=wait):
                if wait:
                    self._drop_stale(stale)
                return
            self._end_follower()
        self._flush_alone()

    def _flush_alone(self) -> None:
        last = self._scalar("SELECT max(id) FROM stale")
        self._feed.flush()
        self._drop_stale(last)
        self._feed.traces.project(_PROJECT_SECONDS)

    def _drop_stale(self, last: int) -> None:
        """Delete the entries of `stale` up to `last`, which the index has followed. Traces of forgotten sessions are
        deleted here, too; a failure is tried again with the next flush."""
        if not last:
            return
        rows = self._db.execute(
            "SELECT id, session, key, remember FROM stale WHERE id <= ? AND key IS NOT NULL", (last,)
        ).fetchall()
        kept = [id for id, *session in rows if not self._feed.traces.forget(*session)]
        self._db.execute(
            "DELETE FROM stale WHERE id <= ? AND id NOT IN (SELECT value FROM json_each(?))",
            (last, msgspec.json.encode(kept).decode()),
        )

    def _end_follower(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = self._presence = self._log = None
            self._db.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            self._db.execute(f"PRAGMA mmap_size={WRITER_MAPPED_BYTES}")
            self._feed = self._open_feed(self._db)

    def recover(self, *, reindex: bool = False) -> None:
        if reindex:
            self._feed.rebuild()
        self._flush_alone()
        self._forget_requested()
        self._note_whole()

    def _note_whole(self) -> None:
        """Record how far index and traces have followed: by this readers see that there is nothing to recover."""
        reached = Followed(self._next_event - 1, self._change, self._feed.traces.projected)
        self._set_meta("followed", msgspec.json.encode(reached).decode())

    def _forget_requested(self) -> None:
        requests = requested(self._db)
        if not requests:
            return
        with self._transaction(durable=True):
            delete_requested(self._db, requests, self._events)
        self._change = newest_change(self._db)
        self._reset(self._next_event)
        self._forgets = None
        self._flush_alone()
        if any(request.wipe for request in requests):
            self._wipe()
        withdraw(self._db, requests)

    def _wipe(self) -> None:
        clean(self._db, requested(self._db))
        self._reset(self._next_event)
        self._feed.rebuild()
        try:
            rewrite(self._db)
            self._feed.traces.rewrite()
        except (ArchiveError, sqlite3.DatabaseError) as error:
            _log.warning("forgotten text may still be in free space of the archive's files: %s", error)

    def close(self) -> None:
        with ExitStack() as parts:
            parts.callback(self._lock.release)
            parts.callback(self._db.close)
            parts.callback(self._feed.close)
            self.flush()
            self._note_whole()
            # Samples: a whole table with an index that is empty would be read anew each time.
            self._db.execute("PRAGMA analysis_limit=1000")
            self._db.execute("PRAGMA optimize")

    def _session_id(self, key: str) -> int:
        number = self._session_ids.get(key)
        if number is None:
            if self._has_all_ids:
                return 0
            row = self._db.execute("SELECT id FROM session WHERE key = ?", (key,)).fetchone()
            if row is None:
                return 0
            number = self._session_ids[key] = row[0]
        return number

    def _session_number(self, key: str) -> int:
        """The number of a session, or one for a new session."""
        number = self._session_id(key)
        if not number:
            self._highest_session += 1
            number = self._session_ids[key] = self._highest_session
        return number

    def _number(self, table: str, column: str, name: str) -> int:
        number = self._numbers.get((table, name))
        if number is None:
            self._db.execute(f"INSERT INTO {table} ({column}) VALUES (?) ON CONFLICT DO NOTHING", (name,))
            number = self._scalar(f"SELECT id FROM {table} WHERE {column} = ?", name)
            self._numbers[table, name] = number
        return number

    def _set_meta(self, name: str, value: int | str) -> None:
        self._db.execute(
            "INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def _scalar(self, sql: str, *parameters: object) -> int:
        row = self._db.execute(sql, parameters).fetchone()
        return int(row[0] or 0) if row else 0
