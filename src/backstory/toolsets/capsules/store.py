"""The capsule store: `capsules.db` in the home folder, for any number of processes and threads at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from .capsule import SECOND, Capsule
from .database import Database
from .reader import Reader
from .writer import Writer

__all__ = ["Change", "Store"]

log = logging.getLogger("backstory.capsules")

_BATCH = 500


class Change(Struct, frozen=True):
    """The latest change of one capsule. `capsule` is None when it was deleted or purged."""

    seq: int
    id: str
    capsule: Capsule | None


def _clock_us() -> int:
    return time.time_ns() // 1000


class Store:
    """`listener` is called after every commit that changed something, `clock` gives microseconds since the epoch."""

    def __init__(
        self, home: Path, listener: Callable[[], None] | None = None, clock: Callable[[], int] = _clock_us
    ) -> None:
        self._home = home
        self._database = Database(home / "capsules.db")
        self._listener = listener
        self._clock = clock

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        with self._database.reading() as connection:
            yield Reader(connection)

    @contextmanager
    def writing(self) -> Iterator[Writer]:
        with self._database.writing() as connection:
            # The clock is read when the turn has come, so that a later commit has a later time.
            writer = Writer(connection, self._clock())
            yield writer
        if writer.changed:
            self._tell()

    @contextmanager
    def aside(self) -> Iterator[Reader]:
        """A reader of its own, for work so long that other threads should not wait for it."""
        database = Database(self._database.path)
        try:
            with database.reading() as connection:
                yield Reader(connection)
        finally:
            database.close()

    def purge(self, workspace_norm: str | None, older_than_us: int | None) -> tuple[int, bool]:
        """Remove deleted capsules for good. How many, and whether their text is gone from the store's files."""
        with self.writing() as writer:
            before = None if older_than_us is None else writer.now_us - older_than_us
            count = writer.purge(workspace_norm, before)
        return count, self._database.scrub()

    def changes_since(self, seq: int) -> Iterator[Change]:
        """What changed after `seq`, in order, each capsule once. Ask again with the last `seq` that was seen."""
        while True:
            with self.reading() as reader:
                batch = [Change(*change) for change in reader.changes(seq, _BATCH)]
            yield from batch
            if len(batch) < _BATCH:
                return
            seq = batch[-1].seq

    def await_after(self, second: int) -> None:
        """Wait for the end of a second, if it is the current one."""
        left_us = (second + 1) * SECOND - self._clock()
        if 0 < left_us <= SECOND:
            time.sleep(left_us / SECOND)

    def close(self) -> None:
        self._database.close()

    def _tell(self) -> None:
        if self._listener is not None:
            try:
                self._listener()
            except Exception:
                # What is committed stays committed, and the caller is told so.
                log.warning("the listener for capsule changes failed", exc_info=True)
