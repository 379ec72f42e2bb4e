"""The four tools: small, direct access to Claude Code conversations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ...archive.base import Archive
from ...config import Settings
from ..base import (
    Arguments,
    BadArgument,
    Failure,
    Frame,
    Tool,
    Toolset,
    decode_arguments,
    input_schema,
    output_schema,
)
from .service import (
    ConversationPage,
    ConversationPart,
    Conversations,
    ListArguments,
    Problem,
    Projects,
    ReadArguments,
    Refused,
    SearchArguments,
    SearchResults,
    Turn,
    TurnArguments,
)

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
