"""The shapes of the contract: its requests, its envelopes, the answers of open, and cursors.

The published schema names the views of `open` with this module: they stay here.

The schema has the limits of a request, `rules` checks them, in the contract's order. Arguments beyond the contract are
echoed only if they were given.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...model import SEARCHABLE_TYPES, EventType, digest

R = TypeVar("R")
D = TypeVar("D")

ErrorCode = Literal[
    "invalid_request", "invalid_id", "not_found", "unsupported_event_type", "deadline_exceeded", "internal_error"
]

Position = tuple[int, str]
"""The last row of a page: the number that orders the rows, and its id."""
_Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_MAX_CURSOR_CHARS = 8192


# Requests


def _says(description: str, **schema: Any) -> Meta:
    return Meta(description=description, extra_json_schema=schema)


_Project = Annotated[str | UnsetType | None, _says("Only projects whose path contains this.")]
_Source = Annotated[str | UnsetType | None, _says("Only this agent, e.g. claude-code, codex.")]
_SearchType = Annotated[str, Meta(extra_json_schema={"enum": [str(kind) for kind in SEARCHABLE_TYPES]})]


class SearchSessions(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of search_sessions."""

    query: Annotated[str, _says('Words, or an "exact phrase".', maxLength=4096)]
    within_id: Annotated[str | None, _says("Only this session or turn.")] = None
    event_types: Annotated[
        list[_SearchType] | None, _says("Default user_input, assistant_response, tool_response.")
    ] = None
    n_hits: Annotated[int | None, _says("Default 10.", minimum=1, maximum=50)] = None
    project: _Project = UNSET
    source: _Source = UNSET
    since: Annotated[str | UnsetType | None, _says("Only from this time on (RFC 3339).")] = UNSET
    until: Annotated[str | UnsetType | None, _says("Only before this time.")] = UNSET


