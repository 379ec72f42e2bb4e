"""The shapes of the contract: its requests, its envelopes, and the answers of search_sessions and list_sessions.

The schema has the limits of a request, `rules` checks them, in the contract's order. Arguments beyond the contract are
echoed only if they were given.
"""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from ...archive.base import Mode
from ...model import SEARCHABLE_TYPES, EventType

R = TypeVar("R")
D = TypeVar("D")

ErrorCode = Literal[
    "invalid_request", "invalid_id", "not_found", "unsupported_event_type", "deadline_exceeded", "internal_error"
]


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


# What answers have thousands of is none of the garbage collector's business (`gc=False`): it holds no cycles.

# search_sessions.


class HitEvent(Struct, frozen=True):
    id: str
    type: EventType
    timestamp: str
    ordinal: int
    terminal: bool


class HitTurn(Struct, frozen=True):
    id: str
    ordinal: int
    completed: bool
    event_count: int


class HitSession(Struct, frozen=True):
    id: str
    title: str
    source: str
    started_at: str
    updated_at: str
    completed: bool


class Excerpt(Struct, frozen=True, gc=False):
    text: str
    truncated: bool


class HitIds(Struct, frozen=True):
    event_id: str
    turn_id: str
    session_id: str


class SearchHit(Struct, frozen=True):
    rank: int
    score: float
    id: str
    event: HitEvent
    turn: HitTurn
    session: HitSession
    snippet: Excerpt
    open: HitIds


class WordExplained(Struct, frozen=True):
    """A word of the query: the events that have it, and the similar words that were taken where none has."""

    word: str
    events: int
    read_as: tuple[str, ...]


class HitExplained(Struct, frozen=True, kw_only=True):
    """The words that a hit matches, by field, and the parts of its score: the sum of event, session, turn and title,
    times the factors. The response divides it by the highest score that the query can reach."""

    id: str
    matched: dict[str, list[str]]
    event: float
    session: float
    turn: float
    title: float
    factor: float
    """For the project and time that the query names, the caller's project, and recent work."""
    repeated: float
    """Below 1 for a further hit of the same session."""


class Explanation(Struct, frozen=True):
    searched_events: int
    words: list[WordExplained]
    hits: list[HitExplained]


class SearchData(Struct, frozen=True):
    result_count: int
    limit: int
    truncated: bool
    results: list[SearchHit]


class ExplainedData(SearchData, frozen=True):
    explanation: Explanation


# list_sessions.


class ListedSession(Struct, frozen=True):
    id: str
    title: str
    source: str
    started_at: str
    updated_at: str
    completed: bool
    turn_count: int
    event_count: int
    mode: Mode
    session_slug: str | None
    session_summary: str | None


class SessionId(Struct, frozen=True):
    session_id: str


class Listing(Struct, frozen=True):
    rank: int
    id: str
    session: ListedSession
    open: SessionId


class ListingData(Struct, frozen=True):
    result_count: int
    limit: int
    truncated: bool
    sessions: list[Listing]
    next_cursor: str | None
