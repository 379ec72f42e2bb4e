"""Means of a writer for the time in which much is written, while a second process reads the record all the time."""

from __future__ import annotations

import gc
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_LOG_BYTES = 64 << 20
_BUSY_MS = 1_000
_BITS = 1 << 26
_MASK = _BITS - 1
_GARBAGE = (100_000, 20, 100)


class BulkLog:
    """The write-ahead log of the record. It is larger than usual: pages that change again and again go into the
    database less often.

    A log begins anew only when no process reads it. The usual checkpoint does not wait for that: beside the second
    process the log would grow, with a checkpoint after each commit, and every page be looked for in all of it.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._db = connection
        self._path = f"{path}-wal"
        self._limit = _LOG_BYTES
        connection.execute("PRAGMA wal_autocheckpoint=0")

    def bound(self) -> None:
        """To be called after each commit: move the log into the database if it is too large."""
        size = os.stat(self._path).st_size  # noqa: PTH116
        if size < self._limit:
            return
        (patience,) = self._db.execute("PRAGMA busy_timeout").fetchone()
        self._db.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        try:
            (is_busy, *_) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError:  # what is wrong with the disk shows with the next commit
            is_busy = True
        finally:
            self._db.execute(f"PRAGMA busy_timeout={patience}")
        # A process that reads for longer is not waited for again after each commit.
        self._limit = _LOG_BYTES + (size if is_busy else 0)


class Presence:
    """The uids of all events of a record, as one bit each in 8 MB: at a million events, one new uid in seventy is taken
    for a known one. The record is asked for those."""

    def __init__(self) -> None:
        self._bits = bytearray(_BITS >> 3)

    def add(self, uids: Iterable[bytes]) -> None:
        bits = self._bits
        for uid in uids:
            place = int.from_bytes(uid[:4], "little") & _MASK  # uids are digests
            bits[place >> 3] |= 1 << (place & 7)

    def among(self, uids: Iterable[bytes]) -> list[bytes]:
        """Those that may be present; the others are not."""
        bits, found = self._bits, []
        for uid in uids:
            place = int.from_bytes(uid[:4], "little") & _MASK
            if bits[place >> 3] >> (place & 7) & 1:
                found.append(uid)
        return found


@contextmanager
def rare_collections() -> Iterator[None]:
    """Collect garbage less often. Hardly any is in a cycle, and what waits for a commit is looked through again and
    again: with the usual thresholds that takes a tenth of the time."""
    thresholds = gc.get_threshold()
    gc.set_threshold(*_GARBAGE)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
