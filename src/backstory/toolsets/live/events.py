"""What happened in the store, as subscribers are told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .journal import Change

__all__ = [
    "ADDED",
    "CREATED",
    "DELETED",
    "FEED",
    "META",
    "PUBLIC_TYPES",
    "STATUS",
    "UPDATED",
    "Deliver",
    "Event",
    "added_payload",
    "created_payload",
    "event",
    "events_of",
    "updated_payload",
]

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
    """The events of a change, as it is made and whenever it is replayed."""
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
    """Exactly one of message and custom; an entry's own origin and time."""
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
