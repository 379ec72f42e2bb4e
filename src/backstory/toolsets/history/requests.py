"""The shapes of the three requests: of what comes in, and of what is echoed with defaults applied.

The limits are told to callers by the schema but checked by the `rules`, in the contract's order. Arguments beyond the
contract stay out of the echo unless they were given.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from ...model import SEARCHABLE_TYPES

__all__ = ["ListSessions", "Open", "SearchSessions"]


def _says(description: str, **schema: Any) -> Meta:
    return Meta(description=description, extra_json_schema=schema)


_Project = Annotated[str | UnsetType | None, _says("Only projects whose path contains this.")]
_Source = Annotated[str | UnsetType | None, _says("Only this agent, e.g. claude-code, codex.")]
_SearchType = Annotated[str, Meta(extra_json_schema={"enum": [str(kind) for kind in SEARCHABLE_TYPES]})]


class SearchSessions(Struct, frozen=True, forbid_unknown_fields=True):
    """What search_sessions takes."""

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
    """What list_sessions takes."""

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
    """What open takes."""

    id: Annotated[str, _says("Session, turn or event ID.")]
    event_types: Annotated[list[str] | UnsetType | None, _says("Only events of these kinds, or turns with such.")] = (
        UNSET
    )
    around: Annotated[str | UnsetType | None, _says("Only what is near this turn or event.")] = UNSET
    before: Annotated[int | UnsetType | None, _says("So many before it.", maximum=200)] = UNSET
    after: Annotated[int | UnsetType | None, _says("So many after it.", maximum=200)] = UNSET
    limit: Annotated[int | UnsetType | None, _says("Per page; all without it.", maximum=500)] = UNSET
    cursor: Annotated[str | UnsetType | None, _says("page.next_cursor.")] = UNSET
