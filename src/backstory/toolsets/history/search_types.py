"""The answers of search_sessions and list_sessions."""

from __future__ import annotations

from msgspec import Struct

from ...archive.base import Mode
from ...model import EventType
from .types import HitSession, SessionHead

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


class ListedSession(SessionHead, frozen=True):
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
