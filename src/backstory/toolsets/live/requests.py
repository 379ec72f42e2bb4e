"""What the functions take. Unknown fields are ignored, `null` is an omitted field, nothing is coerced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from .types import Content, CustomPayload, Entry, Message, Object, Role, SessionMeta, Status, Unsigned, fits

__all__ = [
    "REQUESTS",
    "STORE_PREFIX",
    "Append",
    "AppendMany",
    "ConfigChange",
    "Create",
    "Ensure",
    "EntryOf",
    "Fork",
    "List",
    "ListEntries",
    "Messages",
    "Nothing",
    "Order",
    "PublishEvents",
    "PutEntry",
    "PutMeta",
    "ReplayEvents",
    "Request",
    "SessionOf",
    "SetMeta",
    "SetStatus",
    "UpdateMessage",
]

Order = Literal["created_asc", "created_desc", "updated_desc"]


class Request(Struct, omit_defaults=True):
    """A request; encoded again (for a bridge) it holds what was given and nothing else."""


class Nothing(Request):
    """Takes no arguments."""


class ConfigChange(Request):
    """The id says nothing that is needed: the configuration is read again."""

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

    def __post_init__(self) -> None:
        fits(limit=self.limit)


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

    def __post_init__(self) -> None:
        fits(expected_revision=self.expected_revision)


class Messages(Request):
    session_id: str
    limit: Unsigned | None = None
    cursor: str | None = None
    roles: list[Role] | None = None
    from_entry_id: str | None = None
    include_custom: bool | None = None

    def __post_init__(self) -> None:
        fits(limit=self.limit)


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

    def __post_init__(self) -> None:
        fits(limit=self.limit)


class PublishEvents(Request):
    events: list[Any]


class ReplayEvents(Request):
    after: Unsigned
    limit: Unsigned | None = None

    def __post_init__(self) -> None:
        fits(after=self.after, limit=self.limit)


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
"""What each function takes."""
STORE_PREFIX = "session::store::"
