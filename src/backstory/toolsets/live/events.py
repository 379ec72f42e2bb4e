"""Events: their types and payloads, and the filters of bindings."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .functions import contract
from .journal import Change
from .types import LiveError, Role, Unsigned, check_numbers

Deliver = Callable[[dict[str, Any], int], Awaitable[None]]
"""`await deliver(payload, seq)`: the payload of one event (shared between subscribers, never to be changed)."""

CREATED = "session::created"
ADDED = "session::message-added"
UPDATED = "session::message-updated"
STATUS = "session::status-changed"
META = "session::meta-updated"
DELETED = "session::deleted"
PUBLIC_TYPES = (CREATED, ADDED, UPDATED, STATUS, META, DELETED)
FEED = "session::store::events"
"""The internal type: all events, each in its envelope, for bridged instances."""
_TYPES: Mapping[str, str] = {
    "created": CREATED,
    "added": ADDED,
    "updated": UPDATED,
    "status": STATUS,
    "meta": META,
}
"""The type of the events of a change, by its cause."""
_decode = msgspec.json.Decoder().decode
_FILTERS: Mapping[str, tuple[str, ...]] = {
    CREATED: ("metadata",),
    ADDED: ("session_id", "roles", "metadata"),
    UPDATED: ("session_id", "roles", "metadata"),
    STATUS: ("session_id", "metadata"),
    META: ("session_id", "metadata"),
    DELETED: ("session_id", "metadata"),
    FEED: (),
}
_SCHEMAS: Mapping[str, dict[str, Any]] = {
    "session_id": {"type": ["string", "null"], "description": "Only events of this session."},
    "roles": {
        "type": ["array", "null"],
        "items": {"type": "string", "enum": ["user", "assistant", "function_result", "custom"]},
        "description": "Only messages with one of these roles; custom entries have none.",
    },
    "metadata": {
        "type": ["object", "null"],
        "description": "Only sessions whose metadata has all these keys with equal values.",
    },
    "after": {
        "type": ["integer", "null"],
        "minimum": 0,
        "description": "First replay every event later than this sequence number.",
    },
}


class Event(Struct, frozen=True, omit_defaults=True):
    """One event; its JSON is the envelope of `session::store::events`."""

    seq: int
    """Position in the store-wide order, also in the payload as `seq`."""
    trigger_type: str
    payload: dict[str, Any]
    session_metadata: dict[str, Any] | UnsetType = UNSET
    """Absent from a deletion that is replayed: the metadata is gone with the session."""

    def without_content(self) -> Event:
        """The event as it is kept once its session is deleted: number, type, session, and that it is deleted."""
        if self.trigger_type == DELETED:
            kept = pick(self.payload, "session_id", "timestamp")
        else:
            kept = pick(self.payload, "session_id") | {"deleted": True}
        return Event(self.seq, self.trigger_type, {**kept, "seq": self.seq})


def events_of(change: Change) -> list[Event]:
    """The events of a change, new or replayed."""
    first = change.head - change.events + 1
    if change.blank:
        kind = change.trigger_type or _TYPES.get(change.cause)
        payload = {"session_id": change.session_id, "timestamp": change.time}
        numbers = range(first, change.head + 1)
        return [event(number, kind, payload, None).without_content() for number in numbers] if kind else []
    if change.cause == "published":
        return [
            event(first + number, envelope["trigger_type"], envelope["payload"], envelope.get("session_metadata"))
            for number, envelope in enumerate(change.envelopes)
        ]
    if not change.events:
        return []
    meta = {} if change.meta is UNSET else _decode(change.meta)
    metadata = change.metadata if change.cause == "deleted" else meta.get("metadata")
    return [
        event(first + number, trigger_type, payload, metadata)
        for number, (trigger_type, payload) in enumerate(_payloads(change, meta))
    ]


def event(seq: int, trigger_type: str, payload: dict[str, Any], metadata: dict[str, Any] | None) -> Event:
    return Event(seq, trigger_type, {**payload, "seq": seq}, UNSET if metadata is None else metadata)


def _payloads(change: Change, meta: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    about: dict[str, Any] = {"session_id": change.session_id}
    timestamp = {"timestamp": change.time}
    match change.cause:
        case "created":
            return [(CREATED, created_payload(meta))]
        case "added":
            return [(ADDED, added_payload(change.session_id, _decode(entry))) for entry in change.entries]
        case "updated":
            entry = _decode(change.entries[0])
            return [(UPDATED, updated_payload(change.session_id, entry, change.origin, change.time))]
        case "status":
            about |= pick(meta, "status") | {"previous_status": change.previous_status} | pick(meta, "status_reason")
            return [(STATUS, about | timestamp)]
        case "meta":
            return [(META, about | pick(meta, "title", "description", "metadata") | timestamp)]
        case _:
            return [(DELETED, about | timestamp)]


def created_payload(meta: dict[str, Any]) -> dict[str, Any]:
    return pick(meta, "session_id", "title", "description", "status", "forked_from", "created_at")


def added_payload(session_id: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The payload of `ADDED`, with exactly one of message and custom."""
    if entry["kind"] == "message":
        content = {"message": entry["message"]}
    else:
        content = {"custom": {"custom_type": entry["custom_type"], "data": entry.get("data")}}
    return {
        "session_id": session_id,
        "entry_id": entry["id"],
        "parent_id": entry.get("parent_id"),
        **content,
        **pick(entry, "origin", "timestamp"),
    }


