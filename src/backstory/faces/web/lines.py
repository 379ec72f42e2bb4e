"""Sessions as lines of a list, and the addresses of sessions and events."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec import Struct

from ...archive.base import SessionRow
from ...model import EventType
from ...toolsets.history.views import Views
from ..words import home_path
from .rendering import address

if TYPE_CHECKING:
    from ...library import Library

KINDS: dict[EventType, str] = {
    EventType.USER_INPUT: "you",
    EventType.ASSISTANT_RESPONSE: "agent",
    EventType.TOOL_RESPONSE: "output",
    EventType.TOOL_CALL: "tool call",
    EventType.REASONING: "reasoning",
    EventType.COMPACTION: "compaction",
    EventType.SYSTEM: "system",
    EventType.RUNTIME: "runtime",
}
"""The words for types of events."""


class SessionLine(Struct, frozen=True):
    id: str
    url: str
    title: str
    source: str
    project: str | None
    """The path of its working directory, with `~` for the home folder."""
    project_name: str | None
    branch: str | None
    started_at: str
    updated_at: str
    turn_count: int
    event_count: int
    completed: bool
    summary: str | None = None


def session_lines(library: Library, rows: Sequence[SessionRow]) -> list[SessionLine]:
    listings = Views(library.settings.redact).listings(rows)
    places = library.egress([[row.cwd or "", row.branch or ""] for row in rows])
    lines = []
    for listing, (cwd, branch) in zip(listings, places, strict=True):
        session = listing.session
        lines.append(
            SessionLine(
                id=session.id,
                url=session_url(session.id),
                title=session.title,
                source=session.source,
                project=home_path(cwd) if cwd else None,
                project_name=PurePath(cwd).name or cwd if cwd else None,
                branch=branch or None,
                started_at=session.started_at,
                updated_at=session.updated_at,
                turn_count=session.turn_count,
                event_count=session.event_count,
                completed=session.completed,
                summary=session.session_summary,
            )
        )
    return lines


def session_url(id: str, *, at: str = "", find: str = "", event: str = "") -> str:
    """The page of a session; `at` is a place in it (`3` or `3.12`: turn and event), `event` the id to jump to."""
    url = address(f"/s/{quote(id, safe=':')}", [("at", at), ("find", find)])
    return f"{url}#{event}" if event else url
