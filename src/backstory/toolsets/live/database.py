"""A SQLite file that follows something else and may lag behind it, but never lies to who asks through it.

Writes are collected and executed before the next question, in a transaction that is committed now and then. A commit
that fails (a full disk) costs nothing: what it would have written is kept and executed again.
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

_log = logging.getLogger("backstory.live")
_AT_ONCE = 100
Row = Sequence[Any]


class Database:
    def __init__(self, path: Path, schema: str, version: int) -> None:
        """A file that is damaged, or of another version, is made anew."""
        self._path = path
        self._collected: dict[object, tuple[str, Row]] = {}
        self._executed: list[tuple[str, Sequence[Row]]] = []
        self._executed_rows = 0
        try:
            self._open(schema, version)
        except sqlite3.DatabaseError:
            self._db.close()
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            self._open(schema, version)

    def _open(self, schema: str, version: int) -> None:
        self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        self._db.executescript(
            "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA cache_size=-65536; PRAGMA secure_delete=ON; "
            # Nothing but a commit, and `write_back` in a thread, may need the disk.
            "PRAGMA cache_spill=OFF; PRAGMA temp_store=MEMORY; PRAGMA wal_autocheckpoint=0;"
        )
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found != version:
            if found:
                raise sqlite3.DatabaseError("made by another version")
            self._db.executescript(f"{schema} PRAGMA user_version={version};")
        self._db.execute("BEGIN")

    def write(self, sql: str, *values: Any, key: object = None) -> None:
        """Collect a statement; one with a key takes the place of an earlier one that was not executed yet."""
        self._collected[key or object()] = (sql, values)
        if len(self._collected) > _AT_ONCE:
            self._execute()

    def write_many(self, sql: str, rows: Sequence[Row]) -> None:
        """One statement for many rows, at once."""
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
        """How many rows."""
        return self._executed_rows + len(self._collected)

    def commit(self) -> bool:
        """Make the writes permanent; False when that failed: they are kept, and seen by everyone who asks."""
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
        """Move what was committed from SQLite's log into its file, syncing both. For another thread."""
        with closing(sqlite3.connect(self._path)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def wipe(self, traces: Sequence[bytes]) -> bool:
        """Leave no deleted row in the file or in SQLite's log; False when that failed and is to be tried again.

        `traces` occur in the deleted rows and nowhere else. SQLite overwrites what it deletes, but a page that it
        has filled anew may still hold a row that was moved to another one: then the file is rewritten.
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


def _holds_any(path: Path, traces: Sequence[bytes]) -> bool:
    if not traces:
        return False
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        return any(data.find(trace) >= 0 for trace in traces)
