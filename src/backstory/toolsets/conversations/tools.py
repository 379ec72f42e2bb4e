"""The four tools: small, direct access to Claude Code conversations."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ...archive.base import Archive
from ...config import Settings
from ...redact import clean
from ..base import Arguments, BadArgument, Reply, Tool, Toolset, decode_arguments
from .projects import Projects
from .service import Conversations, Refused
from .types import (
    ConversationPage,
    ConversationPart,
    ListArguments,
    Problem,
    ReadArguments,
    SearchArguments,
    SearchResults,
    Turn,
    TurnArguments,
)

__all__ = ["toolset"]

log = logging.getLogger("backstory.conversations")

Request = TypeVar("Request")

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
    archive: Archive, settings: Settings, pattern: str = "*", *, until_ready: Callable[[], None] = lambda: None
) -> Toolset:
    """`pattern` is a glob over the names of Claude Code's project folders; other projects do not exist here.
    `until_ready` returns when there is something to answer from."""
    service = Conversations(archive, Projects(pattern), settings.redact)

    def tool(
        name: str, description: str, request: type[Request], answer: type[Any], handle: Callable[[Request], Any]
    ) -> Tool:
        def handler(arguments: Arguments) -> Reply:
            try:
                given = decode_arguments(request, _writable(arguments))
                until_ready()
                return Reply.of(msgspec.to_builtins(handle(given)))
            except (BadArgument, Refused) as problem:
                return Reply.of(Problem(clean(str(problem))))
            except Exception:
                log.exception("%s failed", name)
                return Reply.of(Problem(f"{name} failed unexpectedly; `backstory doctor` may tell why"), is_error=True)

        return Tool(
            name=name,
            description=description,
            input_schema=_input_schema(request),
            output_schema=_output_schema(answer),
            handler=handler,
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


def _writable(arguments: Arguments) -> dict[str, Any]:
    """Half a character (a lone surrogate) can be neither looked for nor given back."""
    return {_whole(name): _whole(value) if isinstance(value, str) else value for name, value in arguments.items()}


def _whole(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _input_schema(request: type[Any]) -> dict[str, Any]:
    """One flat object: some clients do not follow references."""
    _, definitions = msgspec.json.schema_components([request])
    schema: dict[str, Any] = definitions[request.__name__]
    return {name: value for name, value in schema.items() if name != "title"}


def _output_schema(answer: type[Any]) -> dict[str, Any]:
    """The answer or a problem. Clients want an object at the top, so the two are alternatives of one."""
    roots, definitions = msgspec.json.schema_components([answer, Problem], ref_template="#/$defs/{name}")
    return {"type": "object", "anyOf": list(roots), "$defs": definitions}
