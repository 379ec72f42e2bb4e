"""SQLite files: connections, pragmas, migrations, busy handling, damage. Every database of Backstory is opened here.

A database is one file in WAL mode, readable by its owner only. `prepare` brings it to the current schema, `connect`
opens it, `Readers` keeps one read-only connection per thread. Connections are in autocommit mode: `transaction` and
`snapshot` begin and end transactions explicitly.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

T = TypeVar("T")
Pragmas = Mapping[str, int | str]
Functions = Mapping[str, Callable[[str], str]]
"""Functions of one text for statements and triggers, by name."""

FULL_DISK = "the disk is full: make room, or move the archive to another disk with BACKSTORY_HOME"
_BY_CODE = {
    sqlite3.SQLITE_FULL: FULL_DISK,
    sqlite3.SQLITE_IOERR_SHMSIZE: FULL_DISK,  # also to read, the memory that processes share has to be on the disk
    sqlite3.SQLITE_READONLY: "{what} cannot be written to ({error}): check the permissions of its folder",
    sqlite3.SQLITE_CANTOPEN: "{what} cannot be opened ({error}): check the permissions of its folder",
    sqlite3.SQLITE_PERM: "{what} cannot be opened ({error}): check the permissions of its folder",
    sqlite3.SQLITE_BUSY: "another process keeps {what} locked ({error}): try again",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written ({error}): see the system's log",
}
_BUSY_SECONDS = 10.0
_BUSY_POLL_SECONDS = 0.02
# Statements for many keys have one of these numbers of parameters, so that few different ones are prepared.
_CHUNKS = (8, 64, 400, 2_000)
_PROGRESS_STEPS = 20_000
# The size at which the log goes into the database.
CHECKPOINT_PAGES = 4_000
# The memory of a writer stays small.
WRITER_MAPPED_BYTES = 1 << 25

_PRAGMAS: Pragmas = {
    "cache_size": -32_768,
    # A large file is read from the system's cache without copying.
    "mmap_size": 1 << 31,
}
_WRITER_PRAGMAS: Pragmas = {
    **_PRAGMAS,
    "mmap_size": WRITER_MAPPED_BYTES,
    # In WAL mode NORMAL loses nothing when a process dies; a power cut may undo the last commits.
    "synchronous": "NORMAL",
    "wal_autocheckpoint": CHECKPOINT_PAGES,
    # Deleted content does not stay in free space.
    "secure_delete": "ON",
}


class Unusable(Exception):
    """A database that this process cannot use as it is; the message says why and what to do."""


class TimeoutExceeded(Exception):
    """A statement did not end within its `time_limit`."""


def connect(
    path: Path,
    *,
    writable: bool,
    busy_seconds: float = _BUSY_SECONDS,
    pragmas: Pragmas | None = None,
    functions: Functions | None = None,
) -> sqlite3.Connection:
    """A connection in autocommit mode. A writable one creates the file; `pragmas` go over the defaults.

    Statements wait up to `busy_seconds` while another process holds the write lock.
    """
    if writable:
        _create_private(path)
    connection = _open(path, "mode=rw" if writable else "mode=ro", busy_seconds)
    if not writable and not is_writable(path):
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        except sqlite3.OperationalError:
            # Reading in WAL mode needs files beside the database, which cannot be made here: no process writes.
            connection.close()
            connection = _open(path, "mode=ro&immutable=1", busy_seconds)
    try:
        if writable:
            _use_wal(connection, busy_seconds)
        for name, value in {**(_WRITER_PRAGMAS if writable else _PRAGMAS), **(pragmas or {})}.items():
            connection.execute(f"PRAGMA {name}={value}")
    except BaseException:
        connection.close()
        raise
    for name, function in {"casefold": _casefold, **(functions or {})}.items():
        connection.create_function(name, 1, function, deterministic=True)
    return connection


def _create_private(path: Path) -> None:
    """SQLite gives -wal and -shm the mode of the main file. An existing file is not opened here: closing it would
    release every lock of this process on it, and another process could remove the -wal in use."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _open(path: Path, options: str, busy_seconds: float) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{options}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """The switch to WAL does not call SQLite's busy handler, so it is repeated while others open the same new file."""
    until = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_BUSY_POLL_SECONDS)


def is_writable(path: Path) -> bool:
    """True if this process may write the database, or create it."""
    return os.access(path.parent, os.W_OK) and (os.access(path, os.W_OK) or not path.exists())


# Schema versions


def prepare(
    path: Path,
    migrations: Sequence[str],
    *,
    busy_seconds: float = _BUSY_SECONDS,
    functions: Functions | None = None,
) -> None:
    """Create or migrate a database, or wait while another process does. A read-only one must be current already.

    `migrations[n]` takes a database from version n to n + 1. Raises Unusable, and sqlite3.DatabaseError for damage.
    """
    writable = is_writable(path)
    if not writable and not path.exists():
        raise Unusable(
            f"{path.parent} cannot be written to, and there is no {path.name} in it: check its permissions, "
            "or set BACKSTORY_HOME to another folder"
        )
    with closing(connect(path, writable=writable, busy_seconds=busy_seconds, functions=functions)) as connection:
        if writable:
            _migrate(connection, path.name, migrations)
        elif version_of(connection, path.name, len(migrations)) < len(migrations):
            raise Unusable(
                f"{path.parent} is read-only, and {path.name} in it is of an older Backstory: make it writable, "
                "so that it can be updated"
            )