class ListSessions(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of list_sessions."""

    start_datetime: Annotated[str, _says("RFC 3339 with offset or Z.")]
    end_datetime: Annotated[str, _says("Exclusive.")]
    limit: Annotated[int | None, _says("Default 20.", minimum=1, maximum=50)] = None
    cursor: Annotated[str | None, _says("next_cursor; the rest unchanged.")] = None
    mode: Annotated[
        str | None,
        _says(
            "By the tools it called.",
            enum=["web_search", "mcp_internal", "tool_calling", "chat", None],
        ),
    ] = None
    sort: Annotated[str | None, _says("By update; default desc.", enum=["desc", "asc", None])] = None
    project: _Project = UNSET
    source: _Source = UNSET


class Open(Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of open."""

    id: Annotated[str, _says("Session, turn or event ID.")]
    event_types: Annotated[list[str] | UnsetType | None, _says("Only events of these kinds, or turns with such.")] = (
        UNSET
    )
    around: Annotated[str | UnsetType | None, _says("Only what is near this turn or event.")] = UNSET
    before: Annotated[int | UnsetType | None, _says("So many before it.", maximum=200)] = UNSET
    after: Annotated[int | UnsetType | None, _says("So many after it.", maximum=200)] = UNSET
    limit: Annotated[int | UnsetType | None, _says("Per page; all without it.", maximum=500)] = UNSET
    cursor: Annotated[str | UnsetType | None, _says("page.next_cursor.")] = UNSET


# Envelopes.


class Performance(Struct, frozen=True):
    elapsed_ms: int
    sla_target_ms: int
    met_sla: bool


class Envelope(Struct, Generic[R, D], frozen=True):
    """A successful answer."""

    schema_version: str
    tool: str
    request: R
    data: D
    warnings: list[str]
    performance: Performance


class ErrorBody(Struct, frozen=True):
    code: ErrorCode
    message: str
    details: dict[str, Any]


class ErrorEnvelope(Struct, frozen=True):
    """A refused or failed request; `request` is what was given."""

    schema_version: Literal["moraine.mcp.error.v1"]
    tool: str
    request: dict[str, Any]
    error: ErrorBody
    warnings: list[str]
    performance: Performance


# `gc=False`: an answer may have thousands of these, and they hold no reference cycles.

# open.


class Quote(Struct, frozen=True, gc=False):
    """The beginning of an event's text."""

    event_id: str
    text: str
    truncated: bool


class Page(Struct, frozen=True):
    """The part of the turns or events that is listed, if a part was requested."""

    count: int
    total: int
    next_cursor: str | None


class CapsuleLink(Struct, frozen=True, omit_defaults=True):
    """A handoff note that was distilled from the session; `moss.fetch` takes the id."""

    id: str
    workspace: str
    name: str | None = None
    title: str | None = None


class Links(Struct, frozen=True, omit_defaults=True):
    """Sessions that started this one, or that it started (subagents), and capsules that came out of it."""

    parent_session_id: str | None = None
    child_session_ids: list[str] = []
    capsules: list[CapsuleLink] = []


class HitSession(Struct, frozen=True):
    id: str
    title: str
    source: str
    started_at: str
    updated_at: str
    completed: bool


class SessionHead(HitSession, frozen=True):
    turn_count: int
    event_count: int


class SessionName(Struct, frozen=True):
    id: str
    title: str
    source: str


class SessionRefs(Struct, frozen=True):
    previous_session_id: str | None
    next_session_id: str | None


class TurnIds(Struct, frozen=True, gc=False):
    turn_id: str
    terminal_event_id: str | None


class TurnLine(Struct, frozen=True, gc=False):
    """A turn in the list of its session."""

    id: str
    ordinal: int
    completed: bool
    terminal_event_id: str | None
    event_count: int
    started_at: str
    updated_at: str
    user_input: Quote | None
    final_response: Quote | None
    tools_called: list[str]
    event_types: list[EventType]
    open: TurnIds


class SessionView(Struct, frozen=True, tag_field="kind", tag="session"):
    session: SessionHead
    turns: list[TurnLine]
    traversal: SessionRefs
    links: Links | UnsetType = UNSET
    page: Page | UnsetType = UNSET


class TurnHead(Struct, frozen=True):
    id: str
    session_id: str
    ordinal: int
    completed: bool
    terminal_event_id: str | None
    event_count: int
    started_at: str
    updated_at: str


class TurnSummary(Struct, frozen=True):
    user_input: Quote | None
    final_response: Quote | None
    tools_called: list[str]
    event_types: list[EventType]


class EventLine(Struct, frozen=True, gc=False):
    """An event in the list of its turn."""

    id: str
    ordinal: int
    type: EventType
    timestamp: str
    terminal: bool
    tool_name: str | None
    model: str | None
    summary: str
    truncated: bool


class TurnRefs(Struct, frozen=True):
    session_id: str
    previous_turn_id: str | None
    next_turn_id: str | None
    first_event_id: str | None
    last_event_id: str | None


class TurnView(Struct, frozen=True, tag_field="kind", tag="turn"):
    turn: TurnHead
    session: SessionName
    summary: TurnSummary
    events: list[EventLine]
    traversal: TurnRefs
    page: Page | UnsetType = UNSET


class EventHeader(Struct, frozen=True):
    id: str
    session_id: str
    turn_id: str
    ordinal: int
    type: EventType
    timestamp: str
    terminal: bool
    model: str | None
    originating_model: str | None
    tool_name: str | None


class TextContent(Struct, frozen=True, tag_field="format", tag="text"):
    text: str
    truncated: bool = False


class CallContent(Struct, frozen=True, tag_field="format", tag="tool_call"):
    tool_name: str | None
    arguments: Any
    text: str
    truncated: bool = False


class ResponseContent(Struct, frozen=True, tag_field="format", tag="tool_response"):
    tool_name: str | None
    exit_code: int | None
    text: str
    truncated: bool = False
    failed: bool | UnsetType = UNSET
    """The agent recorded an error; unset if it recorded neither."""


class ReadEvent(Struct, frozen=True):
    """An event with its whole content, for pages and exports; not part of any tool's answer."""

    event: EventHeader
    content: TextContent | CallContent | ResponseContent
    call_id: str | None
    """The same for a tool call and its response."""


class TurnName(Struct, frozen=True):
    id: str
    ordinal: int
    completed: bool


class EventRefs(Struct, frozen=True):
    session_id: str
    turn_id: str
    previous_event_id: str | None
    next_event_id: str | None
    previous_turn_id: str | None
    next_turn_id: str | None


class EventView(Struct, frozen=True, tag_field="kind", tag="event"):
    event: EventHeader
    content: TextContent | CallContent | ResponseContent
    session: SessionName
    turn: TurnName
    traversal: EventRefs
    events: list[EventLine] | UnsetType = UNSET
    """The events before and after it in its turn, and itself, when asked for."""
    links: Links | UnsetType = UNSET


# Cursors: the end of a page, tied to the request it was a page of. Opaque to callers.


class BadCursor(ValueError):
    """Not a cursor, or one of another request; the message says which."""


class _Cursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    question: bytes
    position: tuple[_Integer, str]


_decode = msgspec.msgpack.Decoder(_Cursor).decode


def make_cursor(position: Position, *question: object) -> str:
    return _as_text(msgspec.msgpack.encode(_Cursor(_fingerprint(question), position)))


def _as_text(encoded: bytes) -> str:
    return base64.urlsafe_b64encode(encoded).rstrip(b"=").decode("ascii")


def read_cursor(text: str, *question: object) -> Position:
    try:
        if len(text) > _MAX_CURSOR_CHARS:
            raise ValueError
        encoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = _decode(encoded)
        if _as_text(encoded) != text:
            raise ValueError
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise BadCursor("cursor is not valid; pass next_cursor exactly as it was returned") from None
    if cursor.question != _fingerprint(question):
        raise BadCursor("cursor belongs to another request; only the limit may change between pages")
    return cursor.position


def _fingerprint(question: tuple[object, ...]) -> bytes:
    return digest(*map(repr, question))
