"""The shapes of the conversations contract."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

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


class SearchArguments(Struct, frozen=True, forbid_unknown_fields=True):
    query: str
    limit: int = 10
    session_id: str | None = None
    project: str | None = None


class ListArguments(Struct, frozen=True, forbid_unknown_fields=True):
    project: str | None = None
    limit: int = 50


class TurnArguments(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    turn_number: int


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    session_id: str
    offset: int = 0
    limit: int = 10


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
