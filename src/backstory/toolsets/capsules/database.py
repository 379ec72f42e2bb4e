"""The file `capsules.db`: opened privately, migrated once, shared by as many processes as there are."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from ...archive.errors import explain
from ...config import make_private_folder
from ...sqlite import is_damage

__all__ = ["Database", "DatabaseTooNew", "check_database", "database_trouble"]

DAMAGED = (
    "capsules.db is damaged: restore it from a backup, or move it away and import an export "
    "(backstory capsule import FILE)"
)

# An import that is all or nothing may hold the write lock for minutes; others wait for it instead of failing.
_BUSY_MS = 300_000
# How long a purge waits for others to let go of the log. What it cannot clear now, the next one will.
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

-- With what orders them, so that the capsules of a common tag can be counted and paged through here alone.
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

-- The last change of every capsule there ever was, so that an index elsewhere can follow.
CREATE TABLE changes (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE);

-- The last time stamp and the last id that were given out; whether something was purged that the file still holds.
CREATE TABLE state (stamp_us INTEGER NOT NULL, last_id TEXT NOT NULL, unscrubbed INTEGER NOT NULL);
INSERT INTO state VALUES (0, '', FALSE);

CREATE VIRTUAL TABLE words USING fts5 (
    name, title, tags, text, content = '', tokenize = 'unicode61 remove_diacritics 2'
);
"""
# The time of the last update by the clock; `updated_us` is its place in the order of all updates.
_UPDATE_TIMES = """
ALTER TABLE capsules ADD COLUMN updated_at INTEGER NOT NULL DEFAULT 0;
UPDATE capsules SET updated_at = updated_us / 1000000;
UPDATE versions SET capsule = json_set(capsule, '$.updated_at', updated_us / 1000000);
"""
_MIGRATIONS = (_FIRST_SCHEMA, _UPDATE_TIMES)


class DatabaseTooNew(Exception):
    """The file was written by a later version of Backstory."""


def database_trouble(error: Exception) -> str | None:
    """The cause of a failure of the store and its cure, in a sentence; None where they are not known."""
    if isinstance(error, DatabaseTooNew):
        return str(error)
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return DAMAGED
    cause = explain(error) if isinstance(error, sqlite3.Error | OSError) else None
    return None if cause is None else f"The capsule store cannot be used: {cause.replace('the archive', 'it')}"


def check_database(path: Path) -> str | None:
    """The trouble of a store, looked for without changing it; None for one that is well or not there."""
    if not path.exists():
        return None
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as connection:
            if _version(connection) > len(_MIGRATIONS):
                return str(_too_new(path, _version(connection)))
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        return None if found == "ok" else DAMAGED
    except sqlite3.Error as error:
        return database_trouble(error)


class Database:
    """One connection, opened at the first use and shared by the threads of this process one at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._close: Callable[[], None] = lambda: None

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A consistent view: what others commit meanwhile is not seen."""
        with self._transaction("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Sole writer from the first statement on, so that what is read inside still holds when it is written."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    def scrub(self) -> bool:
        """Rid the files of what was purged, if there is any. False when others are in the way: then it is still to do.

        Freed space is overwritten anyway, but SQLite leaves copies behind where it moves rows between pages, and in the
        write-ahead log. So the file is written anew, and the log emptied.
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
                connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
            return True

    def close(self) -> None:
        with self._lock:
            self._close()
            self._connection = None

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._opened()
            connection.execute(begin)
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = _open(self.path)
            # A store that is dropped without being closed gives its files back all the same.
            self._close = weakref.finalize(self, self._connection.close)
        return self._connection


def _open(path: Path) -> sqlite3.Connection:
    make_private_folder(path.parent)
    _make_private(path)
    connection = sqlite3.connect(path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
    try:
        # Freed space is overwritten: what is purged must not be readable in the file.
        connection.execute("PRAGMA secure_delete = ON")
        # Enough for the indexes of a hundred thousand capsules; what is not needed is not taken.
        connection.execute("PRAGMA cache_size = -32000")
        # A capsule that was acknowledged survives a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        if _version(connection) != len(_MIGRATIONS):
            _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_private(path: Path) -> None:
    """Before SQLite opens it: the log beside a database takes over the permissions of the file it finds."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
        with suppress(FileNotFoundError):
            path.with_name(name).chmod(0o600)


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date. Switching to WAL does not wait for others, so a lock file makes them take turns."""
    from filelock import FileLock

    with FileLock(path.with_suffix(".lock"), mode=0o600):
        connection.execute("PRAGMA journal_mode = WAL").fetchone()
        for number in range(_version(connection), len(_MIGRATIONS)):
            connection.executescript(
                f"BEGIN IMMEDIATE;{_MIGRATIONS[number]};PRAGMA user_version = {number + 1};COMMIT;"
            )
    if _version(connection) > len(_MIGRATIONS):
        raise _too_new(path, _version(connection))


def _too_new(path: Path, version: int) -> DatabaseTooNew:
    return DatabaseTooNew(
        f"{path.name} was written by a newer Backstory (schema {version}, this one knows {len(_MIGRATIONS)}): upgrade"
    )
