"""The conversations contract: its four tools, small and direct access to Claude Code conversations, their shapes and
their rules, over the archive that everything else uses."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from ..archive.base import (
    Archive,
    EventRow,
    Exchange,
    ExchangesRequest,
    Folders,
    SessionRow,
    SessionsRequest,
    any_folder,
)
from ..config import Settings
from ..egress import Mode, egress
from ..model import EventType, rfc3339
from .base import Arguments, BadArgument, Failure, Frame, Tool, Toolset, decode_arguments, input_schema, output_schema

Request = TypeVar("Request")
Project = Annotated[str | None, Meta(description="Only projects whose name contains this, in any case")]
SessionId = Annotated[str, Meta(description="Session UUID")]
_SOURCE = "claude-code"
_WILDCARD = re.compile(r"[*?\[]")
# Tool -> the fields of its summary, and the arguments they are taken from. Other tools have their name alone.
_SUMMARY_FIELDS = {
    "Read": {"file": "file_path"},
    "Write": {"file": "file_path"},
    "Edit": {"file": "file_path"},
    "Bash": {"command": "command"},
    "Grep": {"pattern": "pattern"},
    "Glob": {"pattern": "pattern"},
    "Task": {"type": "subagent_type", "description": "description"},
}
_COMMAND_CHARS = 200
_SNIPPET_CHARS = 300
_SUMMARY_CHARS = 200
# A turn can have hundreds of answers; the first few are enough for a snippet, nearly always.
_FIRST_EVENTS = 16
# How far a secret may reach beyond the place where a text is cut.
_SECRET_CHARS = 16_384


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


class Refused(ValueError):
    """A request that has no answer; the message is for the caller."""


class Projects:
    """A glob pattern over the names of Claude Code's project folders."""

    def __init__(self, pattern: str = "*") -> None:
        self.pattern = pattern
        self._prefix = _WILDCARD.split(pattern, maxsplit=1)[0]

    def matches(self, folder: str) -> bool:
        return fnmatch.fnmatchcase(folder, self.pattern)

    def name(self, folder: str) -> str:
        """The folder without the fixed beginning of the pattern: `-home-me-sites-blog` is `blog` under
        `-home-me-sites*`."""
        if not self._prefix:
            return folder
        return folder.removeprefix(self._prefix).lstrip("-") or folder

    def having(self, part: str | None) -> Folders:
        """Selects the folders that match the pattern and, if given, whose name contains the part, in any case."""
        if self.pattern == "*" and not part:
            return any_folder
        folded = (part or "").casefold()
        return lambda folder: self.matches(folder) and folded in self.name(folder).casefold()


class Conversations:
    """A turn of a conversation is an exchange of the archive."""

    def __init__(self, archive: Callable[[], Archive], projects: Projects, redact: Mode) -> None:
        self._opened = archive
        self._projects = projects
        self._redact = redact

    @property
    def _archive(self) -> Archive:
        return self._opened()

    def search(self, request: SearchArguments) -> SearchResults:
        if not request.query.strip():
            raise Refused("query must not be empty")
        hits = self._archive.exchanges(
            ExchangesRequest(
                query=request.query,
                limit=request.limit,
                folders=self._projects.having(request.project),
                session=None if request.session_id is None else _key(request.session_id),
                events=_FIRST_EVENTS,
            )
        )
        return SearchResults([self._result(hit) for hit in hits])

    def browse(self, request: ListArguments) -> ConversationPage:
        folders = self._projects.having(request.project)
        sessions = self._archive.sessions(SessionsRequest(source=_SOURCE, folders=folders, limit=request.limit))
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
        """The first user text, for a session without a summary. Only what is before all user records has none."""
        exchanges = self._archive.exchanges(ExchangesRequest(session=session.key, limit=2, events=0))
        texts = [exchange.user_text for exchange in exchanges if exchange.user_text is not None]
        return self._head(texts[0], _SUMMARY_CHARS) if texts else ""

    def read_turn(self, request: TurnArguments) -> Turn:
        session = self._session(request.session_id)
        exchange = self._exchange(session.key, request.turn_number) if request.turn_number >= 0 else None
        if exchange is None:
            raise Refused(f"Turn {request.turn_number} out of range (session has {session.exchange_count} turns)")
        return self._turn(session, exchange)

    def read(self, request: ReadArguments) -> ConversationPart:
        session = self._session(request.session_id)
        exchanges = self._archive.exchanges(
            ExchangesRequest(session=session.key, first=request.offset, limit=request.limit)
        )
        return ConversationPart(
            session_id=self._id(session),
            project=self._project(session),
            cwd=session.cwd,
            git_branch=session.branch,
            total_turns=session.exchange_count,
            offset=request.offset,
            limit=request.limit,
            turns=[self._turn(session, exchange) for exchange in exchanges],
        )

    def _session(self, native_id: str) -> SessionRow:
        session = self._archive.session(_key(native_id))
        if session is None or not session.folder or session.parent or not session.last_at:
            raise Refused(f"Unknown session_id: {native_id}")
        if not self._projects.matches(session.folder):
            raise Refused(f"Unknown session_id: {native_id}")
        return session

    def _result(self, hit: Exchange) -> SearchResult:
        number, exchange = hit.row.number, hit
        snippet = self._head(_said(exchange), _SNIPPET_CHARS)
        if len(snippet) < _SNIPPET_CHARS:
            if len(exchange.said) == _FIRST_EVENTS:
                exchange = self._exchange(hit.session.key, number) or exchange
            tools = sorted({event.tool or "" for event in exchange.said if event.type is EventType.TOOL_CALL})
            snippet = self._head(f"{_said(exchange)}\ntools: {' '.join(tools)}", _SNIPPET_CHARS)
        return SearchResult(
            session_id=self._id(hit.session),
            project=self._project(hit.session),
            turn_number=number,
            score=round(hit.score, 4),
            snippet=snippet,
            timestamp=rfc3339(exchange.row.ts),
        )

    def _exchange(self, key: str, number: int) -> Exchange | None:
        request = ExchangesRequest(session=key, first=number, limit=1)
        return next(self._archive.exchanges(request), None)

    def _turn(self, session: SessionRow, exchange: Exchange) -> Turn:
        return Turn(
            session_id=self._id(session),
            turn_number=exchange.row.number,
            timestamp=rfc3339(exchange.row.ts),
            user_text=exchange.user_text or "",
            assistant_text=_answers(exchange),
            tools_used=[self._call(event) for event in exchange.said if event.type is EventType.TOOL_CALL],
        )

    def _call(self, call: EventRow) -> dict[str, Any]:
        """The tool, and the arguments that identify the call; a missing argument is null."""
        tool = call.tool or ""
        given = call.arguments if isinstance(call.arguments, dict) else {}
        summary: dict[str, Any] = {"tool": tool}
        for name, argument in _SUMMARY_FIELDS.get(tool, {}).items():
            summary[name] = _argument(given.get(argument))
        if tool == "Write":
            summary["chars"] = len(_argument(given.get("content")) or "")
        if tool == "Bash" and summary["command"] is not None:
            summary["command"] = self._head(summary["command"], _COMMAND_CHARS)
        return summary

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
    """The text that a turn is searched by, without its tools."""
    return f"{exchange.user_text or ''}\n{_answers(exchange)}"


