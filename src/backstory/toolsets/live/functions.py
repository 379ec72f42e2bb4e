"""The functions of the contract: their schemas, their requests and the cursors of their pages.

Unknown fields of a request are ignored, `null` is an omitted field, nothing is coerced. A cursor is opaque to its
holder and works after the session or entry that it names is deleted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from .types import (
    Content,
    CustomPayload,
    Entry,
    LiveError,
    Message,
    Object,
    Role,
    SessionMeta,
    Status,
    Unsigned,
    check_numbers,
)

_DRAFT = "http://json-schema.org/draft-07/schema#"
Order = Literal["created_asc", "created_desc", "updated_desc"]
STORE_PREFIX = "session::store::"
T = TypeVar("T")


class Function(Struct, frozen=True):
    id: str
    description: str
    request_schema: dict[str, Any]
    response_schema: dict[str, Any]


@cache
def contract() -> dict[str, Any]:
    """Functions and triggers of the contract; the schemas share their definitions."""
    text = files(__package__).joinpath("schemas.json").read_bytes()
    parsed: dict[str, Any] = msgspec.json.decode(text)
    return parsed


@cache
def functions() -> tuple[Function, ...]:
    return tuple(
        Function(item["id"], item["description"], _complete(item["request"]), _complete(item["response"]))
        for item in contract()["functions"]
    )


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with all definitions that it refers to."""
    shared = contract()["definitions"]
    used: dict[str, Any] = {}
    waiting = _references(schema)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = shared[name]
            waiting |= _references(shared[name])
    definitions = {"definitions": dict(sorted(used.items()))} if used else {}
    return {"$schema": _DRAFT, **definitions, **schema}


def _references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_references, schema))
    if not isinstance(schema, dict):
        return set()
    found = set().union(*map(_references, schema.values()))
    if isinstance(schema.get("$ref"), str):
        found.add(schema["$ref"].rpartition("/")[2])
    return found


class Request(Struct, omit_defaults=True):
    """A request; a bridge encodes it again with the given fields only."""

    def __post_init__(self) -> None:
        check_numbers(self)


class Nothing(Request):
    """Takes no arguments."""


class ConfigChange(Request):
    """The id is not used: the configuration is read again."""

    id: str | None = None


class SessionOf(Request):
    session_id: str


class EntryOf(Request):
    session_id: str
    entry_id: str


class Create(Request):
    title: str | None = None
    description: str | None = None
    metadata: Object | None = None


class Ensure(Create, kw_only=True):
    session_id: str


class SetMeta(Create, kw_only=True):
    session_id: str


class SetStatus(Request):
    session_id: str
    status: Status
    reason: str | None = None


class List(Request):
    limit: Unsigned | None = None
    cursor: str | None = None
    status: Status | None = None
    metadata: Object | None = None
    order: Order | None = None


class Append(Request):
    session_id: str
    message: Message | None = None
    custom: CustomPayload | None = None
    parent_id: str | None = None
    entry_id: str | None = None
    origin: Object | None = None


class AppendMany(Request):
    session_id: str
    messages: list[Message]
    parent_id: str | None = None
    origin: Object | None = None


class UpdateMessage(Request):
    session_id: str
    entry_id: str
    content: list[Content]
    details: Any = None
    expected_revision: Unsigned | None = None
    origin: Object | None = None


class Messages(Request):
    session_id: str
    limit: Unsigned | None = None
    cursor: str | None = None
    roles: list[Role] | None = None
    from_entry_id: str | None = None
    include_custom: bool | None = None


class Fork(Request):
    session_id: str
    entry_id: str
    title: str | None = None


class PutMeta(Request):
    meta: SessionMeta


class PutEntry(Request):
    session_id: str
    entry: Entry


class ListEntries(Request):
    session_id: str
    limit: Unsigned | None = None
    cursor: str | None = None


class PublishEvents(Request):
    events: list[Any]


class ReplayEvents(Request):
    after: Unsigned
    limit: Unsigned | None = None


REQUESTS: Mapping[str, type[Request]] = {
    "session::append": Append,
    "session::append-many": AppendMany,
    "session::config-status": Nothing,
    "session::create": Create,
    "session::delete": SessionOf,
    "session::ensure": Ensure,
    "session::fork": Fork,
    "session::get": SessionOf,
    "session::get-message": EntryOf,
    "session::list": List,
    "session::messages": Messages,
    "session::on-config-change": ConfigChange,
    "session::set-active-leaf": EntryOf,
    "session::set-meta": SetMeta,
    "session::set-status": SetStatus,
    "session::store::delete-active-leaf": SessionOf,
    "session::store::delete-entries": SessionOf,
    "session::store::delete-meta": SessionOf,
    "session::store::get-active-leaf": SessionOf,
    "session::store::get-entry": EntryOf,
    "session::store::get-meta": SessionOf,
    "session::store::list-entries": ListEntries,
    "session::store::list-metas": Nothing,
    "session::store::publish-events": PublishEvents,
    "session::store::put-entry": PutEntry,
    "session::store::put-meta": PutMeta,
    "session::store::replay-events": ReplayEvents,
    "session::store::set-active-leaf": EntryOf,
    "session::update-message": UpdateMessage,
}
"""The request type of each function."""


class _ListCursor(Struct):
    o: str
    k: int
    id: str


class _PageCursor(Struct):
    e: str


def encode_list_cursor(order: Order, key: int, session_id: str) -> str:
    return base64.b64encode(msgspec.json.encode(_ListCursor(order, key, session_id))).decode()


def decode_list_cursor(text: str, order: Order) -> tuple[int, str]:
    """The sort key and session id to continue after. A cursor is valid for the order of its list only."""
    cursor = _decode(text, _ListCursor)
    if cursor.o != order or not -(2**63) <= cursor.k < 2**63:
        raise LiveError("invalid_cursor", f"the cursor belongs to order {cursor.o[:20]}, not {order}")
    return cursor.k, cursor.id


def encode_page_cursor(entry_id: str) -> str:
    return base64.b64encode(msgspec.json.encode(_PageCursor(entry_id))).decode()


def decode_page_cursor(text: str) -> str:
    return _decode(text, _PageCursor).e


def _decode(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(base64.b64decode(text, validate=True), type=kind)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise LiveError("invalid_cursor", "not a cursor of this function") from None
