"""Sessions as lines of a list, the addresses of sessions and events, and the relations of a session: the one that
started it, its subagents, its neighbours in the project, its capsules."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING
from urllib.parse import quote

from msgspec import Struct

from ...archive.base import OpenedSession, SessionRow, SessionsRequest
from ...model import EventType, session_id
from ...toolsets.history.types import CapsuleLink
from ...toolsets.history.views import Views
from ..words import home_path
from .rendering import address

if TYPE_CHECKING:
    from ...library import Library

_SECONDS = 5.0
# Sessions of the project that are looked at for the next one: many of them may be subagents.
_BESIDE = 50

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


# Relations


class Related(Struct, frozen=True, kw_only=True):
    parent: SessionLine | None
    children: list[SessionLine]
    previous: SessionLine | None
    next: SessionLine | None
    capsules: list[CapsuleLink]
    traces_url: str


def read_related(library: Library, opened: OpenedSession) -> Related:
    id = session_id(opened.session.key)
    named = tuple(key for key in (opened.parent, *opened.children) if key)
    rows = library.archive.sessions(SessionsRequest(keys=named, empty=True)) if named else []
    beside = [_beside(library, opened.session, ascending=ascending) for ascending in (False, True)]
    rows = [*rows, *(row for row in beside if row)]
    lines = dict(zip((row.key for row in rows), session_lines(library, rows), strict=True))
    previous, following = (lines[row.key] if row else None for row in beside)
    return Related(
        parent=lines.get(opened.parent or ""),
        previous=previous,
        next=following,
        children=[lines[key] for key in opened.children if key in lines],
        capsules=[library.egress(link) for link in library.capsules_of(opened.session.key)],
        traces_url=address("/traces", [("session", id)]),
    )


def _beside(library: Library, session: SessionRow, *, ascending: bool) -> SessionRow | None:
    """The next session of the project, or the one before, of any agent; subagents stand at the session that started
    them."""
    project = session.project or session.cwd
    if not project:
        return None
    rows = library.archive.sessions(
        SessionsRequest(
            project=project,
            order="started_at",
            ascending=ascending,
            after=(session.started_at, session_id(session.key)),
            limit=_BESIDE,
            deadline=time.monotonic() + _SECONDS,
        )
    )
    return next((row for row in rows if not row.parent and project in (row.project, row.cwd)), None)
