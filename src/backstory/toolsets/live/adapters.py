"""What the functions run on: the store on this machine, or (see `bridge`) another instance."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import msgspec

from .deletion import Deletions, Forget
from .errors import LiveError
from .events import DELETED, Event, events_of
from .fs import FsStore
from .journal import Change
from .limits import page_of, size_of
from .requests import STORE_PREFIX
from .resync import Json, Metas
from .service import Service
from .settings import FsSettings, LiveSettings
from .store_protocol import StoreProtocol

__all__ = ["Adapter", "FsAdapter", "Publish"]

Publish = Callable[[int, Callable[[], list[Event]]], None]
"""Tells subscribers: the number of the newest event, and how to get the new ones."""


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
        self._deletions = Deletions(self._store, forget)

    @property
    def oldest(self) -> int:
        return self._store.journal.oldest

    async def start(self, wait_seconds: float = 0.0) -> None:
        await asyncio.to_thread(self._store.open, wait_seconds)
        self.head = self._store.journal.head
        self._store.start()
        self._deletions.start()

    async def close(self) -> None:
        await self._deletions.close()
        await self._store.close()

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
        deleted = self._deletions.unfinished()
        for change in self._store.journal.after(after):
            if change.head <= deleted.get(change.session_id, -1):
                change = change.blanked()
            yield from (event for event in events_of(change) if after < event.seq <= self.head)
            if change.head >= self.head:
                return

    def _publish(self, change: Change) -> None:
        self.head = change.head
        if change.cause == "deleted" or change.trigger_type == DELETED:
            self._deletions.wake()
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
