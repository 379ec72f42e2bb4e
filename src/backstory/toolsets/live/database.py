"""A write-behind SQLite database for data that can be rebuilt.

Writes are collected and executed before the next query, in a transaction that is committed from time to time. When a
commit fails (a full disk), nothing is lost: its writes are kept and executed again.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from ...sqlite import connect, remove

_log = logging.getLogger("backstory.live")
_AT_ONCE = 100
# Only a commit, and `write_back` in a thread, use the disk.
_PRAGMAS: dict[str, int | str] = {
    "cache_size": -65_536,
    "mmap_size": 0,
    "cache_spill": "OFF",
    "temp_store": "MEMORY",
    "wal_autocheckpoint": 0,
}
Row = Sequence[Any]


class Database:
    def __init__(self, path: Path, schema: str, version: int) -> None:
        """A file that is damaged, or of another version, is replaced by a new one."""
        self._path = path
        self._collected: dict[object, tuple[str, Row]] = {}
        self._executed: list[tuple[str, Sequence[Row]]] = []
        self._executed_rows = 0
        try:
            self._db = _open(path, schema, version)
        except sqlite3.DatabaseError:
            remove(path)
            self._db = _open(path, schema, version)

    def write(self, sql: str, *values: Any, key: object = None) -> None:
        """Collect a statement. One with a key replaces an earlier one that is not executed yet."""
        self._collected[key or object()] = (sql, values)
        if len(self._collected) > _AT_ONCE:
            self._execute()

    def write_many(self, sql: str, rows: Sequence[Row]) -> None:
        """Execute one statement for many rows."""
        if rows:
            self._execute()
            self._carry_out([(sql, rows)])

    def query(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if self._collected:
            self._execute()
        return self._db.execute(sql, values)

    def _execute(self) -> None:
        collected = self._collected.values()
        self._carry_out(
            [(sql, [row for _, row in group]) for sql, group in groupby(collected, key=lambda write: write[0])]
        )
        self._collected.clear()

    def _carry_out(self, writes: list[tuple[str, Sequence[Row]]]) -> None:
        self._db.execute("SAVEPOINT writes")
        try:
            for sql, rows in writes:
                self._db.executemany(sql, rows)
        except BaseException:
            self._db.execute("ROLLBACK TO writes")
            raise
        self._db.execute("RELEASE writes")
        self._executed += writes
        self._executed_rows += sum(len(rows) for _, rows in writes)

    @property
    def uncommitted(self) -> int:
        """The number of rows that are not committed."""
        return self._executed_rows + len(self._collected)

    def commit(self) -> bool:
        """Commit; False when that failed. The writes are kept, and queries see them."""
        try:
            if self._collected:
                self._execute()
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            _log.warning("%s could not be saved: %s", self._path, error)
            if not self._db.in_transaction:
                self._db.execute("BEGIN")
                for sql, rows in self._executed:
                    self._db.executemany(sql, rows)
            return False
        self._db.execute("BEGIN")
        self._executed.clear()
        self._executed_rows = 0
        return True

    def write_back(self) -> None:
        """Move commits from SQLite's log into its file and sync both. For another thread."""
        with closing(connect(self._path, writable=True)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def wipe(self, traces: Sequence[bytes]) -> bool:
        """Leave no deleted row in the file or in SQLite's log; False when that failed and is to be tried again.

        `traces` occur in the deleted rows and nowhere else. SQLite overwrites deleted rows, but a page may still hold
        a copy of a row that was moved to another page earlier: then the file is rewritten.
        """
        if not self.commit():
            return False
        self._db.execute("COMMIT")
        try:
            done = self._truncate_log()
            if done and _holds_any(self._path, traces):
                self._db.execute("VACUUM")
                done = self._truncate_log()
            return done
        except sqlite3.Error as error:
            _log.warning("%s may still hold parts of deleted sessions: %s", self._path, error)
            return False
        finally:
            self._db.execute("BEGIN")

    def _truncate_log(self) -> bool:
        busy: int = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        return not busy

    def close(self) -> None:
        self.commit()
        self._db.close()


def _open(path: Path, schema: str, version: int) -> sqlite3.Connection:
    connection = connect(path, writable=True, pragmas=_PRAGMAS)
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found not in (0, version):
            raise sqlite3.DatabaseError("made by another version")
        if not found:
            connection.executescript(f"{schema} PRAGMA user_version={version};")
        connection.execute("BEGIN")
    except BaseException:
        connection.close()
        raise
    return connection


def _holds_any(path: Path, traces: Sequence[bytes]) -> bool:
    if not traces:
        return False
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        return any(data.find(trace) >= 0 for trace in traces)
