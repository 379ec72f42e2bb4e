"""The rules of the conversations contract, over the archive that everything else uses."""

from __future__ import annotations

from typing import Any, overload

from ...archive.base import Archive, EventRow, Part, Prompted, SessionRow, TurnHit, TurnsRequest
from ...model import EventType, rfc3339
from ...redact import Mode, egress, egress_value
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
_SPOKEN = (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE)
_WITH_TOOLS = (*_SPOKEN, EventType.TOOL_CALL)
# A turn can have hundreds of answers; the first few are enough for a snippet, nearly always.
_FIRST_EVENTS = 8
# How far a secret may reach beyond the place where a text is cut.
_SECRET_CHARS = 16_384


class Refused(ValueError):
    """A request that has no answer; the message is what the caller is told."""


class Conversations:
    """Turns are those that a prompt began, numbered from zero."""

    def __init__(self, archive: Archive, projects: Projects, redact: Mode) -> None:
        self._archive = archive
        self._projects = projects
        self._redact = redact

    def search(self, request: SearchArguments) -> SearchResults:
        if not request.query.strip():
            raise Refused("query must not be empty")
        hits = self._archive.search_turns(
            TurnsRequest(
                query=request.query,
                limit=request.limit,
                folders=self._folders(request.project),
                session=None if request.session_id is None else _key(request.session_id),
            )
        )
        return SearchResults([self._result(hit) for hit in hits])

    def browse(self, request: ListArguments) -> ConversationPage:
        sessions = self._archive.sessions_in(self._folders(request.project), request.limit)
        prompted = self._archive.prompted([session.key for session in sessions])
        beginnings = self._beginnings([s for s in sessions if not s.summary and not s.slug], prompted)
        return ConversationPage(
            [
                Conversation(
                    session_id=self._id(session),
                    project=self._project(session),
                    summary=self._out(session.summary or session.slug) or beginnings.get(session.key, ""),
                    slug=self._out(session.slug),
                    first_timestamp=rfc3339(session.started_at),
                    last_timestamp=rfc3339(session.updated_at),
                    turn_count=prompted[session.key].count if session.key in prompted else 0,
                    cwd=self._out(session.cwd),
                    git_branch=self._out(session.branch),
                )
                for session in sessions
            ]
        )

    def read_turn(self, request: TurnArguments) -> Turn:
        session = self._session(request.session_id)
        ordinals = self._archive.prompted_turns(session.key)
        if not 0 <= request.turn_number < len(ordinals):
            raise Refused(f"Turn {request.turn_number} out of range (session has {len(ordinals)} turns)")
        return self._turn(session, request.turn_number, ordinals[request.turn_number])

    def read(self, request: ReadArguments) -> ConversationPart:
        session = self._session(request.session_id)
        ordinals = self._archive.prompted_turns(session.key)
        page = range(request.offset, min(request.offset + request.limit, len(ordinals)))
        return ConversationPart(
            session_id=self._id(session),
            project=self._project(session),
            cwd=self._out(session.cwd),
            git_branch=self._out(session.branch),
            total_turns=len(ordinals),
            offset=request.offset,
            limit=request.limit,
            turns=[self._turn(session, number, ordinals[number]) for number in page],
        )

    def _beginnings(self, sessions: list[SessionRow], prompted: dict[str, Prompted]) -> dict[str, str]:
        """How sessions that nobody gave a name began."""
        first = {session.key: prompted[session.key].first for session in sessions if session.key in prompted}
        heads = self._archive.event_heads(list(first.values()), _SUMMARY_CHARS + _SECRET_CHARS)
        return {key: self._head(heads[uid][0], _SUMMARY_CHARS) for key, uid in first.items()}

    def _folders(self, project: str | None) -> tuple[str, ...] | None:
        """Where to look; None: everywhere."""
        return None if self._projects.has_all(project) else self._projects.select(self._archive.folders(), project)

    def _session(self, native_id: str) -> SessionRow:
        session = self._archive.session(_key(native_id))
        if session is None or not session.folder or session.parent or not session.event_count:
            raise Refused(f"Unknown session_id: {native_id}")
        if not self._projects.matches(session.folder):
            raise Refused(f"Unknown session_id: {native_id}")
        return session

    def _result(self, hit: TurnHit) -> SearchResult:
        spoken = self._archive.events(hit.session.key, hit.turn.ordinal, Part(types=_SPOKEN, limit=_FIRST_EVENTS))
        snippet = self._head(_said(spoken), _SNIPPET_CHARS)
        if len(snippet) < _SNIPPET_CHARS:
            if len(spoken) == _FIRST_EVENTS:
                spoken = self._archive.events(hit.session.key, hit.turn.ordinal, Part(types=_SPOKEN))
            whole = f"{_said(spoken)}\ntools: {' '.join(sorted(hit.turn.tools))}"
            snippet = self._head(whole, _SNIPPET_CHARS)
        return SearchResult(
            session_id=self._id(hit.session),
            project=self._project(hit.session),
            turn_number=hit.number,
            score=round(hit.score, 4),
            snippet=snippet,
            timestamp=rfc3339(spoken[0].ts),
        )

    def _turn(self, session: SessionRow, number: int, ordinal: int) -> Turn:
        events = self._archive.events(session.key, ordinal, Part(types=_WITH_TOOLS))
        return Turn(
            session_id=self._id(session),
            turn_number=number,
            timestamp=rfc3339(next(event.ts for event in events if event.type is EventType.USER_INPUT)),
            user_text=self._out(_texts(events, EventType.USER_INPUT)),
            assistant_text=self._out(_texts(events, EventType.ASSISTANT_RESPONSE)),
            tools_used=[self._call(event) for event in events if event.type is EventType.TOOL_CALL],
        )

    def _call(self, call: EventRow) -> dict[str, Any]:
        summary: dict[str, Any] = egress_value(summarise(call, self._head), self._redact)
        return summary

    def _id(self, session: SessionRow) -> str:
        return self._out(session.key.removeprefix(f"{_SOURCE}/"))

    def _project(self, session: SessionRow) -> str:
        return self._out(self._projects.name(session.folder or ""))

    # Everything here was written by others: this is how it leaves.

    @overload
    def _out(self, text: str) -> str: ...
    @overload
    def _out(self, text: str | None) -> str | None: ...
    def _out(self, text: str | None) -> str | None:
        return egress(text, self._redact) if text is not None else None

    def _head(self, text: str, chars: int) -> str:
        """The first characters: cut last, or half a secret would pass."""
        head = self._out(text[: chars + _SECRET_CHARS])
        if len(head) < chars and len(text) > chars + _SECRET_CHARS:
            head = self._out(text)
        return head[:chars]


def _key(native_id: str) -> str:
    return f"{_SOURCE}/{native_id}"


def _said(events: list[EventRow]) -> str:
    """What a turn is searched by, but for its tools."""
    return f"{_texts(events, EventType.USER_INPUT)}\n{_texts(events, EventType.ASSISTANT_RESPONSE)}"


def _texts(events: list[EventRow], kind: EventType) -> str:
    return "\n".join(event.text for event in events if event.type is kind)
