"""The history tools as they are offered to agents."""

from __future__ import annotations

from ...archive.base import Archive
from ...config import Settings
from ..base import Tool, Toolset, input_schema, output_schema
from .requests import ListSessions, Open, SearchSessions
from .service import CapsulesOf, History
from .types import Envelope, ErrorEnvelope, EventView, ListingData, SearchData, SessionView, TurnView

__all__ = ["toolset"]

INSTRUCTIONS = """\
History: every past session of the agents here. Search it before redoing work, when the user refers to something \
earlier ("as last time", "that bug"), when an error looks familiar, or to learn why a thing was done.
- search_sessions(query): a few telling words, names, paths or an error message; "double quotes" for an exact phrase. \
For commands, edits and file paths give event_types ["tool_call"]. Narrow with project, source, since, until, within_id.
- open(id): an event in full, a turn with its events, a session with its turns. Usual way: hit -> open(event) -> \
open(its turn) for what was tried and how it ended.
- list_sessions(start_datetime, end_datetime): what was worked on when.
No hits: fewer or other words. `warnings` say when indexing is not complete."""

SEARCH = """\
Search everything past agent sessions said and did; returns the best matching events as short snippets with IDs to \
open.

Write the words that would stand in the text: identifiers, file paths, commands, error messages, in any language \
or script; "double quotes" for an exact phrase. Events with all words come first, then those with some. By default \
prompts, answers and tool output are searched; tool calls (commands, edited files), reasoning and others only when \
named in event_types. Each hit carries event, turn and session IDs in `open`: pass one to the open tool. Snippets \
are excerpts, never the whole text."""

OPEN = """\
Expand an ID from search_sessions, list_sessions or open.

An event ID returns its full content (for tool calls the arguments, for tool responses the output and exit code); \
a turn ID returns the prompt, the final response, the tools called and one line per event; a session ID returns \
one summary per turn. `traversal` holds the IDs of what is before, after and above. All turns or events are listed \
unless a part is asked for: limit and cursor page through long ones, around with before and after shows the \
neighbourhood of one, event_types filters. With an event ID, before and after add one line for each neighbouring \
event."""

LIST = """\
List sessions that overlap a time window, newest first: title, source, times, number of turns and events, whether \
completed. No content: search_sessions finds by content, open(session_id) shows a session.

Both times need an offset or Z; the end is exclusive. Narrow with mode, project or source; page with next_cursor."""


def toolset(archive: Archive, settings: Settings, capsules_of: CapsulesOf = lambda _: ()) -> Toolset:
    history = History(archive, settings, capsules_of)
    return Toolset(
        name="history",
        instructions=INSTRUCTIONS,
        tools=(
            Tool(
                name="search_sessions",
                description=SEARCH,
                input_schema=input_schema(SearchSessions),
                output_schema=output_schema(Envelope[SearchSessions, SearchData], ErrorEnvelope),
                handler=history.search_sessions,
                read_only=True,
                idempotent=True,
            ),
            Tool(
                name="open",
                description=OPEN,
                input_schema=input_schema(Open),
                output_schema=output_schema(Envelope[Open, SessionView | TurnView | EventView], ErrorEnvelope),
                handler=history.open,
                read_only=True,
                idempotent=True,
            ),
            Tool(
                name="list_sessions",
                description=LIST,
                input_schema=input_schema(ListSessions),
                output_schema=output_schema(Envelope[ListSessions, ListingData], ErrorEnvelope),
                handler=history.list_sessions,
                read_only=True,
                idempotent=True,
            ),
        ),
    )
