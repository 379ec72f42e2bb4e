"""`session::store::*`: the store as it is, for instances that keep sessions here. No rules of the domain apply."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import msgspec
from msgspec import Raw

from . import requests as ask
from .branches import Place
from .errors import LiveError
from .events import PUBLIC_TYPES, Event
from .fs import FsStore
from .journal import Change, now
from .limits import check_sizes, page_of
from .records import ROLES, EntryLine
from .service import check_id, encode
from .types import CustomEntry, SessionMeta

__all__ = ["StoreProtocol"]

_OK = {"ok": True}
_MAX_REPLAY = 5000
Json = dict[str, Any]


class StoreProtocol:
    def __init__(self, store: FsStore, replay: Callable[[int, int], list[Event]], head: Callable[[], int]) -> None:
        """`replay` gives events later than a number, at most so many; `head` the number of the newest."""
        self._store = store
        self._replay = replay
        self._head = head

    async def get_meta(self, request: ask.SessionOf) -> Json | None:
        session = self._store.session(request.session_id)
        return msgspec.to_builtins(session.meta) if session else None

    async def put_meta(self, request: ask.PutMeta) -> Json:
        meta = request.meta
        check_id(meta.session_id)
        await self._store.ready(meta.session_id)
        raw = encode(meta)
        check_sizes((), raw)
        change = Change(cause="stored", session_id=meta.session_id, time=now(), meta=Raw(raw))
        self._store.write(change, [], meta)
        await self._store.durable()
        return _OK

    async def delete_meta(self, request: ask.SessionOf) -> Json:
        return await self._rewrite(request.session_id, drop_meta=True)

    async def list_metas(self, _: ask.Nothing) -> Json:
        return {"metas": msgspec.to_builtins(self._store.index.metas())}

    async def get_entry(self, request: ask.EntryOf) -> Json | None:
        session = self._store.index.session(request.session_id)
        place = self._store.index.find(session, request.entry_id) if session else None
        return self._store.read(session, [place])[0] if session and place else None

    async def put_entry(self, request: ask.PutEntry) -> Json:
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

    async def list_entries(self, request: ask.ListEntries) -> Json:
        """All entries, parents first; in pages when a limit is given (which mains of others ignore)."""
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

    async def delete_entries(self, request: ask.SessionOf) -> Json:
        return await self._rewrite(request.session_id, drop_entries=True)

    async def get_active_leaf(self, request: ask.SessionOf) -> Json:
        session = self._store.index.session(request.session_id)
        return {"entry_id": session.leaf if session else None}

    async def set_active_leaf(self, request: ask.EntryOf) -> Json:
        check_id(request.session_id)
        await self._store.ready(request.session_id)
        change = Change(cause="stored", session_id=request.session_id, time=now(), leaf=request.entry_id)
        self._store.write(change, [], self._meta(request.session_id))
        await self._store.durable()
        return _OK

    async def delete_active_leaf(self, request: ask.SessionOf) -> Json:
        return await self._rewrite(request.session_id, drop_leaf=True)

    async def publish_events(self, request: ask.PublishEvents) -> Json:
        """Envelopes that are not well formed are left out, as the count tells."""
        accepted = [envelope for envelope in request.events if _is_envelope(envelope)]
        encode(accepted)
        # One change per session and type: when the session is deleted, its changes can be told from the others.
        for (session_id, trigger_type), group in groupby(accepted, key=_subject):
            envelopes = list(group)
            change = Change(cause="published", events=len(envelopes), session_id=session_id, time=now())
            change.trigger_type, change.envelopes = trigger_type, envelopes
            self._store.note(change)
        if accepted:
            await self._store.durable()
        return {"published": len(accepted)}

    async def replay_events(self, request: ask.ReplayEvents) -> Json:
        limit = max(1, min(500 if request.limit is None else request.limit, _MAX_REPLAY))
        events = self._replay(request.after, limit)
        return {"events": msgspec.to_builtins(events), "head": self._head(), "store": self._store.journal.store}

    def _meta(self, session_id: str) -> SessionMeta | None:
        session = self._store.index.session(session_id)
        return session.meta if session else None

    async def _rewrite(
        self, session_id: str, *, drop_meta: bool = False, drop_entries: bool = False, drop_leaf: bool = False
    ) -> Json:
        """There is no record that takes something back, so the file is written anew; an empty one is removed."""
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
