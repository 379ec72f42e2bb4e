"""The shapes of what `open` answers: a session, a turn or an event, with its neighbours."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ...model import EventType


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


class SessionHead(Struct, frozen=True):
    id: str
    title: str
    source: str
    started_at: str
    updated_at: str
    completed: bool
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
