"""Background work of a store: group sync, checkpoints, and finishing deletions.

When a deletion is acknowledged, the session's file and its rows are gone. Its changes in the log, its remains in free
pages of the index and its copy in the archive follow in the background. The index notes what is left to do, so a step
that fails is tried again, also after a restart.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue

from .files import Files
from .index import Index
from .journal import Change, Journal
from .types import FsSettings

_log = logging.getLogger("backstory.live")
_EVERY_SECONDS = 0.5
_CHECKPOINT_SECONDS = 30.0
_CHECKPOINT_BYTES = 4 << 20
_GARBAGE_AT_ONCE = 500
Forget = Callable[[str], None]
"""Deletes a session from the archive. Called in a thread, and again later if it raises."""
# One pass over the log serves all sessions that are deleted within this time.
_GATHER_SECONDS = 0.25
_RETRY_SECONDS = 30.0
_CLOSE_SECONDS = 5.0


class Upkeep:
    def __init__(self, files: Files, journal: Journal, index: Index, settings: Callable[[], FsSettings]) -> None:
        self.dirty: set[str] = set()
        """Sessions whose files were written since they were last synced."""
        self._files = files
        self._journal = journal
        self._index = index
        self._settings = settings
        self._checkpoint = journal.position
        self._checkpoint_time = time.monotonic()

    async def run(self, rotate: Callable[[], None]) -> None:
        """Run until cancelled. `rotate` lets the journal continue in another segment."""
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            try:
                await self._tidy(rotate)
            except (OSError, sqlite3.Error) as error:
                _log.warning("%s: %s", self._files.folder, error)

    async def _tidy(self, rotate: Callable[[], None]) -> None:
        while self._index.collect(_GARBAGE_AT_ONCE):
            await asyncio.sleep(0)
        if self._settings().fsync == "off":
            rotate()
        self.save_index()
        self._journal.keep_reserve()
        here, there = self._journal.position, self._checkpoint
        far = here.segment != there.segment or here.offset - there.offset > _CHECKPOINT_BYTES
        if far or (here != there and time.monotonic() - self._checkpoint_time > _CHECKPOINT_SECONDS):
            await self.save()

    async def save(self) -> None:
        """Set a checkpoint: recovery starts from it and needs no earlier part of the journal."""
        position, dirty, self.dirty = self._journal.position, self.dirty, set()
        if self._settings().fsync != "off":
            try:
                await asyncio.to_thread(self._files.sync, dirty)
                await asyncio.to_thread(self._index.database.write_back)
            except (OSError, sqlite3.Error):
                self.dirty |= dirty
                raise
        self._index.set_checkpoint(position)
        if self.save_index():
            self._checkpoint, self._checkpoint_time = position, time.monotonic()
            self._journal.trim(self._settings().replay_mb << 20, position)

    def save_index(self) -> bool:
        """Commit the index; False when that failed."""
        return not self._index.database.uncommitted or self._index.commit()


class GroupSync:
    """Group commit: one sync makes all waiting changes durable.

    Syncs run in a thread of their own, one after the other, and each covers everything added before it began. The
    thread gets its work through a queue: an executor would take as long as a fast disk.
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
        """Request a sync; a change is passed on once it is done."""
        if change is not None:
            self._changes.append(change)
        if self._next is None:
            self._next = self._loop.create_future()
            if self._running is None:
                # Not at once: changes of the same round of the loop are covered, too.
                self._loop.call_soon(self._begin)

    async def wait(self) -> None:
        """Wait until everything requested so far is synced, or its sync has failed."""
        latest = self._next or self._running
        if latest is not None:
            await asyncio.shield(latest)

    def close(self) -> None:
        """End the thread, when no sync is running."""
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
            except Exception as error:  # any error has to reach the callers that wait
                failure = error if isinstance(error, OSError) else OSError(repr(error))
            with suppress(RuntimeError):  # the loop has ended without closing this: no caller waits
                self._loop.call_soon_threadsafe(self._finish, changes, failure)

    def _finish(self, changes: list[Change], failure: OSError | None) -> None:
        waiting, self._running = self._running, None
        try:
            self._done(changes, failure)
        finally:
            if waiting is not None:
                waiting.set_result(None)
            self._begin()


class Deletions:
    """Finishes deletions, from its creation until it is closed."""

    def __init__(
        self, journal: Journal, index: Index, synced: Callable[[], Awaitable[None]], forget: Forget | None
    ) -> None:
        """`synced` waits until everything in the journal survives a power failure."""
        self._journal = journal
        self._index = index
        self._synced = synced
        self._forget = forget
        self._deadline = math.inf
        self._wake = asyncio.Event()
        self._closing = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """A session was deleted."""
        self._wake.set()

    async def close(self) -> None:
        """Finish what can be finished within a few seconds."""
        self._deadline = asyncio.get_running_loop().time() + _CLOSE_SECONDS
        self._closing.set()
        self._wake.set()
        await self._task

    def unfinished(self) -> Mapping[str, int]:
        """Sessions whose changes the log still holds, with the numbers of their deletions."""
        return self._index.deleted("log")

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            closing = self._closing.is_set()
            done = await self._finish()
            if closing:
                return
            await _wait(self._wake, None if done else _RETRY_SECONDS)
            await _wait(self._closing, _GATHER_SECONDS)

    async def _finish(self) -> bool:
        """Do what the index notes; False when some of it has to be tried again."""
        try:
            blanked = await self._blank()
            return await self._forget_archived() and blanked
        except Exception as error:  # any error of the disk or the archive: the session itself is deleted
            _log.warning("a deletion of a live session is not finished, and tried again later: %s", error)
            return False

    async def _blank(self) -> bool:
        deletions = self.unfinished()
        if not deletions:
            return True
        await self._synced()  # blank changes without their deletion would be a loss after a power failure
        await asyncio.to_thread(self._journal.blank, deletions)
        await asyncio.to_thread(self._index.database.write_back)
        if not self._index.wipe(deletions):
            return False
        for session_id, number in deletions.items():
            self._index.set_deleted("log", session_id, number)
        return True

    async def _forget_archived(self) -> bool:
        if self._forget is None:
            return True
        for session_id, number in self._index.deleted("archive").items():
            if asyncio.get_running_loop().time() > self._deadline:
                return False
            await asyncio.to_thread(self._forget, session_id)
            self._index.set_deleted("archive", session_id, number)
        return True


async def _wait(event: asyncio.Event, seconds: float | None) -> None:
    """Wait for an event, with a time limit."""
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
