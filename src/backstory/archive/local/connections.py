"""Reading the record: a connection for each thread, and what every question to it needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...sqlite import Readers, TimeoutExceeded, connect, select_in, time_limit
from ..errors import DeadlineExceeded
from .bodies import Bodies
from .database import stored_dictionary

__all__ = ["Connections"]


class Connections:
    """Any number of threads may ask."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._readers = Readers(lambda: connect(path, writable=False))
        self._bodies = Bodies(lambda: stored_dictionary(self._db))

    def close(self) -> None:
        self._readers.close()

    @property
    def _db(self) -> sqlite3.Connection:
        return self._readers.connection

    @contextmanager
    def _until(self, deadline: float | None) -> Iterator[sqlite3.Connection]:
        """The connection, with statements interrupted once the deadline has passed."""
        try:
            with time_limit(self._db, deadline):
                yield self._db
        except TimeoutExceeded:
            raise DeadlineExceeded("the request took too long") from None

    @staticmethod
    def _in(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Any]:
        return select_in(db, sql, values)
