"""The four tools: small, direct access to Claude Code conversations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ...archive.base import Archive
from ...config import Settings
from ...redact import Mode, egress_value
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

Request = TypeVar("Request")

_INSTRUCTIONS = (
    "Past Claude Code conversations, turn by turn. search_conversations finds turns by keywords (names, errors, "
    "files); read_turn shows one in full, read_conversation pages through a session, list_conversations shows what "
    "there is."
)


def toolset(archive: Archive, settings: Settings, pattern: str = "*") -> Toolset:
    """`pattern` is a glob over the names of Claude Code's project folders; other projects do not exist here."""
    service = Conversations(archive, Projects(pattern), settings.redact)
    return Toolset(
        name="conversations",
        instructions=_INSTRUCTIONS,
        tools=(
            _tool(
                "search_conversations",
                "BM25 keyword search across all turns of past Claude Code conversations, best first. Use the words you "
                "expect in the prompt, the answer or the tools' names. Pass session_id and turn_number of a result to "
                "read_turn to see it in full.",
                SearchArguments,
                SearchResults,
                service.search,
                {
                    "query": 'Search keywords (e.g. "watchdog reindex debounce")',
                    "limit": "Max results to return",
                    "session_id": "Only turns of this session",
                    "project": "Only projects whose name contains this",
                },
                settings.redact,
            ),
            _tool(
                "list_conversations",
                "Browse past Claude Code sessions with their metadata, the most recent activity first.",
                ListArguments,
                ConversationPage,
                service.list,
                {"project": "Only projects whose name contains this", "limit": "Max sessions to return"},
                settings.redact,
            ),
            _tool(
                "read_turn",
                "One turn in full: everything the user and the assistant said, and a line for each tool call.",
                TurnArguments,
                Turn,
                service.read_turn,
                {"session_id": "Session UUID", "turn_number": "0-indexed turn number"},
                settings.redact,
            ),
            _tool(
                "read_conversation",
                "Read a session turn by turn, a page at a time.",
                ReadArguments,
                ConversationPart,
                service.read,
                {
                    "session_id": "Session UUID",
                    "offset": "Turn offset to start from",
                    "limit": "Number of turns to return",
                },
                settings.redact,
            ),
        ),
    )


def _tool(
    name: str,
    description: str,
    request: type[Request],
    result: type[Any],
    handle: Callable[[Request], Any],
    fields: dict[str, str],
    redact: Mode,
) -> Tool:
    def handler(arguments: Arguments) -> Reply:
        try:
            result = handle(decode_arguments(request, arguments))
            return Reply.of(egress_value(msgspec.to_builtins(result), redact))
        except (BadArgument, Refused) as problem:
            return Reply.of(Problem(str(problem)))
        except Exception:
            # Whatever it is, a caller can do nothing with the details.
            return Reply.of(Problem(f"{name} failed; `backstory doctor` may tell why"), is_error=True)

    return Tool(
        name=name,
        description=description,
        input_schema=_input_schema(request, fields),
        output_schema=_output_schema(result),
        handler=handler,
        read_only=True,
        idempotent=True,
    )


def _input_schema(request: type[Any], fields: dict[str, str]) -> dict[str, Any]:
    schema = _inlined(request)
    for name, description in fields.items():
        schema["properties"][name]["description"] = description
    return schema


def _output_schema(result: type[Any]) -> dict[str, Any]:
    """The result or a problem. Clients want an object at the top, so the two are alternatives of one."""
    (_, _), definitions = msgspec.json.schema_components((result, Problem), ref_template="#/$defs/{name}")
    names = (result.__name__, Problem.__name__)
    return {"type": "object", "anyOf": [{"$ref": f"#/$defs/{name}"} for name in names], "$defs": definitions}


def _inlined(kind: type[Any]) -> dict[str, Any]:
    schema = msgspec.json.schema(kind)
    inner: dict[str, Any] = schema["$defs"][kind.__name__]
    return inner
