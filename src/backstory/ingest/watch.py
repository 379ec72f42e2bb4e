"""Keeping the archive live: changes on disk are hints, what is read follows from the stored offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .pipeline import Ingest, SyncReport

__all__ = ["watch"]

# Changes are gathered until it has been quiet for a step, but not for longer than the debounce time.
_STEP_MS = 50
_DEBOUNCE_MS = 300
# Not every change is announced (network folders, overflowing queues): look by oneself too.
_RESCAN_SECONDS = 60.0
# How often to look where the system cannot tell of changes, or where there is nothing to watch yet.
_POLL_SECONDS = 2.0
# The first tick shows that somebody listens; what was written shortly before it is found then.
_TICK_MS = 200
_ROOTS_SECONDS = 1.0


def watch(ingest: Ingest, stop: threading.Event, on_change: Callable[[SyncReport], None] | None = None) -> None:
    """Read everything new, then changes as they happen, until stopped."""

    def tell(report: SyncReport) -> None:
        if on_change and report.files:
            on_change(report)

    while not stop.is_set():
        roots = ingest.roots()
        tell(ingest.sync())
        started = look = time.monotonic()
        listening = False
        for paths in _changes(roots, stop):
            if paths is None or not listening:
                # Either nobody tells what changed, or it may have changed before anybody listened.
                tell(ingest.sync())
            elif paths:
                tell(ingest.sync_paths(paths))
            else:
                ingest.forget_requested()
            listening = True
            now = time.monotonic()
            if now > look + _ROOTS_SECONDS:
                look = now
                # Another agent may have begun to write meanwhile, in a folder that was not there.
                if now > started + _RESCAN_SECONDS or ingest.roots() != roots:
                    break


def _changes(roots: list[Path], stop: threading.Event) -> Iterator[set[Path] | None]:
    """The paths that changed, an empty set now and then; None when the system cannot tell."""
    if roots:
        from watchfiles import watch as follow

        try:
            for changed in follow(
                *roots,
                watch_filter=None,
                step=_STEP_MS,
                debounce=_DEBOUNCE_MS,
                rust_timeout=_TICK_MS,
                yield_on_timeout=True,
                stop_event=stop,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                yield {Path(path) for _, path in changed}
        except (OSError, RuntimeError):
            # A folder went away, or one of the system's limits is reached: of watched folders, or (the RuntimeError)
            # of watching programs, 128 for each user on Linux.
            pass
    while not stop.wait(_POLL_SECONDS):
        yield None
