"""Answers: the envelope of every one (its measured time, its warnings, errors as answers), and what search_sessions and
list_sessions put into it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from ...archive.base import DeadlineExceeded, Mode
from ...archive.errors import explain
from ...egress import Mode as EgressMode
from ...egress import count_redacted, egress
from ...model import EventType
from ..base import Arguments, Failure, Frame, Released, Reply, excerpt, received_at
from .types import (
    CallContent,
    Envelope,
    ErrorBody,
    ErrorCode,
    ErrorEnvelope,
    EventView,
    HitSession,
    Performance,
    SessionHead,
)

# search_sessions


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


# list_sessions


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


# The envelope


_MAX_REASON_BYTES = 1024


class Refusal(Exception):
    """The request cannot be answered: the contract's code, and what the caller can do about it."""

    def __init__(self, code: ErrorCode, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.details = details


class Call:
    """One request: its arguments, its time, the target that applies, and its warnings."""

    def __init__(self, tool: str, arguments: Arguments, sla_target_ms: int, *, mode: EgressMode) -> None:
        self.tool = tool
        self.arguments = arguments
        self.sla_target_ms = sla_target_ms
        self.warnings: list[str] = []
        self._started = received_at()
        self._seconds = math.inf
        self._mode = mode

    def deadline(self, seconds: float) -> float:
        """Set the time limit of the answer; gives its end on the monotonic clock."""
        self._seconds = seconds
        return self._started + seconds

    def check_deadline(self) -> None:
        if time.monotonic() > self._started + self._seconds:
            raise DeadlineExceeded

    def answer(self, request: msgspec.Struct, data: msgspec.Struct) -> Released:
        # The data is serialised before the clock is read, so that the time includes it.
        encoded = msgspec.json.encode(data)
        if self._mode != "off" and (redacted := _redactions(data, encoded)):
            self.warnings.append(f"{redacted} secret{'s were' if redacted > 1 else ' was'} redacted in this answer.")
        envelope = Envelope(
            f"moraine.mcp.{self.tool}.v1",
            self.tool,
            request,  # not from history: repeated as the caller typed it
            msgspec.Raw(encoded),
            egress(self.warnings, self._mode),  # a warning may quote the source in the request
            self._performance(),
        )
        return Released(envelope)

    def refuse(self, error: Exception) -> Failure | None:
        """The error envelope for a failure with a known cause."""
        if isinstance(error, DeadlineExceeded):
            message = f"{self.tool} did not finish within {self._seconds:g} seconds; ask for less or try again"
            error = Refusal("deadline_exceeded", message, deadline_ms=round(self._seconds * 1000))
        elif reason := explain(error):
            return self.unexpected(f"{self.tool} failed: {reason}")
        return self._failure(error) if isinstance(error, Refusal) else None

    def unexpected(self, message: str) -> Failure:
        return self._failure(Refusal("internal_error", message))

    def _failure(self, refusal: Refusal) -> Failure:
        message, details = excerpt([refusal.message, refusal.details], _MAX_REASON_BYTES, self._mode)
        body = ErrorBody(refusal.code, message, details)
        request = excerpt(self.arguments, mode=self._mode) if isinstance(self.arguments, Mapping) else {}
        envelope = ErrorEnvelope("moraine.mcp.error.v1", self.tool, request, body, self.warnings, self._performance())
        return Failure(envelope, is_error=False, excerpted=True)

    def _performance(self) -> Performance:
        elapsed = (time.monotonic() - self._started) * 1000
        return Performance(math.ceil(elapsed), self.sla_target_ms, elapsed <= self.sla_target_ms)


def _redactions(data: msgspec.Struct, encoded: bytes) -> int:
    """The secrets that were replaced in an answer. The text of a tool call repeats its arguments."""
    content = data.content if isinstance(data, EventView) else None
    repeated = count_redacted(content.text.encode()) if isinstance(content, CallContent) else 0
    return count_redacted(encoded) - repeated


def handle(
    tool: str, arguments: Arguments, sla_target_ms: int, action: Callable[[Call], Released], *, mode: EgressMode
) -> Reply:
    """The reply of the common frame, with the envelope of this call. `sla_target_ms` holds until the action sets
    another."""
    call = Call(tool, arguments, sla_target_ms, mode=mode)
    frame = Frame(refuse=call.refuse, unexpected=call.unexpected, mode=mode)
    return frame.raw_handler(tool, lambda _: action(call))(arguments)