def _answers(exchange: Exchange) -> str:
    return "\n".join(event.text for event in exchange.said if event.type is not EventType.TOOL_CALL)


def _argument(value: object) -> str | None:
    """An argument as text: agents sometimes pass other values, which are shown as JSON."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


# The tools

_INSTRUCTIONS = (
    "Conversations: past Claude Code turns. search_conversations by keywords, then read_turn or read_conversation; "
    "list_conversations shows what there is."
)
_SEARCH = (
    "BM25 keyword search across all turns of past Claude Code conversations, best first. Use the words you expect in "
    "the prompt, the answer or the tools' names. Pass session_id and turn_number of a result to read_turn to see it in "
    "full."
)
_LIST = "Browse past Claude Code sessions with their metadata, the most recent activity first."
_READ_TURN = "One turn in full: everything the user and the assistant said, and a line for each tool call."
_READ = "Read a session turn by turn, a page at a time."


def toolset(
    archive: Callable[[], Archive],
    settings: Settings,
    pattern: str = "*",
    *,
    until_ready: Callable[[], None] = lambda: None,
) -> Toolset:
    """`pattern` is a glob over the names of Claude Code's project folders; other projects do not exist here.
    `until_ready` returns when there is something to answer from."""
    service = Conversations(archive, Projects(pattern), settings.redact)
    frame = Frame(refuse=_refuse, unexpected=lambda message: Failure(Problem(message)), mode=settings.redact)

    def tool(
        name: str, description: str, request: type[Request], answer: type[Any], handle: Callable[[Request], Any]
    ) -> Tool:
        def action(arguments: Arguments) -> Any:
            given = decode_arguments(request, _writable(arguments))
            until_ready()
            return msgspec.to_builtins(handle(given))

        return Tool(
            name=name,
            description=description,
            input=input_schema(request, null_defaults=True),
            output=output_schema(answer, Problem),
            handler=frame.raw_handler(name, action),
            structured_errors=True,
            read_only=True,
            idempotent=True,
        )

    return Toolset(
        name="conversations",
        instructions=_INSTRUCTIONS,
        tools=(
            tool("search_conversations", _SEARCH, SearchArguments, SearchResults, service.search),
            tool("list_conversations", _LIST, ListArguments, ConversationPage, service.browse),
            tool("read_turn", _READ_TURN, TurnArguments, Turn, service.read_turn),
            tool("read_conversation", _READ, ReadArguments, ConversationPart, service.read),
        ),
    )


def _refuse(error: Exception) -> Failure | None:
    """Errors of the caller are ordinary answers in this contract."""
    return Failure(Problem(str(error)), is_error=False) if isinstance(error, BadArgument | Refused) else None


def _writable(arguments: Arguments) -> dict[str, Any]:
    """Half a character (a lone surrogate) can be neither looked for nor given back."""
    return {_whole(name): _whole(value) if isinstance(value, str) else value for name, value in arguments.items()}


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
