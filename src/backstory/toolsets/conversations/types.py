"""The shapes of the conversations contract."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

__all__ = [
    "Conversation",
    "ConversationPage",
    "ConversationPart",
    "ListArguments",
    "Problem",
    "ReadArguments",
    "SearchArguments",
    "SearchResult",
    "SearchResults",
    "Turn",
    "TurnArguments",
]

Project = Annotated[str | None, Meta(description="Only projects whose name contains this, in any case")]
SessionId = Annotated[str, Meta(description="Session UUID")]


class SearchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    query: Annotated[str, Meta(description='Search keywords (e.g. "watchdog reindex debounce")')]
    limit: Annotated[int, Meta(ge=1, description="Max results to return")] = 10
    session_id: Annotated[str | None, Meta(description="Only turns of this session")] = None
    project: Project = None


class ListArguments(Struct, frozen=True, forbid_unknown_fields=True):
    project: Project = None
    limit: Annotated[int, Meta(ge=1, description="Max sessions to return")] = 50


class TurnArguments(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId
    turn_number: Annotated[int, Meta(description="0-indexed turn number")]


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: SessionId
    offset: Annotated[int, Meta(ge=0, description="Turn offset to start from")] = 0
    limit: Annotated[int, Meta(ge=1, description="Number of turns to return")] = 10


class SearchResult(Struct, frozen=True):
    session_id: str
    project: str
    turn_number: int
    score: float
    snippet: str
    timestamp: str


class SearchResults(Struct, frozen=True):
    results: list[SearchResult]


class Conversation(Struct, frozen=True):
    session_id: str
    project: str
    summary: str
    slug: str | None
    first_timestamp: str
    last_timestamp: str
    turn_count: int
    cwd: str | None
    git_branch: str | None


class ConversationPage(Struct, frozen=True):
    conversations: list[Conversation]


class Turn(Struct, frozen=True):
    session_id: str
    turn_number: int
    timestamp: str
    user_text: str
    assistant_text: str
    tools_used: list[dict[str, Any]]


class ConversationPart(Struct, frozen=True):
    session_id: str
    project: str
    cwd: str | None
    git_branch: str | None
    total_turns: int
    offset: int
    limit: int
    turns: list[Turn]


class Problem(Struct, frozen=True):
    error: str
