"""The relations of a session: the one that started it, its subagents, its neighbours in the project, its capsules."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec import Struct

from ...archive.base import OpenedSession, SessionRow, SessionsRequest
from ...model import session_id
from ...toolsets.history.types import CapsuleLink
from .lines import SessionLine, session_lines
from .rendering import address

if TYPE_CHECKING:
    from ...library import Library

_SECONDS = 5.0
# Sessions of the project that are looked at for the next one: many of them may be subagents.
_BESIDE = 50


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