def version_of(connection: sqlite3.Connection, name: str, newest: int) -> int:
    """The schema version of the database called `name`. Raises Unusable above `newest`."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > newest:
        raise Unusable(f"{name} was written by a newer Backstory (schema {version}, this one knows {newest}): upgrade")
    return version


def _migrate(connection: sqlite3.Connection, name: str, migrations: Sequence[str]) -> None:
    """Each step is a transaction of its own. Several processes may try at once."""
    newest = len(migrations)
    while version_of(connection, name, newest) < newest:
        with transaction(connection):
            version = version_of(connection, name, newest)
            if version < newest:
                for statement in _statements(migrations[version]):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version={version + 1}")


def _statements(script: str) -> Iterator[str]:
    """The statements of a script: semicolons in comments, texts and triggers do not end one. `executescript` would
    commit the transaction."""
    statement = ""
    for piece in script.split(";"):
        statement += piece + ";"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


# Transactions


@contextmanager
def transaction(connection: sqlite3.Connection, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE") -> Iterator[None]:
    """Commits at the end, rolls back on any exception."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several reads of one state, while other processes commit."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")


@contextmanager
def time_limit(connection: sqlite3.Connection, deadline: float | None) -> Iterator[None]:
    """Interrupts statements after `deadline` on the monotonic clock with TimeoutExceeded."""
    if deadline is None:
        yield
        return
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _PROGRESS_STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if str(error) == "interrupted":
            raise TimeoutExceeded from None
        raise
    finally:
        connection.set_progress_handler(None, 0)


# Reading


class Readers:
    """One connection per thread, made by `open` at the first use; it is closed with its thread, or by `close` in it.

    A thread gets a new connection when `identity` gives another value: the file was replaced.
    """

    def __init__(self, open: Callable[[], sqlite3.Connection], identity: Callable[[], object] = lambda: None) -> None:
        self._open = open
        self._identity = identity
        self._local = threading.local()

    @property
    def connection(self) -> sqlite3.Connection:
        return self._reader.connection

    def read(self, what: Callable[[sqlite3.Connection], T]) -> T:
        """The answer of `what`, which is asked again after another connection has committed. It is not to be changed,
        and `what` is the same object in every call."""
        reader = self._reader
        (version,) = reader.connection.execute("PRAGMA data_version").fetchone()
        if version != reader.version:
            reader.version = version
            reader.answers.clear()
        if what not in reader.answers:
            reader.answers[what] = what(reader.connection)
        answer: T = reader.answers[what]
        return answer

    @property
    def _reader(self) -> _Reader:
        identity = self._identity()
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None or reader.identity != identity:
            reader = self._local.reader = _Reader(self._open(), identity)
        return reader

    def close(self) -> None:
        """Close the connection of this thread. Another thread may be reading with its own: to close a connection under
        a statement that runs would crash the process."""
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is not None:
            reader.connection.close()


class _Reader:
    """Closes its connection when the thread that holds it ends. `answers` are of the version of the data."""

    def __init__(self, connection: sqlite3.Connection, identity: object) -> None:
        self.connection = connection
        self.identity = identity
        self.version: int | None = None
        self.answers: dict[Callable[[sqlite3.Connection], Any], Any] = {}

    def __del__(self) -> None:
        self.connection.close()


def select_in(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Any]:
    """Rows for many keys, in chunks that SQLite accepts; `{}` in the statement stands for the parameters."""
    rows: list[Any] = []
    for start in range(0, len(values), _CHUNKS[-1]):
        chunk = list(values[start : start + _CHUNKS[-1]])
        size = next(size for size in _CHUNKS if size >= len(chunk))
        chunk += chunk[-1:] * (size - len(chunk))
        rows += connection.execute(sql.format(", ".join("?" * size)), chunk).fetchall()
    return rows


# Files


def rewrite(connection: sqlite3.Connection) -> None:
    """Write the file anew: deleted rows may have left copies in free space, in statistics and in the log."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat4'").fetchone():
        connection.execute("PRAGMA analysis_limit=1000")
        connection.execute("ANALYZE")  # its statistics have samples of deleted rows
    connection.execute("VACUUM")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def remove(path: Path) -> None:
    """Delete a closed database, with the files that SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


# Errors


def is_damage(error: sqlite3.Error) -> bool:
    # A nonsensical header has no code of its own.
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error) == "unsupported file format"


def explain(error: BaseException, what: str) -> str | None:
    """The cause of an error of SQLite or the disk and its cure, in one line; None for any other error.

    `what` names the database in the message, e.g. "the archive". Damage is for the caller to explain.
    """
    if isinstance(error, Unusable):
        return str(error)
    if isinstance(error, sqlite3.Error):
        message = _BY_CODE.get(getattr(error, "sqlite_errorcode", 0)) or _BY_CODE.get(_code(error))
        return None if message is None else message.format(what=what, error=error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FULL_DISK
    return None


def _code(error: sqlite3.Error) -> int:
    """The primary result code; errors of the Python module itself have none."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _casefold(text: str | None) -> str | None:
    return None if text is None else text.casefold()
