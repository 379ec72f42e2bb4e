"""Finishing deletions: a deleted session leaves the log, the free pages of the index and the archive.

The session's file and its rows are gone when the deletion is acknowledged. The rest happens in the background. The
index notes what is left to do, so what fails is tried again, also after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress

from .fs import FsStore

__all__ = ["Deletions", "Forget"]

Forget = Callable[[str], None]
"""Deletes a session from the archive. Called in a thread, and again later if it raises."""
_log = logging.getLogger("backstory.live")
_RETRY_SECONDS = 30.0
_CLOSE_SECONDS = 5.0


class Deletions:
    def __init__(self, store: FsStore, forget: Forget | None) -> None:
        self._store = store
        self._forget = forget
        self._deadline = math.inf
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """A session was deleted."""
        self._wake.set()

    async def close(self) -> None:
        """Finish what can be finished within a few seconds."""
        if self._task is not None:
            self._deadline = asyncio.get_running_loop().time() + _CLOSE_SECONDS
            self._wake.set()
            await self._task

    def unfinished(self) -> Mapping[str, int]:
        """Sessions whose changes the log still holds, with the numbers of their deletions."""
        return self._store.index.deleted("log")

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            closing = self._deadline < math.inf
            done = await self._finish()
            if closing:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), None if done else _RETRY_SECONDS)

    async def _finish(self) -> bool:
        """Do what is noted; False when some of it has to be tried again."""
        try:
            blanked = await self._blank()
            return await self._forget_archived() and blanked
        except Exception as error:  # of the archive, whatever it is: the session itself is deleted
            _log.warning("a deleted session is still in the archive: %s", error)
            return False

    async def _blank(self) -> bool:
        deletions = self.unfinished()
        if not deletions:
            return True
        store = self._store
        await store.synced()  # what is blanked must not outlive its deletion in a power failure
        await asyncio.to_thread(store.journal.blank, deletions)
        await asyncio.to_thread(store.index.database.write_back)
        if not store.index.wipe(deletions):
            return False
        for session_id, number in deletions.items():
            store.index.set_deleted("log", session_id, number)
        return True

    async def _forget_archived(self) -> bool:
        if self._forget is None:
            return True
        for session_id, number in self._store.index.deleted("archive").items():
            if asyncio.get_running_loop().time() > self._deadline:
                return False
            await asyncio.to_thread(self._forget, session_id)
            self._store.index.set_deleted("archive", session_id, number)
        return True
