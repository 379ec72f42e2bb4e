"""Reading the record: a connection for each thread, and what every question to it needs."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ..base import DeadlineExceeded
from .bodies import Bodies
from .database import Reader, connect, stored_dictionary

__all__ = ["Connections", "select_in"]

_CHUNK = 2_000


class Connections:
    """Any number of threads may ask."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._local = threading.local()
        self._readers: WeakSet[Reader] = WeakSet()
        self._bodies = Bodies(lambda: stored_dictionary(self._db))

    def close(self) -> None:
        for reader in list(self._readers):
            reader.close()

    @property
    def _db(self) -> sqlite3.Connection:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader(connect(self._path, writable=False))
            self._readers.add(reader)
        return reader.connection

    @contextmanager
    def _until(self, deadline: float | None) -> Iterator[sqlite3.Connection]:
        """The connection, with statements interrupted once the deadline has passed."""
        db = self._db
        if deadline is None:
            yield db
            return
        db.set_progress_handler(lambda: time.monotonic() > deadline, 20_000)
        try:
            yield db
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                raise DeadlineExceeded("the request took too long") from None
            raise
        finally:
            db.set_progress_handler(None, 0)

    @staticmethod
    def _in(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Any]:
        return select_in(db, sql, values)


def select_in(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Any]:
    """Rows for many keys, asked in chunks that SQLite accepts; `{}` stands for the marks."""
    rows: list[Any] = []
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        rows += db.execute(sql.format(", ".join("?" * len(chunk))), chunk).fetchall()
    return rows
