"""Reading an agent's SQLite database while the agent may be writing it.

The connection is read-only and lives for one query or one session: no lock is held for long, nothing is written, no
checkpoint is made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from .base import Stored

_BUSY_SECONDS = 1.0
_PAGE = 200
_HEADER_BYTES = 20
_WAL = 2
# Locked, busy, out of memory, an error of the disk: they pass. Everything else is in the file.
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM}


@contextmanager
def open_database(path: Path, *, busy_seconds: float = _BUSY_SECONDS) -> Iterator[sqlite3.Connection]:
    """A connection whose rows have names. Raises OSError for what may pass, such as a lock, and ValueError for a file
    that is no database or is damaged.

    A database in WAL mode whose `-wal` file is empty or not there has everything in its own file. Even a read-only
    connection would write `-shm` beside it, so it is read as a file that does not change. It is an OSError if it does.
    So is the beginning of a file, as while one is copied. SQLite would delete the `-wal` file of an empty database, and
    read zeros where a page is cut: fewer rows than there are.
    """
    try:
        before = _state(path)
        uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if before else ''}"
        with closing(sqlite3.connect(uri, uri=True, timeout=busy_seconds, isolation_level=None)) as connection:
            connection.row_factory = sqlite3.Row
            connection.text_factory = _text
            if _is_cut(connection, path):
                raise OSError(f"{path.name} is not whole")
            yield connection
        if before and _state(path) != before:
            raise OSError(f"{path.name} changed while it was read")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        raise (OSError if code in _PASSING else ValueError)(str(error)) from error


def has_table(database: sqlite3.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ? AND type IN ('table', 'view')"
    return database.execute(query, (name,)).fetchone() is not None


def columns(database: sqlite3.Connection, table: str) -> frozenset[str]:
    """The names of a table's columns; none if there is no such table."""
    return frozenset(row["name"] for row in database.execute(f"PRAGMA table_info({table})"))


def row_of(database: sqlite3.Connection, table: str, identity: str, names: Sequence[str]) -> dict[str, Any]:
    """The row with an id, with those of the named columns that the table has; empty if there is no such row."""
    known = columns(database, table)
    found = ", ".join(name for name in names if name in known)
    row = database.execute(f"SELECT {found} FROM {table} WHERE id = ?", (identity,)).fetchone()
    return dict(row) if row else {}


def turn_start(database: sqlite3.Connection, session: str, since: Stored | None, *, prompts: str) -> int:
    """The row of `messages` to begin reading at: the prompt of the turn that the first row after `since.version`
    belongs to. `prompts` is the SQL condition by which prompts are found."""
    if since is None:
        return 0
    query = (
        f"SELECT max(id) FROM messages WHERE session_id = ? AND {prompts}"
        " AND id <= (SELECT min(id) FROM messages WHERE session_id = ? AND id > ?)"
    )
    found: int | None = database.execute(query, (session, session, since.version)).fetchone()[0]
    return found or since.version


def pages(
    database: sqlite3.Connection, query: str, parameters: Mapping[str, Any], *, after: int = -1
) -> Iterator[sqlite3.Row]:
    """The rows of a query whose `id` is above `:after`, in the order of their ids, with one short query for each page:
    the query takes `:after` and `:limit`."""
    while True:
        rows = database.execute(query, {**parameters, "after": after, "limit": _PAGE}).fetchall()
        yield from rows
        if len(rows) < _PAGE:
            return
        after = rows[-1]["id"]


def _state(path: Path) -> tuple[int, int, int] | None:
    """A stamp of a database in WAL mode that has no log, or of a file without a header; None for one that has a log, or
    is in another mode."""
    with path.open("rb") as stream:
        header = stream.read(_HEADER_BYTES)
    if len(header) == _HEADER_BYTES and (header[18] != _WAL or _has_log(path)):
        return None
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


def _is_cut(database: sqlite3.Connection, path: Path) -> bool:
    """True if the file is shorter than the database; pages may be in the log instead."""
    (pages,), (size,) = (database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    return bool(path.stat().st_size < pages * size) and not _has_log(path)


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
