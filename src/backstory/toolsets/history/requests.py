"""The shapes of the three requests: of what comes in, and of what is echoed with defaults applied.

The limits are told to callers by the schema but checked by the `rules`, in the contract's order. Arguments beyond the
contract stay out of the echo unless they were given.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ...model import EVENT_TYPES, SEARCHABLE_TYPES

__all__ = ["ListSessions", "Open", "SearchSessions"]


def _says(description: str, **schema: Any) -> Meta:
    return Meta(description=description, extra_json_schema=schema)


_Project = Annotated[
    str | UnsetType | None, _says("Only sessions whose project path contains this text, in any case.", minLength=1)
]
_Source = Annotated[str | UnsetType | None, _says("Only sessions of this agent, e.g. claude-code or codex.")]
_SearchType = Annotated[str, Meta(extra_json_schema={"enum": [str(kind) for kind in SEARCHABLE_TYPES]})]
_AnyType = Annotated[str, Meta(extra_json_schema={"enum": [str(kind) for kind in EVENT_TYPES]})]


class SearchSessions(Struct, frozen=True, forbid_unknown_fields=True):
    """What search_sessions takes."""

    query: Annotated[
        str,
        _says(
            "What to look for: plain words, identifiers, file paths, commands, error messages, in any language. "
            'Put an exact phrase in "double quotes".',
            minLength=1,
            maxLength=4096,
        ),
    ]
    within_id: Annotated[
        str | None, _says("Search only this session or turn (an ID returned by these tools). Null searches everything.")
    ] = None
    event_types: Annotated[
        list[_SearchType] | None,
        _says(
            "Kinds of events to search. Default: user_input, assistant_response, tool_response. "
            "Name tool_call to find commands, file paths and arguments; reasoning to find thoughts.",
            minItems=1,
        ),
    ] = None
    n_hits: Annotated[int | None, _says("How many hits to return. Default 10.", minimum=1, maximum=50)] = None
    project: _Project = UNSET
    source: _Source = UNSET
    since: Annotated[
        str | UnsetType | None, _says("Only events at or after this time (RFC 3339 with offset or Z).")
    ] = UNSET
    until: Annotated[str | UnsetType | None, _says("Only events before this time (RFC 3339 with offset or Z).")] = UNSET


class ListSessions(Struct, frozen=True, forbid_unknown_fields=True):
    """What list_sessions takes."""

    start_datetime: Annotated[
        str, _says("Start of the window, inclusive: RFC 3339 with an offset or Z, e.g. 2026-04-30T09:00:00-04:00.")
    ]
    end_datetime: Annotated[str, _says("End of the window, exclusive; later than the start. Same format.")]
    limit: Annotated[int | None, _says("Sessions per page. Default 20.", minimum=1, maximum=50)] = None
    cursor: Annotated[
        str | None,
        _says("next_cursor of the page before; all other arguments must then be the same, limit excepted."),
    ] = None
    mode: Annotated[
        str | None,
        _says(
            "Only sessions of this kind: web_search (searched the web), mcp_internal (called these tools), "
            "tool_calling (called other tools), chat (called none).",
            enum=["web_search", "mcp_internal", "tool_calling", "chat", None],
        ),
    ] = None
    sort: Annotated[
        str | None,
        _says("By updated_at, newest first (desc, the default) or oldest first.", enum=["desc", "asc", None]),
    ] = None
    project: _Project = UNSET
    source: _Source = UNSET


class Open(Struct, frozen=True, forbid_unknown_fields=True):
    """What open takes."""

    id: Annotated[
        str,
        _says(
            "A session, turn or event ID exactly as returned by search_sessions, list_sessions or open.", minLength=1
        ),
    ]
    event_types: Annotated[
        list[_AnyType] | UnsetType | None,
        _says(
            "Turn: list only events of these kinds. Session: list only turns that have such events.",
            minItems=1,
        ),
    ] = UNSET
    around: Annotated[
        str | UnsetType | None,
        _says("List only what is near this turn (opening its session) or near this event (opening its turn)."),
    ] = UNSET
    before: Annotated[
        int | UnsetType | None,
        _says("With around, or opening an event: how many turns or events to list before it.", minimum=0, maximum=200),
    ] = UNSET
    after: Annotated[
        int | UnsetType | None,
        _says("With around, or opening an event: how many turns or events to list after it.", minimum=0, maximum=200),
    ] = UNSET
    limit: Annotated[
        int | UnsetType | None,
        _says(
            "Page through the turns or events, this many at a time. Without it all are listed.", minimum=1, maximum=500
        ),
    ] = UNSET
    cursor: Annotated[str | UnsetType | None, _says("page.next_cursor of the page before.")] = UNSET
