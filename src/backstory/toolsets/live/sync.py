"""Group commit: however many changes wait, one sync makes all of them durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from .journal import Change

__all__ = ["GroupSync"]


class GroupSync:
    """Syncs in a thread, one after the other; each covers everything added before it began."""

    def __init__(
        self, sync: Callable[[], None], pool: Executor, done: Callable[[list[Change], OSError | None], None]
    ) -> None:
        self._sync = sync
        self._pool = pool
        self._done = done
        self._next: asyncio.Future[None] | None = None
        self._running: asyncio.Future[None] | None = None
        self._changes: list[Change] = []
        self._task: asyncio.Task[None] | None = None

    def request(self, change: Change | None = None) -> None:
        """Ask for a sync, and for a change to be handed on after it."""
        if change is not None:
            self._changes.append(change)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def wait(self) -> None:
        """Wait until everything requested so far is synced, or failed to be."""
        latest = self._next or self._running
        if latest is not None:
            await asyncio.shield(latest)

    async def _run(self) -> None:
        while self._next is not None:
            self._running, self._next = self._next, None
            changes, self._changes = self._changes, []
            failure = None
            try:
                await asyncio.get_running_loop().run_in_executor(self._pool, self._sync)
            except OSError as error:
                failure = error
            self._done(changes, failure)
            self._running.set_result(None)
        self._running = self._task = None
