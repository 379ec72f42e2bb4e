"""Keeping the archive live: changes on disk are hints, what is read follows from the stored offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from .pipeline import Ingest, SyncReport

__all__ = ["watch"]

# Changes are gathered until it has been quiet for a step, but not for longer than the debounce time.
_STEP_MS = 50
_DEBOUNCE_MS = 300
# Not every change is announced (network folders, overflowing queues, agents installed later): look by oneself too.
_RESCAN_SECONDS = 60.0
_IDLE_SECONDS = 2.0


def watch(ingest: Ingest, stop: threading.Event, on_change: Callable[[SyncReport], None] | None = None) -> None:
    """Read changes as they happen, until stopped. Everything must have been synced before."""
    while not stop.is_set():
        roots = ingest.roots()
        if roots:
            _watch_roots(ingest, roots, stop, on_change)
        else:
            stop.wait(_IDLE_SECONDS)
        if not stop.is_set():
            _report(ingest.sync(), on_change)


def _watch_roots(
    ingest: Ingest, roots: list[Path], stop: threading.Event, on_change: Callable[[SyncReport], None] | None
) -> None:
    """Follow these folders until it is time to look around again."""
    from watchfiles import watch as follow

    until = time.monotonic() + _RESCAN_SECONDS
    changes = follow(
        *roots,
        step=_STEP_MS,
        debounce=_DEBOUNCE_MS,
        stop_event=stop,
        rust_timeout=1_000,
        yield_on_timeout=True,
        ignore_permission_denied=True,
        watch_filter=None,
        raise_interrupt=False,
    )
    # A file may have changed between the last look and the moment the folders are followed.
    _report(ingest.sync(), on_change)
    for changed in changes:
        if changed:
            _report(ingest.sync_paths({Path(path) for _, path in changed}), on_change)
        if time.monotonic() > until:
            return


def _report(report: SyncReport, on_change: Callable[[SyncReport], None] | None) -> None:
    if on_change and report.files:
        on_change(report)
