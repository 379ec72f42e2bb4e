"""The capsule store: `capsules.db` in the home folder, shared by any number of processes and threads."""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ...config import make_private_folder
from ...sqlite import Unusable, connect, explain, is_damage, prepare, transaction, version_of
from .capsule import SECOND
from .rows import Reader, Writer

FILE = "capsules.db"
_DAMAGED = (
    f"{FILE} is damaged: restore it from a backup, or move it away and import an export (backstory capsule import FILE)"
)

# An import that is all or nothing may hold the write lock for minutes; others wait for it instead of failing.
_BUSY_SECONDS = 300.0
# The time that a purge waits for readers to leave the log. The next purge clears what this one cannot.
_SCRUB_MS = 5_000

_FIRST_SCHEMA = """
-- The text is kept apart: listing and counting stay within a small table.
CREATE TABLE capsules (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    workspace_raw TEXT NOT NULL,
    workspace_norm TEXT NOT NULL,
    name_raw TEXT,
    name_norm TEXT,
    title TEXT,
    capsule_chars INTEGER NOT NULL,
    tokens_estimate INTEGER NOT NULL,
    tags_json TEXT,
    source TEXT,
    run_id TEXT,
    phase TEXT,
    role TEXT,
    source_session TEXT,
    allow_thin INTEGER NOT NULL,
    version INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    deleted_us INTEGER
);
CREATE TABLE texts (row INTEGER PRIMARY KEY, capsule_text TEXT NOT NULL);
CREATE UNIQUE INDEX active_names ON capsules (workspace_norm, name_norm)
    WHERE name_norm IS NOT NULL AND deleted_us IS NULL;
CREATE INDEX deleted_names ON capsules (workspace_norm, name_norm, deleted_us) WHERE deleted_us IS NOT NULL;
CREATE INDEX active_by_workspace ON capsules (workspace_norm, updated_us, id) WHERE deleted_us IS NULL;
CREATE INDEX active_by_time ON capsules (updated_us, id) WHERE deleted_us IS NULL;
CREATE INDEX all_by_workspace ON capsules (workspace_norm, updated_us, id);
CREATE INDEX all_by_time ON capsules (updated_us, id);
CREATE INDEX by_name ON capsules (name_norm, deleted_us, workspace_norm, updated_us, id) WHERE name_norm IS NOT NULL;
CREATE INDEX by_run ON capsules (run_id, updated_us, id) WHERE run_id IS NOT NULL;
CREATE INDEX by_session ON capsules (source_session, updated_us, id) WHERE source_session IS NOT NULL;

-- With the keys of their order, so that the capsules of a common tag are counted and paged through here alone.
CREATE TABLE tags (
    tag TEXT NOT NULL,
    active INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    id TEXT NOT NULL,
    row INTEGER NOT NULL,
    PRIMARY KEY (tag, active, updated_us, id)
) WITHOUT ROWID;
CREATE INDEX tags_of_row ON tags (row);

-- Past versions of a capsule, whole: the current one is in `capsules`.
CREATE TABLE versions (
    row INTEGER NOT NULL,
    version INTEGER NOT NULL,
    updated_us INTEGER NOT NULL,
    capsule TEXT NOT NULL,
    PRIMARY KEY (row, version)
) WITHOUT ROWID;

-- Dropped by a later migration.
CREATE TABLE changes (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE);

-- The last time stamp and the last id in use. `unscrubbed` is true while the file may hold purged text.
CREATE TABLE state (stamp_us INTEGER NOT NULL, last_id TEXT NOT NULL, unscrubbed INTEGER NOT NULL);
INSERT INTO state VALUES (0, '', FALSE);

CREATE VIRTUAL TABLE words USING fts5 (
    name, title, tags, text, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
"""
# The time of the last update by the clock, beside `updated_us`, which is its place in the order of all updates.
_UPDATE_TIMES = """
ALTER TABLE capsules ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
UPDATE capsules SET updated_at = updated_us / 1000000;
UPDATE versions SET capsule = json_set(capsule, '$.updated_at', updated_us / 1000000);
"""
# The change log had no reader: a search asks this store itself. Words are indexed as the archive indexes them.
_ONE_SEARCH = """
DROP TABLE changes;
ALTER TABLE state ADD COLUMN words_version INTEGER NOT NULL DEFAULT 0
"""
_MIGRATIONS = (_FIRST_SCHEMA, _UPDATE_TIMES, _ONE_SEARCH)


