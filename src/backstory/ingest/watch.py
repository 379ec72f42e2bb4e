"""Keeping the archive live: changes on disk are hints, what is read follows from the stored offsets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .pipeline import Ingest
from .progress import SyncReport
from .walk import database_stamp

# Changes are gathered until it has been quiet for a step, but not for longer than the debounce time.
_STEP_MS = 50
_DEBOUNCE_MS = 300
# Not every change is announced (network folders, overflowing queues): look by oneself too.
_RESCAN_SECONDS = 60.0
# The interval of syncs where the system reports no changes, or where there is nothing to watch yet.
_POLL_SECONDS = 2.0
# The first tick shows that the watcher runs; files that were written shortly before it are found then.
_TICK_MS = 200
_ROOTS_SECONDS = 1.0


def watch(
    ingest: Ingest,
    stop: threading.Event,
    on_change: Callable[[SyncReport], None] | None = None,
    *,
    news: Iterable[Path] = (),
    on_first: Callable[[], None] = lambda: None,
) -> None:
    """Read everything new, then changes as they happen, until stopped. `on_first` is called when everything was read
    that was new at the start. `news` are read first, without a look at all the rest."""

    def announce(report: SyncReport) -> None:
        if on_change and report.files:
            on_change(report)

    if news:
        announce(ingest.sync_paths(news))
        on_first()
    while not stop.is_set():
        roots = ingest.roots()
        announce(ingest.sync())
        on_first()
        started = look = time.monotonic()
        listening = False
        for paths in _changes(roots, stop):
            if paths is None or not listening:
                # Changes are not reported, or may have happened before the watcher started.
                announce(ingest.sync())
            elif paths:
                announce(ingest.sync_paths(paths))
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
    """The paths that changed, an empty set now and then; None where changes are not reported.

    Folders are watched. Databases are looked at: the folders around them hold much else.
    """
    folders = [root for root in roots if root.is_dir()]
    stores = _Stores(root for root in roots if root not in folders)
    if folders:
        from watchfiles import watch as follow

        try:
            for changed in follow(
                *folders,
                watch_filter=None,
                step=_STEP_MS,
                debounce=_DEBOUNCE_MS,
                rust_timeout=_TICK_MS,
                yield_on_timeout=True,
                stop_event=stop,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                yield {Path(path) for _, path in changed} | stores.changed()
        except (OSError, RuntimeError):
            # A folder went away, or one of the system's limits is reached: of watched folders, or (the RuntimeError)
            # of watching programs, 128 for each user on Linux.
            pass
    elif stores:
        while not stop.wait(_TICK_MS / 1000):
            yield stores.changed()
    while not stop.wait(_POLL_SECONDS):
        yield None


class _Stores:
    """Notices changes of databases by a look at each and at its log."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stamps = {path: _stamp(path) for path in paths}

    def __bool__(self) -> bool:
        return bool(self._stamps)

    def changed(self) -> set[Path]:
        now = {path: _stamp(path) for path in self._stamps}
        changed = {path for path, stamp in now.items() if stamp != self._stamps[path]}
        self._stamps = now
        return changed


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        return database_stamp(path)
    except OSError:
        return None
