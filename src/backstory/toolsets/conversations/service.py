"""The rules of the conversations contract, over the archive that everything else uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...archive.base import Archive, EventRow, SessionRow, TurnsRequest
from ...model import EventType, rfc3339
from ...redact import Mode, egress
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
_COMMAND_CHARS = 200
_MAX_RESULTS = 1_000
_SPOKEN = (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE)
_WITH_TOOLS = (*_SPOKEN, EventType.TOOL_CALL)


class Refused(ValueError):
    """A request that has no answer; the message is what the caller is told."""


class Conversations:
    def __init__(self, archive: Archive, projects: Projects, redact: Mode) -> None:
        self._archive = archive
        self._projects = projects
        self._redact = redact

    def search(self, request: SearchArguments) -> SearchResults:
        if not request.query.strip():
            raise Refused("query must not be empty")
        _check_between("limit", request.limit, 1, _MAX_RESULTS)
        hits = self._archive.search_turns(
            TurnsRequest(
                query=request.query,
                limit=request.limit,
                folders=self._projects.select(self._archive.folders(), request.project),
                session=None if request.session_id is None else f"{_SOURCE}/{request.session_id}",
            )
        )
        results = []
        for hit in hits:
            numbers = self._archive.prompted_turns(hit.session.key)
            spoken = self._archive.events(hit.session.key, hit.turn.ordinal, _SPOKEN)
            tools = "tools: " + " ".join(sorted(hit.turn.tools))
            text = "\n".join((_said(spoken, EventType.USER_INPUT), _said(spoken, EventType.ASSISTANT_RESPONSE), tools))
            results.append(
                SearchResult(
                    session_id=_native_id(hit.session),
                    project=self._project(hit.session),
                    turn_number=numbers.index(hit.turn.ordinal),
                    score=round(hit.score, 4),
                    snippet=self._out(text)[:_SNIPPET_CHARS],
                    timestamp=rfc3339(spoken[0].ts if spoken else hit.turn.started_at),
                )
            )
        return SearchResults(results)

    def list(self, request: ListArguments) -> ConversationPage:
        _check_at_least("limit", request.limit, 1)
        folders = self._projects.select(self._archive.folders(), request.project)
        sessions = self._archive.sessions_in(folders, request.limit)
        return ConversationPage(
            [
                Conversation(
                    session_id=_native_id(session),
                    project=self._project(session),
                    summary=self._summary(session),
                    slug=session.slug,
                    first_timestamp=rfc3339(session.started_at),
                    last_timestamp=rfc3339(session.updated_at),
                    turn_count=len(self._archive.prompted_turns(session.key)),
                    cwd=session.cwd,
                    git_branch=session.branch,
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
        _check_at_least("offset", request.offset, 0)
        _check_at_least("limit", request.limit, 1)
        ordinals = self._archive.prompted_turns(session.key)
        page = range(request.offset, min(request.offset + request.limit, len(ordinals)))
        return ConversationPart(
            session_id=_native_id(session),
            project=self._project(session),
            cwd=session.cwd,
            git_branch=session.branch,
            total_turns=len(ordinals),
            offset=request.offset,
            limit=request.limit,
            turns=[self._turn(session, number, ordinals[number]) for number in page],
        )

    def _session(self, native_id: str) -> SessionRow:
        session = self._archive.session(f"{_SOURCE}/{native_id}")
        if session is None or not session.folder or not self._projects.matches(session.folder):
            raise Refused(f"Unknown session_id: {native_id}")
        return session

    def _turn(self, session: SessionRow, number: int, ordinal: int) -> Turn:
        events = self._archive.events(session.key, ordinal, _WITH_TOOLS)
        prompt = next(event for event in events if event.type is EventType.USER_INPUT)
        calls = (event for event in events if event.type is EventType.TOOL_CALL)
        return Turn(
            session_id=_native_id(session),
            turn_number=number,
            timestamp=rfc3339(prompt.ts),
            user_text=_said(events, EventType.USER_INPUT),
            assistant_text=_said(events, EventType.ASSISTANT_RESPONSE),
            tools_used=[_summarise(call) for call in calls],
        )

    def _project(self, session: SessionRow) -> str:
        return self._projects.name(session.folder or "")

    def _summary(self, session: SessionRow) -> str:
        """The agent's summary, else its name for the session, else how the session began."""
        if session.summary or session.slug:
            return session.summary or session.slug or ""
        for ordinal in self._archive.prompted_turns(session.key)[:1]:
            spoken = self._archive.events(session.key, ordinal, (EventType.USER_INPUT,))
            return self._out(spoken[0].text)[:_SUMMARY_CHARS]
        return ""

    def _out(self, text: str) -> str:
        """As it leaves: to be done before it is cut, or half a secret would pass."""
        return egress(text, self._redact)


def _native_id(session: SessionRow) -> str:
    return session.key.partition("/")[2]


def _said(events: list[EventRow], kind: EventType) -> str:
    return "\n".join(event.text for event in events if event.type is kind)


def _summarise(call: EventRow) -> dict[str, Any]:
    """A tool call in one line: the tool and the one argument that tells what it was about."""
    tool = call.tool or ""
    given: Mapping[str, Any] = call.arguments if isinstance(call.arguments, dict) else {}
    match tool:
        case "Read" | "Edit":
            return {"tool": tool, "file": given.get("file_path")}
        case "Write":
            return {"tool": tool, "file": given.get("file_path"), "chars": len(str(given.get("content") or ""))}
        case "Bash":
            return {"tool": tool, "command": str(given.get("command") or "")[:_COMMAND_CHARS]}
        case "Grep" | "Glob":
            return {"tool": tool, "pattern": given.get("pattern")}
        case "Task":
            return {"tool": tool, "type": given.get("subagent_type"), "description": given.get("description")}
    return {"tool": tool}


def _check_at_least(field: str, value: int, least: int) -> None:
    if value < least:
        raise Refused(f"{field} must be {least} or more, not {value}")


def _check_between(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise Refused(f"{field} must be between {least} and {most}, not {value}")
