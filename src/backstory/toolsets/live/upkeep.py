"""Looking after a store while it runs: the index is saved, files are synced, what is no longer needed is dropped."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable

from .files import Files
from .index import Index
from .journal import Journal
from .settings import FsSettings

__all__ = ["Upkeep"]

_log = logging.getLogger("backstory.live")
_EVERY_SECONDS = 0.5
_CHECKPOINT_SECONDS = 30.0
_CHECKPOINT_BYTES = 4 << 20
_GARBAGE_AT_ONCE = 500


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
        """Until cancelled. `rotate` is called when the journal may go on in another segment."""
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
        """A checkpoint: from here on recovery needs nothing of the journal before it."""
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
