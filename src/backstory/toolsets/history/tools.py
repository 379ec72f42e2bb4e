"""The history tools as they are offered to agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import Arguments, Reply, Tool, Toolset, input_schema, output_schema
from .answers import ListingData, SearchData
from .service import History
from .types import Envelope, ErrorEnvelope, EventView, ListSessions, Open, SearchSessions, SessionView, TurnView

INSTRUCTIONS = """\
History: every past session of the agents here. Search it before redoing work, when the user refers to something \
earlier ("that bug"), when an error looks familiar, or to learn why a thing was done.
- search_sessions(query): a few telling words; then open(event), and open(its turn) for what was tried and how it ended.
- list_sessions(start_datetime, end_datetime): what was worked on when.
No hits: other words. `warnings` say when indexing is not complete."""

SEARCH = """\
Search what past agent sessions said and did; returns snippets with IDs to open. Use words that stand in the text: \
names, paths, commands, error messages, any language. Searches prompts, answers and tool output; for commands, edits \
and file paths give event_types ["tool_call"]."""

OPEN = """\
After a search or list, read what an ID stands for: an event in full, a turn with a line per event, a session with a \
line per turn. `traversal` has the IDs \
before, after and above. Parts of long ones: limit and cursor, or around."""

LIST = """\
List sessions in a time window, newest first: title, source, times, counts, completed. No content: open shows it."""

# Either envelope. The shapes inside are in the full schema; agents see them in the first answer.
ENVELOPE = {
    "type": "object",
    "anyOf": [{"required": ["data"]}, {"required": ["error"]}],
}


def toolset(history: History) -> Toolset:
    def tool(name: str, description: str, request: type, envelope: Any, handler: Callable[[Arguments], Reply]) -> Tool:
        return Tool(
            name=name,
            description=description,
            input=input_schema(request),
            output=output_schema(envelope, ErrorEnvelope),
            handler=handler,
            compact_output=ENVELOPE,
            read_only=True,
            idempotent=True,
        )

    found, listed = Envelope[SearchSessions, SearchData], Envelope[ListSessions, ListingData]
    opened = Envelope[Open, SessionView | TurnView | EventView]
    return Toolset(
        name="history",
        instructions=INSTRUCTIONS,
        tools=(
            tool("search_sessions", SEARCH, SearchSessions, found, history.search_sessions),
            tool("open", OPEN, Open, opened, history.open),
            tool("list_sessions", LIST, ListSessions, listed, history.list_sessions),
        ),
    )
