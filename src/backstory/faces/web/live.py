"""The page of sessions that are being written right now, and the tail of one of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ...archive.base import EventRow, Part, SessionRow, SessionsRequest
from ...model import EventType, InvalidId, SessionRef, event_id, parse_id, rfc3339, session_id
from ...toolcalls import main_argument
from ..words import home_path
from .site import Nav, Site

if TYPE_CHECKING:
    from ...library import Library

ACTIVE_SECONDS = 600
"""A session is being written if something was added in this time."""
_QUIET_SECONDS = 120
_MOST_SESSIONS = 50
_TAIL, _FOLLOWED = 3, 100
_HEAD_CHARS, _TEXT_CHARS = 240, 4_000


class TailEvent(Struct, kw_only=True):
    """One of the last events of a session; `text` is its beginning."""

    id: str
    type: str
    at: str
    turn: int
    tool: str | None
    failed: bool
    text: str
    more: bool
    """There is more of the text."""


Status = Literal["working", "quiet", "idle", "done", "error"]
"""`working`: a turn is under way; `quiet`: it is, but nothing was added for a while; `idle`: the last turn has ended.
Programs set the status of live sessions themselves, `done` and `error` among them."""


class LiveSession(Struct, kw_only=True):
    id: str
    source: str
    status: Status
    status_reason: str | None
    title: str
    project: str | None
    branch: str | None
    is_child: bool
    """A subagent: another session started it."""
    started_at: str
    updated_at: str
    turns: int
    events: int
    is_active: bool
    """Something was added in the last minutes."""
    tail: list[TailEvent]
    """Oldest first."""


class LivePage(Struct, kw_only=True):
    """The data of `/live`; with `?session=<id>` also the tail of that session, with `&part=state` only its length."""

    now: str
    active_seconds: int = ACTIVE_SECONDS
    sessions: list[LiveSession]
    followed: LiveSession | None


def routes(site: Site) -> list[Route]:
    def build(request: Request) -> LivePage:
        query = request.query_params
        return read_live(site.library, query.get("session"), only_state=query.get("part") == "state")

    return site.page("/live", "live.html", build, nav=Nav("Live", "/live", "l"), parts=["sessions", "tail"])


def read_live(
    library: Library, followed: str | None = None, *, only_state: bool = False, now: int | None = None
) -> LivePage:
    """The sessions with something new in the last minutes, the latest first."""
    reader = _Reader(library, int(time.time() * 1000) if now is None else now)
    page = LivePage(
        now=rfc3339(reader.now),
        sessions=[] if only_state else [reader.session(row, _TAIL, _HEAD_CHARS) for row in reader.active()],
        followed=reader.session(_find(library, followed), 0 if only_state else _FOLLOWED, _TEXT_CHARS)
        if followed
        else None,
    )
    return library.egress(page)


def _find(library: Library, id: str) -> SessionRow:
    try:
        ref = parse_id(id)
    except InvalidId:
        ref = None
    found = library.archive.session(ref.key) if isinstance(ref, SessionRef) else None
    if found is None:
        raise HTTPException(404, "There is no such session.")
    return found


class _Reader:
    def __init__(self, library: Library, now: int) -> None:
        self._library = library
        self._archive = library.archive
        self.now = now
        self._since = now - ACTIVE_SECONDS * 1000

    def active(self) -> list[SessionRow]:
        request = SessionsRequest(start=self._since, end=self.now + ACTIVE_SECONDS * 1000, limit=_MOST_SESSIONS)
        return [row for row in self._archive.sessions(request) if row.updated_at >= self._since]

    def session(self, row: SessionRow, events: int, chars: int) -> LiveSession:
        status, reason = self._status(row)
        return LiveSession(
            id=session_id(row.key),
            source=row.source,
            status=status,
            status_reason=reason,
            title=" ".join(row.title.split()) or row.key,
            project=home_path(row.cwd) if row.cwd else None,
            branch=row.branch,
            is_child=row.parent is not None,
            started_at=rfc3339(row.started_at),
            updated_at=rfc3339(row.updated_at),
            turns=row.turn_count,
            events=row.event_count,
            is_active=row.updated_at >= self._since,
            tail=[self._event(event, chars) for event in self._last_events(row, events)],
        )

    def _status(self, row: SessionRow) -> tuple[Status, str | None]:
        if row.source == "live":
            meta = self._library.call("session_get", {"session_id": row.key.partition("/")[2]}).get("meta")
            if meta:
                return meta["status"], meta.get("status_reason")
        if row.completed:
            return "idle", None
        return "working" if row.updated_at >= self.now - _QUIET_SECONDS * 1000 else "quiet", None

    def _last_events(self, row: SessionRow, count: int) -> list[EventRow]:
        """The last events of a session, from its last turns."""
        events: list[EventRow] = []
        # A turn may be one event.
        turns = self._archive.turns(row.key, Part(above=max(row.turn_count - count, 0))) if count else []
        for turn in reversed(turns):
            missing = count - len(events)
            if missing <= 0:
                break
            part = Part(above=max(turn.event_count - missing, 0))
            events = [*self._archive.events(row.key, turn.ordinal, part), *events]
        return events[len(events) - count :] if len(events) > count else events

    def _event(self, event: EventRow, chars: int) -> TailEvent:
        # Redacted before it is cut: half a secret is not recognised.
        shown = (main_argument(event.arguments) or "") if event.type is EventType.TOOL_CALL else event.text
        text = self._library.egress(shown)
        return TailEvent(
            id=event_id(event.uid),
            type=event.type,
            at=rfc3339(event.ts),
            turn=event.turn,
            tool=event.tool,
            failed=bool(event.failed),
            text=text[:chars].strip(),
            more=len(text) > chars,
        )