def updated_payload(session_id: str, entry: dict[str, Any], origin: dict[str, Any] | None, time: int) -> dict[str, Any]:
    return {
        "session_id": session_id,
        "entry_id": entry["id"],
        **pick(entry, "message", "revision"),
        **({} if origin is None else {"origin": origin}),
        "timestamp": time,
    }


def pick(source: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: source[name] for name in names if name in source}


class TriggerType(Struct, frozen=True):
    """A type of events to bind to."""

    id: str
    description: str
    config_schema: dict[str, Any]


def trigger_types() -> tuple[TriggerType, ...]:
    """The types of the contract, with the schema of a binding's config."""
    return tuple(TriggerType(item["id"], item["description"], _schema(item["id"])) for item in contract()["triggers"])


def _schema(trigger_type: str) -> dict[str, Any]:
    properties = {name: _SCHEMAS[name] for name in (*_FILTERS[trigger_type], "after")}
    return {"type": "object", "properties": properties, "additionalProperties": False}


class _Config(Struct):
    session_id: str | None = None
    roles: list[Role] | None = None
    metadata: dict[str, Any] | None = None
    after: Unsigned | None = None

    def __post_init__(self) -> None:
        check_numbers(self)


class Filter(Struct, frozen=True):
    """All given conditions must hold."""

    types: frozenset[str]
    session_id: str | None = None
    roles: frozenset[str] | None = None
    metadata: dict[str, Any] | None = None
    after: int | None = None

    def matches(self, event: Event) -> bool:
        if event.trigger_type not in self.types:
            return FEED in self.types
        if self.session_id is not None and event.payload["session_id"] != self.session_id:
            return False
        if self.roles is not None and event.trigger_type in (ADDED, UPDATED):
            message = event.payload.get("message")
            if message is None or message["role"] not in self.roles:
                return False
        if event.trigger_type == DELETED and event.session_metadata is UNSET:
            # Replayed: the metadata is deleted, too. One deletion too many is better than a missed one.
            return True
        return self.metadata is None or has_metadata(event.session_metadata, self.metadata)


def has_metadata(found: Mapping[str, Any] | UnsetType | None, required: Mapping[str, Any]) -> bool:
    """True if every required key is present with an equal value."""
    present = found or {}
    return all(key in present and same(present[key], value) for key, value in required.items())


def same(one: Any, other: Any) -> bool:
    """Deep equality of JSON values; 1, 1.0 and true are different."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def parse_filter(types: Iterable[str], config: Any, *, lenient: bool = False) -> Filter:
    """The filter of a binding. Raises LiveError (`invalid_request`) for a bad config.

    `lenient` is for a stream of several types: each applies the filters that it has, and all accept `session_id`.
    """
    names = frozenset(types)
    for name in names:
        if name not in _FILTERS:
            raise LiveError("invalid_request", f"unknown trigger type {name!r}; there are {', '.join(_FILTERS)}")
    if config is not None and not isinstance(config, dict):
        raise LiveError("invalid_request", "a binding's config must be an object")
    given = {key: value for key, value in (config or {}).items() if value is not None}
    allowed = set(_SCHEMAS) if lenient else {"after"}.union(*(_FILTERS[name] for name in names))
    for key in given:
        if key not in allowed:
            kinds, takes = ", ".join(sorted(names)), ", ".join(sorted(allowed))
            raise LiveError("invalid_request", f"unknown filter {key!r} for {kinds}, which takes {takes}")
    try:
        read = msgspec.convert(given, _Config)
    except msgspec.ValidationError as error:
        raise LiveError("invalid_request", f"a binding's config: {error}") from None
    roles = None if read.roles is None else frozenset(read.roles)
    return Filter(names, read.session_id, roles, read.metadata, read.after)


def tokens_of(status: str | None, metadata: Mapping[str, Any] | None) -> list[int]:
    """A number for the status and one for each pair of the metadata, by which lists are filtered."""
    named = [("status", status)] if status is not None else []
    pairs = [*named, *((f"metadata.{key}", value) for key, value in (metadata or {}).items())]
    return [_token(name, value) for name, value in pairs]


def _token(name: str, value: Any) -> int:
    text = name.encode() + b"\0" + msgspec.json.encode(value, order="deterministic")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)