def database_trouble(error: Exception) -> str | None:
    """The cause of a failure of the store and its cure, in a sentence; None where they are not known."""
    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return _DAMAGED
    cause = explain(error, "it")
    return None if cause is None else f"The capsule store cannot be used: {cause}"


def check_database(path: Path) -> str | None:
    """The problem of a store, found without changing it; None for a sound store and where there is none."""
    if not path.exists():
        return None
    try:
        with closing(connect(path, writable=False)) as connection:
            version_of(connection, path.name, len(_MIGRATIONS))
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        return None if found == "ok" else _DAMAGED
    except (sqlite3.Error, Unusable) as error:
        return database_trouble(error)


def _clock_us() -> int:
    return time.time_ns() // 1000


class Store:
    """One connection, opened at the first use and shared by the threads of this process one at a time.

    `clock` gives microseconds since the epoch.
    """

    def __init__(self, home: Path, clock: Callable[[], int] = _clock_us) -> None:
        self.home = home
        self._clock = clock
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._close: Callable[[], None] = lambda: None

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """A consistent view: it does not see what others commit meanwhile."""
        with self._lock:
            connection = self._opened()
            with transaction(connection, "DEFERRED"):
                yield Reader(connection)

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        """Sole writer from the first statement on, so that what is read inside still holds when it is written."""
        with self._lock:
            connection = self._opened()
            with transaction(connection):
                # The clock is read inside the write lock, so that a later commit has a later time.
                yield Writer(connection, self._clock())

    @contextmanager
    def reading_aside(self) -> Iterator[Reader]:
        """A reader on a connection of its own, for long work: other threads do not wait for it."""
        with closing(Store(self.home)) as store, store.reading() as reader:
            yield reader

    def purge(self, workspace_norm: str | None, older_than_us: int | None) -> tuple[int, bool]:
        """Remove deleted capsules for good. Gives their number, and True when their text is gone from the files."""
        with self.writing() as writer:
            before = None if older_than_us is None else writer.now_us - older_than_us
            count = writer.purge(workspace_norm, before)
        return count, self._scrub()

    def await_after(self, second: int) -> None:
        """Wait for the end of a second, if it is the current one."""
        left_us = (second + 1) * SECOND - self._clock()
        if 0 < left_us <= SECOND:
            time.sleep(left_us / SECOND)

    def close(self) -> None:
        with self._lock:
            self._close()
            self._connection = None

    def _scrub(self) -> bool:
        """Remove purged text from the files. False while other readers prevent it: the next purge tries again.

        Freed space is overwritten anyway, but SQLite leaves copies behind where it moves rows between pages, and in the
        write-ahead log. So the file is rewritten, and the log emptied.
        """
        with self._lock:
            connection = self._opened()
            try:
                if not connection.execute("SELECT unscrubbed FROM state").fetchone()[0]:
                    return True
                connection.execute(f"PRAGMA busy_timeout = {_SCRUB_MS}")
                connection.execute("VACUUM")
                if connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                    return False
                connection.execute("UPDATE state SET unscrubbed = FALSE")
            except sqlite3.OperationalError:
                return False
            finally:
                connection.execute(f"PRAGMA busy_timeout = {int(_BUSY_SECONDS * 1000)}")
            return True

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _open(self.home / FILE)
            # A store that is dropped without being closed still releases its files.
            self._close = weakref.finalize(self, self._connection.close)
        return self._connection


def _open(path: Path) -> sqlite3.Connection:
    make_private_folder(path.parent)
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            path.with_name(name).chmod(0o600)
    # An acknowledged capsule survives a power cut.
    connection = connect(path, writable=True, busy_seconds=_BUSY_SECONDS, pragmas={"synchronous": "FULL"})
    connection.row_factory = sqlite3.Row
    try:
        if version_of(connection, path.name, len(_MIGRATIONS)) < len(_MIGRATIONS):
            prepare(path, _MIGRATIONS, busy_seconds=_BUSY_SECONDS)
        if not Reader(connection).index_is_current:
            with transaction(connection):
                Writer(connection, _clock_us()).refresh_index()
    except BaseException:
        connection.close()
        raise
    return connection
