"""Which events a binding lets through."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .errors import LiveError
from .events import ADDED, CREATED, DELETED, FEED, META, STATUS, UPDATED, Event
from .functions import contract
from .types import Role, Unsigned, fits

__all__ = ["Filter", "TriggerType", "has_metadata", "parse_filter", "same", "tokens_of", "trigger_types"]

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


class TriggerType(Struct, frozen=True):
    """A kind of event to bind to."""

    id: str
    description: str
    config_schema: dict[str, Any]


def trigger_types() -> tuple[TriggerType, ...]:
    """The types of the contract, with what a binding's config may hold."""
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
        fits(after=self.after)


class Filter(Struct, frozen=True):
    """All that is given must hold."""

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
            # Replayed: nobody knows the metadata any more. A deletion too many is better than one that is missed.
            return True
        return self.metadata is None or has_metadata(event.session_metadata, self.metadata)


def has_metadata(found: Mapping[str, Any] | UnsetType | None, wanted: Mapping[str, Any]) -> bool:
    """Whether every wanted key is there with an equal value."""
    present = found or {}
    return all(key in present and same(present[key], value) for key, value in wanted.items())


def same(one: Any, other: Any) -> bool:
    """Deep equality of JSON values that tells 1, 1.0 and true apart."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def parse_filter(types: Iterable[str], config: Any, *, lenient: bool = False) -> Filter:
    """The filter of a binding; LiveError (`invalid_request`) says what is wrong with its config.

    Lenient for a stream of several types: each takes what it has of the filters, and all take `session_id`.
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
    """A number for the status and for each pair of the metadata: what lists are filtered by."""
    named = [("status", status)] if status is not None else []
    pairs = [*named, *((f"metadata.{key}", value) for key, value in (metadata or {}).items())]
    return [_token(name, value) for name, value in pairs]


def _token(name: str, value: Any) -> int:
    text = name.encode() + b"\0" + msgspec.json.encode(value, order="deterministic")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big", signed=True)
