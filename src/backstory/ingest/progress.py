"""The progress of a sync: its counts, its deadline, and the times at which the index is committed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from msgspec import Struct

from ..archive.base import SyncState
from .scan import Changed

# While much is being read the index is committed now and then: at first soon, so that search is useful at once, then
# less and less often, because each commit waits for the index.
_FIRST_FLUSH_SECONDS = 2.0
_FLUSH_SECONDS = 30.0


class SyncProgress(Struct, kw_only=True):
    files_total: int
    bytes_total: int
    files_done: int = 0
    bytes_done: int = 0
    events: int = 0
    current: str | None = None


class SyncReport(Struct, kw_only=True):
    files: int = 0
    """Files that were read."""
    events: int = 0
    sessions: int = 0
    bytes: int = 0
    seconds: float = 0.0
    errors: int = 0
    """Lines or files that could not be understood."""
    skipped: int = 0
    """Files left for the next time, or read in part, because the time was up."""


class Pass:
    """The counts of one pass, for the report and the progress bar."""

    def __init__(
        self,
        changes: list[Changed],
        progress: Callable[[SyncProgress], None] | None,
        deadline: float | None,
        state: SyncState | None,
    ) -> None:
        self.state = state
        """Written with every commit, so that other processes can show the progress."""
        self.started = time.monotonic()
        self._deadline = deadline
        self._flush_after = _FIRST_FLUSH_SECONDS
        self.next_flush = self.started + self._flush_after
        self.report = SyncReport()
        self._progress = progress
        self.bytes_total = sum(change.bytes_to_read for change in changes)
        self._now = SyncProgress(files_total=len(changes), bytes_total=self.bytes_total)
        self._sessions: set[str] = set()
        self._bytes_before = 0

    @property
    def is_over(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def flushed(self) -> None:
        self._flush_after = min(2 * self._flush_after, _FLUSH_SECONDS)
        self.next_flush = time.monotonic() + self._flush_after

    def extend(self, changes: list[Changed]) -> None:
        """More is to be read than was known at first."""
        self._now.files_total += len(changes)
        self._now.bytes_total += sum(change.bytes_to_read for change in changes)
        self.bytes_total = self._now.bytes_total

    def start(self, change: Changed) -> None:
        self._now.current = os.fspath(change.path)
        self._bytes_before = self._now.bytes_done
        self._report()

    def wrote(self, events: int, sessions: set[str], offset: int) -> None:
        self._sessions |= sessions
        self._now.events += events
        self._now.bytes_done = min(max(self._now.bytes_done, self._bytes_before + offset), self._now.bytes_total)
        self.report.events, self.report.sessions = self._now.events, len(self._sessions)
        self._report()

    def finish(self, change: Changed, errors: int) -> None:
        self._now.files_done += 1
        if self.state is not None:
            self.state.files_done = self._now.files_done
        self._now.bytes_done = self._bytes_before + change.bytes_to_read
        self.report.files += 1
        self.report.errors += errors
        self.report.bytes = self._now.bytes_done
        self._report()

    def _report(self) -> None:
        if self._progress:
            self._progress(self._now)
