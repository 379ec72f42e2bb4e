"""Adapters: the store that the functions run on. `FsAdapter` keeps sessions in files of this machine; see `bridge`.

`StoreProtocol` answers `session::store::*`, with which other instances keep their sessions here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from . import functions as requests
from .events import DELETED, PUBLIC_TYPES, Event, events_of
from .feed import Json, Metas
from .functions import STORE_PREFIX
from .journal import Change, now
from .records import ROLES, EntryLine, Place
from .recovery import Folder, open_folder
from .service import Service, check_id, encode
from .store import FsStore
from .types import CustomEntry, FsSettings, LiveError, LiveSettings, SessionMeta, check_sizes, page_of, size_of
from .upkeep import Deletions, Forget

Publish = Callable[[int, Callable[[], list[Event]]], None]
"""Delivers events to subscribers: the number of the newest event, and a function that gives the new ones."""
_OK = {"ok": True}
_MAX_REPLAY = 5000


class Adapter(Protocol):
    """A store of sessions. It runs from its creation until `close`."""

    name: str
    head: int
    """The number of the newest published event."""

    @property
    def oldest(self) -> int:
        """Events with higher numbers can be replayed."""

    def contended(self) -> bool:
        """True if another process waits for the folder of this one."""

    async def close(self) -> None: ...

    async def call(self, function_id: str, request: Any) -> Any:
        """Call a public or store function with its decoded request."""

    def configure(self, settings: LiveSettings) -> bool:
        """Apply new settings while running; False when they need another adapter."""

    async def read_events(self, after: int, limit: int) -> list[Event]:
        """Up to `limit` events later than a number, bounded by the size of a page.

        Raises LiveError (`invalid_cursor`) when they are no longer kept.
        """

    async def metas(self) -> Metas:
        """All sessions, by id."""

    async def entries(self, session_id: str) -> list[Json]:
        """All entries of a session, parents first."""

    def status(self) -> dict[str, Any]: ...


class FsAdapter:
    name = "fs"

    @classmethod
    async def open(
        cls,
        settings: LiveSettings,
        publish: Publish,
        url: str = "",
        forget: Forget | None = None,
        wait_seconds: float = 0.0,
    ) -> FsAdapter:
        """Open the folder of the settings; `url` is the address at which other processes reach this one."""
        assert isinstance(settings.adapter, FsSettings)
        path = Path(settings.adapter.data_dir or "")
        folder = await asyncio.to_thread(open_folder, path, settings.adapter, url, wait_seconds)
        return cls(folder, settings, publish, forget)

    def __init__(self, folder: Folder, settings: LiveSettings, publish: Publish, forget: Forget | None) -> None:
        assert isinstance(settings.adapter, FsSettings)
        self.head = folder.journal.head
        self._deliver = publish
        self._store = FsStore(folder, settings.adapter, self._publish)
        self._service = Service(self._store, settings)
        self._protocol = StoreProtocol(self._store, self._read, lambda: self.head)
        self._deletions = Deletions(folder.journal, folder.index, self._store.synced, forget)

    @property
    def oldest(self) -> int:
        return self._store.journal.oldest

    async def close(self) -> None:
        await self._deletions.close()
        await self._store.close()

    def contended(self) -> bool:
        return self._store.folder.lock.contended()

    async def call(self, function_id: str, request: Any) -> Any:
        in_store = function_id.startswith(STORE_PREFIX)
        name = function_id.removeprefix(STORE_PREFIX if in_store else "session::").replace("-", "_")
        handler: Callable[[Any], Awaitable[Any]] = getattr(self._protocol if in_store else self._service, name)
        return await handler(request)

    def configure(self, settings: LiveSettings) -> bool:
        if not isinstance(settings.adapter, FsSettings):
            return False
        if Path(settings.adapter.data_dir or "").resolve() != self._store.folder.path.resolve():
            return False
        self._store.settings = settings.adapter
        self._service.settings = settings
        return True

    async def read_events(self, after: int, limit: int) -> list[Event]:
        return self._read(after, limit)

    def _read(self, after: int, limit: int) -> list[Event]:
        journal = self._store.journal
        if after < journal.oldest:
            raise LiveError(
                "invalid_cursor", f"events up to {journal.oldest} are no longer kept; read the sessions instead"
            )
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
            self._deliver(change.head, lambda: events_of(change))

    async def metas(self) -> Metas:
        return {meta.session_id: msgspec.to_builtins(meta) for meta in self._store.index.metas()}

    async def entries(self, session_id: str) -> list[Json]:
        session = self._store.session(session_id)
        return self._store.read(session, self._store.index.all_places(session)) if session else []

    def status(self) -> dict[str, Any]:
        found = {"data_dir": str(self._store.folder.path), "sessions": self._store.index.count()}
        return found | {"events": self.head, "problems": self._store.folder.problems}


class RefusingAdapter:
    """Stands for a folder that cannot be written: opening one also repairs it. Every call is refused."""

    name = "fs"
    head = oldest = 0

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def contended(self) -> bool:
        return False

    async def close(self) -> None:
        pass

    async def call(self, function_id: str, request: Any) -> Any:
        raise LiveError("storage", self._reason)

    def configure(self, settings: LiveSettings) -> bool:
        return False  # the folder of the new settings is tried

    async def read_events(self, after: int, limit: int) -> list[Event]:
        return []

    async def metas(self) -> Metas:
        return {}

    async def entries(self, session_id: str) -> list[Json]:
        return []

    def status(self) -> dict[str, Any]:
        return {"error": self._reason}


class StoreProtocol:
    def __init__(self, store: FsStore, replay: Callable[[int, int], list[Event]], head: Callable[[], int]) -> None:
        """`replay` gives up to a number of events later than another; `head` the number of the newest."""
        self._store = store
        self._replay = replay
        self._head = head

    async def get_meta(self, request: requests.SessionOf) -> Json | None:
        session = self._store.session(request.session_id)
        return msgspec.to_builtins(session.meta) if session else None

    async def put_meta(self, request: requests.PutMeta) -> Json:
        meta = request.meta
        check_id(meta.session_id)
        await self._store.ready(meta.session_id)
        raw = encode(meta)
        check_sizes((), raw)
        change = Change(cause="stored", session_id=meta.session_id, time=now(), meta=Raw(raw))
        self._store.write(change, [], meta)
        await self._store.durable()
        return _OK

    async def delete_meta(self, request: requests.SessionOf) -> Json:
        return await self._rewrite(request.session_id, drop_meta=True)

    async def list_metas(self, _: requests.Nothing) -> Json:
        return {"metas": msgspec.to_builtins(self._store.index.metas())}

    async def get_entry(self, request: requests.EntryOf) -> Json | None:
        session = self._store.index.session(request.session_id)
        place = self._store.index.find(session, request.entry_id) if session else None
        return self._store.read(session, [place])[0] if session and place else None

    async def put_entry(self, request: requests.PutEntry) -> Json:
        check_id(request.session_id)
        await self._store.ready(request.session_id)
        entry = request.entry
        raw = encode(entry)
        check_sizes([raw], b"")
        tag = "" if isinstance(entry, CustomEntry) else entry.message.__struct_config__.tag
        line = EntryLine(entry.id, entry.parent_id, ROLES.index(str(tag)), entry.revision or 0, 0, len(raw))
        change = Change(cause="stored", session_id=request.session_id, time=now(), entries=[Raw(raw)])
        self._store.write(change, [line], self._meta(request.session_id))
        await self._store.durable()
        return _OK

    async def list_entries(self, request: requests.ListEntries) -> Json:
        """All entries, parents first. A limit asks for pages; the reference implementation has none and ignores it."""
        session = self._store.index.session(request.session_id)
        if session is None:
            return {"entries": []}
        places = self._store.index.all_places(session)
        if request.limit is None:
            return {"entries": self._store.read(session, places)}
        after = _place_of(request.cursor)
        rest = [place for place in places if (place.branch, place.depth) > after]
        fitting = list(page_of((place, place.length) for place in rest[: max(request.limit, 1)]))
        page: Json = {"entries": self._store.read(session, fitting)}
        if len(rest) > len(fitting):
            page["next_cursor"] = f"{fitting[-1].branch}:{fitting[-1].depth}"
        return page

    async def delete_entries(self, request: requests.SessionOf) -> Json:
        return await self._rewrite(request.session_id, drop_entries=True)

    async def get_active_leaf(self, request: requests.SessionOf) -> Json:
        session = self._store.index.session(request.session_id)
        return {"entry_id": session.leaf if session else None}

    async def set_active_leaf(self, request: requests.EntryOf) -> Json:
        check_id(request.session_id)
        await self._store.ready(request.session_id)
        change = Change(cause="stored", session_id=request.session_id, time=now(), leaf=request.entry_id)
        self._store.write(change, [], self._meta(request.session_id))
        await self._store.durable()
        return _OK

    async def delete_active_leaf(self, request: requests.SessionOf) -> Json:
        return await self._rewrite(request.session_id, drop_leaf=True)

    async def publish_events(self, request: requests.PublishEvents) -> Json:
        """Malformed envelopes are left out; the answer has the number of the others."""
        accepted = [envelope for envelope in request.events if _is_envelope(envelope)]
        encode(accepted)
        # One change per session and type, so that deleting a session can blank its changes and no others.
        for (session_id, trigger_type), group in groupby(accepted, key=_subject):
            envelopes = list(group)
            change = Change(cause="published", events=len(envelopes), session_id=session_id, time=now())
            change.trigger_type, change.envelopes = trigger_type, envelopes
            self._store.note(change)
        if accepted:
            await self._store.durable()
        return {"published": len(accepted)}

    async def replay_events(self, request: requests.ReplayEvents) -> Json:
        limit = max(1, min(500 if request.limit is None else request.limit, _MAX_REPLAY))
        events = self._replay(request.after, limit)
        return {"events": msgspec.to_builtins(events), "head": self._head(), "store": self._store.journal.store}

    def _meta(self, session_id: str) -> SessionMeta | None:
        session = self._store.index.session(session_id)
        return session.meta if session else None

    async def _rewrite(
        self, session_id: str, *, drop_meta: bool = False, drop_entries: bool = False, drop_leaf: bool = False
    ) -> Json:
        """No record takes another back, so the file is rewritten; an empty one is removed."""
        await self._store.ready(session_id)
        session = self._store.index.session(session_id)
        if session is None:
            return _OK
        places: list[Place] = [] if drop_entries else self._store.index.all_places(session)
        leaf = None if drop_leaf else session.leaf
        meta = None if drop_meta else session.meta
        if places or leaf is not None or meta is not None:
            await self._store.rewrite(session, places, leaf, meta)
        else:
            self._store.delete(Change(cause="deleted", session_id=session_id, time=now()))
        await self._store.durable()
        return _OK


def _place_of(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return -1, -1
    try:
        branch, depth = map(int, cursor.split(":"))
    except ValueError:
        raise LiveError("invalid_cursor", "not a cursor of this function") from None
    return branch, depth


def _subject(envelope: Json) -> tuple[str, str]:
    return envelope["payload"]["session_id"], envelope["trigger_type"]


def _is_envelope(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("trigger_type") not in PUBLIC_TYPES:
        return False
    payload, metadata = value.get("payload"), value.get("session_metadata")
    if not isinstance(payload, dict) or not isinstance(payload.get("session_id"), str):
        return False
    message = payload.get("message")
    readable = message is None or (isinstance(message, dict) and isinstance(message.get("role"), str))
    return readable and (metadata is None or isinstance(metadata, dict))
