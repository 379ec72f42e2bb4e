"""What the functions run on: the store on this machine, or (see `bridge`) another instance."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec

from .errors import LiveError
from .events import Event, events_of
from .fs import FsStore
from .journal import Change
from .limits import page_of, size_of
from .requests import STORE_PREFIX
from .resync import Json, Metas
from .service import Service
from .settings import FsSettings, LiveSettings
from .store_protocol import StoreProtocol

__all__ = ["Adapter", "Forget", "FsAdapter", "Publish"]

Publish = Callable[[int, Callable[[], list[Event]]], None]
"""Tells subscribers: the number of the newest event, and how to get the new ones."""
Forget = Callable[[str], None]
"""Deletes what there is elsewhere of a session that was deleted. Called in a thread; again, if it raises."""
_log = logging.getLogger("backstory.live")
_RETRY_SECONDS = 30.0
_END_SECONDS = 5.0


class Adapter(Protocol):
    name: str
    head: int
    """The number of the newest event that was told."""

    @property
    def oldest(self) -> int:
        """Everything later than this can be replayed."""

    async def start(self, wait_seconds: float = 0.0) -> None:
        """Begin; waits for so long for what another process has."""

    def wanted(self) -> bool:
        """Whether another process waits for what this one has."""

    async def close(self) -> None: ...

    async def call(self, function_id: str, request: Any) -> Any:
        """A public or store function with its checked request."""

    def configure(self, settings: LiveSettings) -> bool:
        """Take new settings while running; False when they need another adapter."""

    async def read_events(self, after: int, limit: int) -> list[Event]:
        """Up to so many events later than a number, as fit a page; `invalid_cursor` when they are not kept any more."""

    async def metas(self) -> Metas:
        """All sessions, by id."""

    async def entries(self, session_id: str) -> list[Json]:
        """All entries of a session, parents first."""

    def status(self) -> dict[str, Any]: ...


class FsAdapter:
    name = "fs"

    def __init__(self, settings: LiveSettings, publish: Publish, url: str = "", forget: Forget | None = None) -> None:
        assert isinstance(settings.adapter, FsSettings)
        self._tell = publish
        folder = Path(settings.adapter.data_dir or "")
        self._store = FsStore(folder, settings.adapter, self._publish, url)
        self._service = Service(self._store, settings)
        self._protocol = StoreProtocol(self._store, self._read, lambda: self.head)
        self.head = 0
        self._forget = forget
        self._forget_until = math.inf
        self._deleted = asyncio.Event()
        self._forgetting: asyncio.Task[None] | None = None

    @property
    def oldest(self) -> int:
        return self._store.journal.oldest

    async def start(self, wait_seconds: float = 0.0) -> None:
        await asyncio.to_thread(self._store.open, wait_seconds)
        self.head = self._store.journal.head
        self._store.start()
        if self._forget is not None:
            self._forgetting = asyncio.create_task(self._keep_forgetting(self._forget))

    async def close(self) -> None:
        if self._forgetting is not None:
            self._forget_until = asyncio.get_running_loop().time() + _END_SECONDS
            self._deleted.set()
            await self._forgetting
        await self._store.close()

    async def _keep_forgetting(self, forget: Forget) -> None:
        """Until it is closed. What cannot be forgotten now is tried again, also after a restart."""
        while True:
            self._deleted.clear()
            closing = self._forget_until < math.inf
            done = await self._forget_deleted(forget)
            if closing:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._deleted.wait(), None if done else _RETRY_SECONDS)

    async def _forget_deleted(self, forget: Forget) -> bool:
        try:
            if deleted := self._store.index.deleted():
                await asyncio.to_thread(self._store.journal.blank, deleted)
            for session_id, number in deleted.items():
                if asyncio.get_running_loop().time() > self._forget_until:
                    return False
                await asyncio.to_thread(forget, session_id)
                self._store.index.set_told(session_id, number)
        except Exception as error:  # whatever is wrong with the archive: the session itself is gone
            _log.warning("a deleted session is still in the archive: %s", error)
            return False
        return True

    def wanted(self) -> bool:
        return self._store.lock.wanted()

    async def call(self, function_id: str, request: Any) -> Any:
        in_store = function_id.startswith(STORE_PREFIX)
        name = function_id.removeprefix(STORE_PREFIX if in_store else "session::").replace("-", "_")
        handler: Callable[[Any], Awaitable[Any]] = getattr(self._protocol if in_store else self._service, name)
        return await handler(request)

    def configure(self, settings: LiveSettings) -> bool:
        if not isinstance(settings.adapter, FsSettings):
            return False
        if Path(settings.adapter.data_dir or "").resolve() != self._store.folder.resolve():
            return False
        self._store.settings = settings.adapter
        self._service.settings = settings
        return True

    async def read_events(self, after: int, limit: int) -> list[Event]:
        return self._read(after, limit)

    def _read(self, after: int, limit: int) -> list[Event]:
        journal = self._store.journal
        if after < journal.oldest:
            raise LiveError("invalid_cursor", f"events up to {journal.oldest} are not kept any more; read the sessions")
        return list(islice(page_of((event, size_of(event)) for event in self._later(after)), limit))

    def _later(self, after: int) -> Iterator[Event]:
        for change in self._store.journal.after(after):
            yield from (event for event in events_of(change) if after < event.seq <= self.head)
            if change.head >= self.head:
                return

    def _publish(self, change: Change) -> None:
        self.head = change.head
        if change.cause == "deleted":
            self._deleted.set()
        if change.events:
            self._tell(change.head, lambda: events_of(change))

    async def metas(self) -> Metas:
        return {meta.session_id: msgspec.to_builtins(meta) for meta in self._store.index.metas()}

    async def entries(self, session_id: str) -> list[Json]:
        session = self._store.session(session_id)
        return self._store.read(session, self._store.index.all_places(session)) if session else []

    def status(self) -> dict[str, Any]:
        found = {"data_dir": str(self._store.folder), "sessions": self._store.index.count()}
        return found | {"events": self.head, "problems": self._store.problems}
