"""The rules of the conversations contract, over the archive that everything else uses."""

from __future__ import annotations

from typing import Any

from ...archive.base import Archive, EventRow, Exchange, ExchangeHit, ExchangesRequest, SessionRow
from ...egress import Mode, egress
from ...model import EventType, rfc3339
from .calls import summarise
from .projects import Projects
from .types import (
    Conversation,
    ConversationPage,
    ConversationPart,
    ListArguments,
    ReadArguments,
    SearchArguments,
    SearchResult,
    SearchResults,
    Turn,
    TurnArguments,
)

__all__ = ["Conversations", "Refused"]

_SOURCE = "claude-code"
_SNIPPET_CHARS = 300
_SUMMARY_CHARS = 200
# A turn can have hundreds of answers; the first few are enough for a snippet, nearly always.
_FIRST_EVENTS = 16
# How far a secret may reach beyond the place where a text is cut.
_SECRET_CHARS = 16_384


class Refused(ValueError):
    """A request that has no answer; the message is what the caller is told."""


class Conversations:
    """A turn of a conversation is an exchange of the archive."""

    def __init__(self, archive: Archive, projects: Projects, redact: Mode) -> None:
        self._archive = archive
        self._projects = projects
        self._redact = redact

    def search(self, request: SearchArguments) -> SearchResults:
        if not request.query.strip():
            raise Refused("query must not be empty")
        hits = self._archive.search_exchanges(
            ExchangesRequest(
                query=request.query,
                limit=request.limit,
                folders=self._projects.having(request.project),
                session=None if request.session_id is None else _key(request.session_id),
            )
        )
        return SearchResults([result for hit in hits if (result := self._result(hit))])

    def browse(self, request: ListArguments) -> ConversationPage:
        sessions = self._archive.conversations(_SOURCE, self._projects.having(request.project), request.limit)
        return ConversationPage([self._conversation(session) for session in sessions])

    def _conversation(self, session: SessionRow) -> Conversation:
        return Conversation(
            session_id=self._id(session),
            project=self._project(session),
            summary=egress(session.summary or session.slug or "", self._redact) or self._beginning(session),
            slug=session.slug,
            first_timestamp=rfc3339(session.first_at),
            last_timestamp=rfc3339(session.last_at),
            turn_count=session.exchange_count,
            cwd=session.cwd,
            git_branch=session.branch,
        )

    def _beginning(self, session: SessionRow) -> str:
        """How a session without a summary began. Only what stands before all user records has no user text."""
        exchanges = self._archive.exchanges(session.key, limit=2, events=0)
        texts = [exchange.user_text for exchange in exchanges if exchange.user_text is not None]
        return self._head(texts[0], _SUMMARY_CHARS) if texts else ""

    def read_turn(self, request: TurnArguments) -> Turn:
        session = self._session(request.session_id)
        exchanges = self._archive.exchanges(session.key, request.turn_number, 1) if request.turn_number >= 0 else []
        if not exchanges:
            raise Refused(f"Turn {request.turn_number} out of range (session has {session.exchange_count} turns)")
        return self._turn(session, exchanges[0])

    def read(self, request: ReadArguments) -> ConversationPart:
        session = self._session(request.session_id)
        return ConversationPart(
            session_id=self._id(session),
            project=self._project(session),
            cwd=session.cwd,
            git_branch=session.branch,
            total_turns=session.exchange_count,
            offset=request.offset,
            limit=request.limit,
            turns=[
                self._turn(session, exchange)
                for exchange in self._archive.exchanges(session.key, request.offset, request.limit)
            ],
        )

    def _session(self, native_id: str) -> SessionRow:
        session = self._archive.session(_key(native_id))
        if session is None or not session.folder or session.parent or not session.last_at:
            raise Refused(f"Unknown session_id: {native_id}")
        if not self._projects.matches(session.folder):
            raise Refused(f"Unknown session_id: {native_id}")
        return session

    def _result(self, hit: ExchangeHit) -> SearchResult | None:
        exchange = self._exchange(hit, _FIRST_EVENTS)
        if exchange is None:  # deleted since it was found
            return None
        snippet = self._head(_said(exchange), _SNIPPET_CHARS)
        if len(snippet) < _SNIPPET_CHARS:
            if len(exchange.said) == _FIRST_EVENTS:
                exchange = self._exchange(hit, None) or exchange
            tools = sorted({event.tool or "" for event in exchange.said if event.type is EventType.TOOL_CALL})
            snippet = self._head(f"{_said(exchange)}\ntools: {' '.join(tools)}", _SNIPPET_CHARS)
        return SearchResult(
            session_id=self._id(hit.session),
            project=self._project(hit.session),
            turn_number=hit.number,
            score=round(hit.score, 4),
            snippet=snippet,
            timestamp=rfc3339(exchange.ts),
        )

    def _exchange(self, hit: ExchangeHit, events: int | None) -> Exchange | None:
        return next(iter(self._archive.exchanges(hit.session.key, hit.number, 1, events)), None)

    def _turn(self, session: SessionRow, exchange: Exchange) -> Turn:
        return Turn(
            session_id=self._id(session),
            turn_number=exchange.number,
            timestamp=rfc3339(exchange.ts),
            user_text=exchange.user_text or "",
            assistant_text=_answers(exchange),
            tools_used=[self._call(event) for event in exchange.said if event.type is EventType.TOOL_CALL],
        )

    def _call(self, call: EventRow) -> dict[str, Any]:
        return summarise(call, self._head)

    def _id(self, session: SessionRow) -> str:
        return session.key.removeprefix(f"{_SOURCE}/")

    def _project(self, session: SessionRow) -> str:
        return self._projects.name(session.folder or "")

    def _head(self, text: str, chars: int) -> str:
        """The first characters of the redacted text: a cut before redaction could leave half a secret."""
        head = egress(text[: chars + _SECRET_CHARS], self._redact)
        if len(head) < chars and len(text) > chars + _SECRET_CHARS:
            head = egress(text, self._redact)
        return head[:chars]


def _key(native_id: str) -> str:
    return f"{_SOURCE}/{native_id}"


def _said(exchange: Exchange) -> str:
    """What a turn is searched by, but for its tools."""
    return f"{exchange.user_text or ''}\n{_answers(exchange)}"


def _answers(exchange: Exchange) -> str:
    return "\n".join(event.text for event in exchange.said if event.type is not EventType.TOOL_CALL)
