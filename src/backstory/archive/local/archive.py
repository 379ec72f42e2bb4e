"""The local archive: SQLite is the record, tantivy the index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...config import make_private_folder
from ...model import session_mark
from ...sqlite import Unusable, connect, is_damage, is_writable, prepare
from ..base import ArchiveError, Counts, FileRow, Stamp, SyncState
from ..errors import DAMAGED
from .database import MIGRATIONS, mark, newest_change
from .events import Events
from .finding import Finding
from .rows import FILE_COLUMNS, read_file
from .sessions import Sessions

if TYPE_CHECKING:
    from .following import Following
    from .spans.store import LocalSpans
    from .writer import LocalWriter

__all__ = ["LocalArchive"]

# The writer may be writing the whole file anew.
_REQUEST_PATIENCE_MS = 60_000


class LocalArchive(Finding, Sessions, Events):
    """Opens (and creates) the archive below a home folder. A search from a cold process loads nothing but searching."""

    def __init__(self, home: Path) -> None:
        self.home = make_private_folder(home)
        path = home / "archive.db"
        try:
            prepare(path, MIGRATIONS)
        except Unusable as error:
            raise ArchiveError(str(error)) from None
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
            raise ArchiveError(DAMAGED.format(path, error)) from error
        super().__init__(path)

    def writer(self) -> LocalWriter:
        from .writer import LocalWriter, take_lock

        if not is_writable(self._path):
            raise ArchiveError(f"{self.home} cannot be written to: check its permissions")
        lock = take_lock(self.home)
        try:
            return LocalWriter(self.home, connect(self._path, writable=True), self.following, self._events, lock)
        except BaseException:
            lock.release()
            raise

    def following(self, record: sqlite3.Connection | None = None) -> Following:
        """For the writer, or for a process that works for it."""
        from .following import Following

        return Following(record or connect(self._path, writable=False), self._events, self._exchanges, self.spans)

    @cached_property
    def spans(self) -> LocalSpans:
        from .spans.store import LocalSpans

        return LocalSpans(self.home, self._events_between)

    def forget(self, key: str, *, remember: bool = True, wipe: bool = True) -> None:
        from .forgetting import request

        if not is_writable(self._path):
            raise ArchiveError(f"{self.home} cannot be written to: check its permissions")
        with closing(connect(self._path, writable=True)) as db:
            db.execute(f"PRAGMA busy_timeout={_REQUEST_PATIENCE_MS}")
            db.execute("PRAGMA synchronous=FULL")
            request(db, key, remember=remember, wipe=wipe)

    def forgetting(self) -> list[str]:
        return [key for (key,) in self._db.execute("SELECT key FROM forget")]

    def is_forgotten(self, key: str) -> bool:
        row = self._db.execute("SELECT 1 FROM forgotten WHERE mark = ?", (mark(session_mark(key)),)).fetchone()
        return row is not None

    def files(self) -> Iterator[FileRow]:
        for row in self._db.execute(f"SELECT {', '.join(FILE_COLUMNS)} FROM file ORDER BY path"):
            yield read_file(row)

    def stamps(self) -> dict[str, Stamp]:
        rows = self._db.execute("SELECT path, source, inode, size, mtime_ns, missing FROM file")
        return {
            path: Stamp(source, inode, size, mtime_ns, bool(missing))
            for path, source, inode, size, mtime_ns, missing in rows
        }

    def counts(self) -> Counts:
        db = self._db
        files, broken, missing = db.execute(
            "SELECT count(*), sum(errors > 0), sum(missing) FROM file WHERE session <> '' OR errors > 0"
        ).fetchone()
        sessions, turns, events = db.execute(
            "SELECT count(*), sum(turn_count), sum(event_count) FROM session WHERE event_count > 0"
        ).fetchone()
        by_source = db.execute("SELECT source, count(*) FROM session WHERE event_count > 0 GROUP BY source ORDER BY 1")
        return Counts(
            sessions=sessions,
            turns=turns or 0,
            events=events or 0,
            files=files,
            files_with_errors=broken or 0,
            files_missing=missing or 0,
            by_source=dict(by_source.fetchall()),
            bytes=sum(path.stat().st_size for path in self.home.rglob("*") if path.is_file()),
        )

    def sync_state(self) -> SyncState:
        row = self._db.execute("SELECT value FROM meta WHERE name = 'sync'").fetchone()
        state = msgspec.json.decode(row[0], type=SyncState) if row else SyncState()
        state.read_only = not is_writable(self._path)
        state.index_behind = state.first_finished_at is not None and self._index_outdated
        return state

    def is_whole(self) -> bool:
        row = self._db.execute("SELECT value FROM meta WHERE name = 'followed'").fetchone()
        if row is None or self._index_outdated or not (self.home / "traces.db").exists():
            return False
        event, change, projected = msgspec.json.decode(row[0], type=tuple[int, int, int])
        last, pending = self._db.execute(
            "SELECT (SELECT max(id) FROM event), EXISTS (SELECT 1 FROM stale) OR EXISTS (SELECT 1 FROM forget)"
        ).fetchone()
        return event >= (last or 0) and min(change, projected) >= newest_change(self._db) and not pending

    @property
    def _index_outdated(self) -> bool:
        return self._events.outdated or self._exchanges.outdated

    def close(self) -> None:
        if "spans" in self.__dict__:
            self.spans.close()
        super().close()
