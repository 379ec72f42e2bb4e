"""The rules of the public functions: the order of checks, the records written and the events published.

A mutation first waits until its session is not held. From then until its write no other call runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from secrets import token_hex
from typing import Any

import msgspec
from msgspec import Raw

from ...model import file_name
from . import functions as requests
from .events import has_metadata, tokens_of
from .functions import decode_list_cursor, decode_page_cursor, encode_list_cursor, encode_page_cursor
from .index import Run, Session
from .journal import Change, now
from .records import CUSTOM_ENTRY, ROLES, EntryLine, Place
from .store import FsStore
from .types import (
    LARGEST,
    CustomEntry,
    Entry,
    LiveError,
    LiveSettings,
    MessageEntry,
    SessionMeta,
    check_sizes,
    page_of,
    size_of,
)

_decode = msgspec.json.Decoder().decode
# Deeper nesting may exhaust the stack of a reader.
_DEEPEST = 400
_LONGEST_NAME = 255
Json = dict[str, Any]


class Service:
    def __init__(self, store: FsStore, settings: LiveSettings) -> None:
        self._store = store
        self.settings = settings

    # --- sessions

    async def create(self, request: requests.Create) -> Json:
        meta = await self._create(f"s_{token_hex(16)}", request)
        return {"session_id": meta.session_id, "meta": _plain(meta)}

    async def ensure(self, request: requests.Ensure) -> Json:
        check_id(request.session_id)
        await self._store.ready(request.session_id)
        session = self._store.session(request.session_id)
        if session is not None and session.meta is not None:
            await self._store.durable()
            meta = session.meta
        else:
            meta = await self._create(request.session_id, request)
        return {"session_id": request.session_id, "created": session is None, "meta": _plain(meta)}

    async def _create(self, session_id: str, request: requests.Create) -> SessionMeta:
        time = now()
        meta = SessionMeta(
            session_id=session_id,
            title=request.title or "",
            description=request.description or "",
            status="idle",
            metadata=_as_stored(request.metadata),
            created_at=time,
            updated_at=time,
            message_count=0,
        )
        await self._write(Change(cause="created", events=1, session_id=session_id, time=time), meta)
        return meta

    async def get(self, request: requests.SessionOf) -> Json | None:
        session = self._store.session(request.session_id)
        return {"meta": _plain(session.meta)} if session else None

    async def list(self, request: requests.List) -> Json:
        order = request.order or "updated_desc"
        after = None if request.cursor is None else decode_list_cursor(request.cursor, order)
        limit = self.settings.limit(request.limit)
        encode(request.metadata)
        tokens = tokens_of(request.status, request.metadata)
        found: list[tuple[int, SessionMeta]] = []
        for key, meta in self._store.index.ordered(order, after, tokens):
            if request.metadata is None or has_metadata(meta.metadata, request.metadata):
                found.append((key, meta))
                if len(found) > limit:
                    break
        fitting = list(page_of((item, size_of(item[1])) for item in found[:limit]))
        page: Json = {"sessions": [_plain(meta) for _, meta in fitting]}
        if len(found) > len(fitting):
            key, meta = fitting[-1]
            page["next_cursor"] = encode_list_cursor(order, key, meta.session_id)
        return page

    async def set_meta(self, request: requests.SetMeta) -> Json:
        session, meta = await self._existing(request.session_id)
        given = {
            name: value
            for name in ("title", "description", "metadata")
            if (value := getattr(request, name)) is not None
        }
        if given:
            time = now()
            meta = msgspec.structs.replace(meta, updated_at=time, **_as_stored(given))
            await self._write(Change(cause="meta", events=1, session_id=session.id, time=time), meta)
        return {"meta": _plain(meta)}

    async def set_status(self, request: requests.SetStatus) -> Json:
        session, meta = await self._existing(request.session_id)
        previous = meta.status
        if request.status != previous:
            time = now()
            reason = request.reason if request.status == "error" else None
            meta = msgspec.structs.replace(meta, updated_at=time, status=request.status, status_reason=reason)
            change = Change(cause="status", events=1, session_id=session.id, time=time, previous_status=previous)
            await self._write(change, meta)
        return {"status": request.status, "previous_status": previous}

    async def delete(self, request: requests.SessionOf) -> Json:
        await self._store.ready(request.session_id)
        session = self._store.session(request.session_id)
        if session is None or session.meta is None:
            return {"deleted": False}
        change = Change(cause="deleted", events=1, session_id=session.id, time=now())
        self._store.delete(change, session.meta.metadata)
        await self._store.durable()
        return {"deleted": True}

    # --- messages

    async def append(self, request: requests.Append) -> Json:
        session, meta = await self._existing(request.session_id)
        if (request.message is None) == (request.custom is None):
            raise LiveError("invalid_request", "give exactly one of message and custom")
        if request.entry_id is not None and (place := self._store.index.find(session, request.entry_id)):
            (stored,) = self._store.read(session, [place])
            await self._store.durable()
            return {"entry_id": stored["id"], "parent_id": stored["parent_id"], "timestamp": stored["timestamp"]}
        parent = self._parent(session, request.parent_id)
        time = _time_in(meta)
        entry_id = request.entry_id if request.entry_id is not None else new_entry_id()
        entry: Entry
        if request.message is not None:
            entry = MessageEntry(
                id=entry_id, parent_id=parent, timestamp=time, origin=request.origin, message=request.message
            )
        else:
            assert request.custom is not None
            entry = CustomEntry(
                id=entry_id,
                parent_id=parent,
                timestamp=time,
                origin=request.origin,
                custom_type=request.custom.custom_type,
                data=request.custom.data,
            )
        await self._add(session, meta, [entry], time)
        return {"entry_id": entry_id, "parent_id": parent, "timestamp": time}

    async def append_many(self, request: requests.AppendMany) -> Json:
        session, meta = await self._existing(request.session_id)
        if not request.messages:
            raise LiveError("empty_batch", "messages must not be empty")
        parent = self._parent(session, request.parent_id)
        time = _time_in(meta)
        entries: list[Entry] = []
        for message in request.messages:
            entries.append(
                MessageEntry(
                    id=new_entry_id(), parent_id=parent, timestamp=time, origin=request.origin, message=message
                )
            )
            parent = entries[-1].id
        await self._add(session, meta, entries, time)
        return {"entry_ids": [entry.id for entry in entries], "last_entry_id": entries[-1].id}

    def _parent(self, session: Session, given: str | None) -> str | None:
        if given is None:
            return session.leaf
        if self._store.index.find(session, given) is None:
            raise LiveError("parent_not_found", f"session {session.id} has no entry {given}")
        return given

    async def _add(self, session: Session, meta: SessionMeta, entries: Sequence[Entry], time: int) -> None:
        messages = sum(isinstance(entry, MessageEntry) for entry in entries)
        meta = msgspec.structs.replace(meta, updated_at=time, message_count=meta.message_count + messages)
        change = Change(cause="added", events=len(entries), session_id=session.id, time=time, leaf=entries[-1].id)
        await self._write(change, meta, entries)

    async def update_message(self, request: requests.UpdateMessage) -> Json:
        session, meta = await self._existing(request.session_id)
        place = self._entry(session, request.entry_id)
        if place.role == CUSTOM_ENTRY:
            raise LiveError("invalid_entry_kind", f"entry {place.id} is a custom entry, not a message")
        if request.expected_revision is not None and request.expected_revision != place.revision:
            return {"updated": False, "revision": place.revision}
        if request.details is not None and ROLES[place.role] not in ("function_result", "custom"):
            raise LiveError("details_not_supported", f"a message of role {ROLES[place.role]} has no details")
        if place.revision == LARGEST:
            raise LiveError("storage", f"entry {place.id} has the highest possible revision")
        (entry,) = self._store.read(session, [place])
        entry["revision"] = revision = place.revision + 1
        entry["message"]["content"] = request.content
        if request.details is not None:
            entry["message"]["details"] = request.details
        time = now()
        change = Change(cause="updated", events=1, session_id=session.id, time=time, origin=request.origin)
        line = EntryLine(place.id, place.parent, place.role, revision, 0, 0)
        meta = msgspec.structs.replace(meta, updated_at=time)
        self._commit(change, [(line, entry)], meta)
        await self._store.durable()
        return {"updated": True, "revision": revision}

    async def get_message(self, request: requests.EntryOf) -> Json | None:
        session = self._store.session(request.session_id)
        place = self._store.index.find(session, request.entry_id) if session else None
        if session is None or place is None:
            return None
        return {"entry": self._store.read(session, [place])[0]}

    async def messages(self, request: requests.Messages) -> Json:
        session = self._session(request.session_id)
        if request.from_entry_id is not None:
            end: Place | None = self._entry(session, request.from_entry_id)
        else:
            end = self._store.index.find(session, session.leaf) if session.leaf is not None else None
        if end is None:
            return {"messages": []}
        runs: Sequence[Run] = self._store.index.path(session, end)
        if request.roles is not None:
            roles = [ROLES.index(role) for role in set(request.roles)]
        else:
            roles = list(range(CUSTOM_ENTRY + bool(request.include_custom)))
        if request.cursor is not None:
            runs = self._after(session, runs, roles, request.cursor)
        limit = self.settings.limit(request.limit)
        places = self._store.index.places(session, runs, roles, limit + 1)
        fitting = list(page_of((place, place.length) for place in places[:limit]))
        page: Json = {"messages": [_item(entry) for entry in self._store.read(session, fitting)]}
        if len(places) > len(fitting):
            page["next_cursor"] = encode_page_cursor(fitting[-1].id)
        return page

    def _after(self, session: Session, runs: Sequence[Run], roles: Sequence[int], cursor: str) -> Sequence[Run]:
        """The part of a path after the entry of a cursor, which must be on it."""
        place = self._store.index.find(session, decode_page_cursor(cursor))
        for number, run in enumerate(runs):
            if place and place.branch == run.branch and run.first <= place.depth <= run.last and place.role in roles:
                return [Run(run.branch, place.depth + 1, run.last), *runs[number + 1 :]]
        raise LiveError("invalid_cursor", "the cursor does not belong to this path and these filters")

    # --- branches

    async def fork(self, request: requests.Fork) -> Json:
        session, source = await self._existing(request.session_id)
        end = self._entry(session, request.entry_id)
        path = self._store.index.path(session, end)
        places = self._store.index.places(session, path, range(len(ROLES)))
        time = now()
        meta = SessionMeta(
            session_id=f"s_{token_hex(16)}",
            title=source.title if request.title is None else request.title,
            description=source.description,
            status="idle",
            metadata=source.metadata,
            forked_from=session.id,
            created_at=time,
            updated_at=time,
            message_count=sum(place.role != CUSTOM_ENTRY for place in places),
        )
        ids = [new_entry_id() for _ in places]
        await self._store.fork(session, places, ids, lambda entries: _renamed(entries, ids), meta)
        await self._store.durable()
        return {"session_id": meta.session_id, "meta": _plain(meta)}

    async def set_active_leaf(self, request: requests.EntryOf) -> Json:
        session, meta = await self._existing(request.session_id)
        place = self._entry(session, request.entry_id)
        if session.leaf != place.id:
            change = Change(cause="stored", session_id=session.id, time=now(), leaf=place.id)
            self._store.write(change, [], meta)
        await self._store.durable()
        return {"active_leaf": place.id}

    # --- shared

    async def _existing(self, session_id: str) -> tuple[Session, SessionMeta]:
        """The session of a mutation, once it is not held."""
        await self._store.ready(session_id)
        session = self._session(session_id)
        assert session.meta is not None
        return session, session.meta

    def _session(self, session_id: str) -> Session:
        session = self._store.session(session_id)
        if session is None:
            raise LiveError("not_found", f"there is no session {session_id}")
        return session

    def _entry(self, session: Session, entry_id: str) -> Place:
        place = self._store.index.find(session, entry_id)
        if place is None:
            raise LiveError("entry_not_found", f"session {session.id} has no entry {entry_id}")
        return place

    async def _write(self, change: Change, meta: SessionMeta, entries: Sequence[Entry] = ()) -> None:
        lines = [
            (EntryLine(entry.id, entry.parent_id, _role(entry), entry.revision or 0, 0, 0), entry) for entry in entries
        ]
        self._commit(change, lines, meta)
        await self._store.durable()

    def _commit(self, change: Change, entries: Iterable[tuple[EntryLine, Entry | Json]], meta: SessionMeta) -> None:
        lines = []
        for line, entry in entries:
            raw = encode(entry)
            line.length = len(raw)
            change.entries.append(Raw(raw))
            lines.append(line)
        raw_meta = encode(meta)
        check_sizes(map(bytes, change.entries), raw_meta)
        change.meta = Raw(raw_meta)
        self._store.write(change, lines, meta)


def encode(value: Any) -> bytes:
    """JSON that can be decoded again. Raises LiveError (`invalid_request`) for other values."""
    try:
        raw = msgspec.json.encode(value)
        if raw.count(b"[") + raw.count(b"{") > _DEEPEST:
            _decode(b"[" * _DEEPEST + raw + b"]" * _DEEPEST)
    except RecursionError:
        raise LiveError("invalid_request", "the content is nested too deeply") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise LiveError("invalid_request", f"the content cannot be written as JSON: {error}") from None
    return raw


def check_id(session_id: str) -> None:
    """Refuse an id that cannot name a session's file."""
    if not session_id:
        raise LiveError("invalid_request", "session_id must not be empty")
    if len(file_name(session_id)) > _LONGEST_NAME:
        raise LiveError("invalid_request", "session_id is too long to name a file")


def _as_stored(value: Any) -> Any:
    """The value after a round trip through JSON: tuples and integer keys, for example, change."""
    return _decode(encode(value))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def new_entry_id() -> str:
    return f"e_{token_hex(16)}"


def _time_in(meta: SessionMeta) -> int:
    """The time of an entry. In a fork it is later than that of the copies, which are recognised by that."""
    time = now()
    return time + 1 if meta.forked_from is not None and time == meta.created_at else time


def _role(entry: Entry) -> int:
    return ROLES.index(entry.message.__struct_config__.tag) if isinstance(entry, MessageEntry) else CUSTOM_ENTRY


def _item(entry: Json) -> Json:
    if entry["kind"] == "message":
        return {"entry_id": entry["id"], "message": entry["message"]}
    return {"entry_id": entry["id"], "custom": {"custom_type": entry["custom_type"], "data": entry.get("data")}}


def _renamed(entries: Iterable[bytes], ids: Sequence[str]) -> Iterable[bytes]:
    """Copies of the entries of a path under new ids."""
    for number, raw in enumerate(entries):
        entry = _decode(raw)
        entry |= {"id": ids[number], "parent_id": ids[number - 1] if number else None, "revision": 0}
        yield msgspec.json.encode(entry)
