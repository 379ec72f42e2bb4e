"""Group commit: however many changes wait, one sync makes all of them durable."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from .journal import Change

__all__ = ["GroupSync"]


class GroupSync:
    """Syncs in a thread of its own, one after the other; each covers everything added before it began.

    The thread is handed its work and hands it back directly: an executor would cost as much again as a fast disk.
    """

    def __init__(self, sync: Callable[[], None], done: Callable[[list[Change], OSError | None], None]) -> None:
        self._sync = sync
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Future[None] | None = None
        self._running: asyncio.Future[None] | None = None
        self._changes: list[Change] = []
        self._work: SimpleQueue[list[Change] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="live-sync", daemon=True)
        self._thread.start()

    def request(self, change: Change | None = None) -> None:
        """Ask for a sync, and for a change to be handed on after it."""
        if change is not None:
            self._changes.append(change)
        if self._next is None:
            self._next = self._loop.create_future()
            if self._running is None:
                # Not at once: what the loop does in the same round is covered too.
                self._loop.call_soon(self._begin)

    async def wait(self) -> None:
        """Wait until everything requested so far is synced, or failed to be."""
        latest = self._next or self._running
        if latest is not None:
            await asyncio.shield(latest)

    def close(self) -> None:
        """End the thread, once nothing is under way any more."""
        self._work.put(None)
        self._thread.join()

    def _begin(self) -> None:
        if self._next is not None and self._running is None:
            self._running, self._next = self._next, None
            changes, self._changes = self._changes, []
            self._work.put(changes)

    def _run(self) -> None:
        while (changes := self._work.get()) is not None:
            failure = None
            try:
                self._sync()
            except Exception as error:  # whatever it is, whoever waits is told
                failure = error if isinstance(error, OSError) else OSError(repr(error))
            with suppress(RuntimeError):  # the loop was ended without closing this: nobody waits any more
                self._loop.call_soon_threadsafe(self._finish, changes, failure)

    def _finish(self, changes: list[Change], failure: OSError | None) -> None:
        waiting, self._running = self._running, None
        try:
            self._done(changes, failure)
        finally:
            if waiting is not None:
                waiting.set_result(None)
            self._begin()
