"""The three tools: search finds events, open shows a session, turn or event, list goes by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import UNSET, UnsetType

from ...archive.base import (
    Archive,
    Part,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    SyncState,
)
from ...config import Settings
from ...interpreter import running
from ...model import EVENT_TYPES, EventRef, EventType, Ref, SessionRef, TurnRef, event_id, session_id, turn_id
from ..base import Arguments, Released, Reply
from .answers import Call, ExplainedData, ListingData, Refusal, SearchData, handle
from .rules import OpenQuestion, read_list, read_open, read_search
from .snippet import HEAD_CHARS
from .types import (
    CapsuleLink,
    EventRefs,
    EventView,
    Links,
    Page,
    ReadEvent,
    SessionRefs,
    SessionView,
    TurnRefs,
    TurnView,
    make_cursor,
)
from .views import Views


class _Ordered(Protocol):
    ordinal: int


Row = TypeVar("Row", bound=_Ordered)
CapsulesOf = Callable[[str], Sequence[CapsuleLink]]
"""Gives the capsules that name a session as their source, by its key. Capsules are another toolset; the library joins
the two."""

SEARCH_SECONDS = 5.0
LIST_SECONDS = 2.0
BROAD_LIST_SECONDS = 3.0
BROAD_MS = 30 * 86_400_000
MANY_TURNS = 100


class History:
    """Answers from an archive. Takes raw arguments, never raises."""

    def __init__(
        self,
        archive: Callable[[], Archive],
        settings: Settings,
        capsules_of: CapsulesOf = lambda _: (),
        *,
        here: Path | None = None,
        is_behind: Callable[[], bool] = lambda: False,
        name_origins: bool = True,
    ) -> None:
        """`archive` opens the archive, or fails in each call: the tools are there also when it cannot be opened.
        `is_behind`: transcripts that were written before this process started are still being read.
        `name_origins`: name the members and machines of sessions of a team among the warnings, because the contract has
        no field for them."""
        self._opened = archive
        self._here = here
        self._is_behind = is_behind
        self._names_origins = name_origins
        self._capsules_of = capsules_of
        self._views = Views(settings.redact)
        self._handle = partial(handle, mode=settings.redact)

    @property
    def _archive(self) -> Archive:
        return self._opened()

    def search_sessions(self, arguments: Arguments, *, explain: bool = False) -> Reply:
        """`explain` adds an explanation to the data, which the contract does not have."""
        with running():
            return self._handle("search_sessions", arguments, 750, partial(self._search, explain=explain))

    def list_sessions(self, arguments: Arguments) -> Reply:
        return self._handle("list_sessions", arguments, 300, self._list)

    def open(self, arguments: Arguments) -> Reply:
        return self._handle("open", arguments, 200, self._open)

    def read_turn(self, ref: TurnRef, types: Sequence[EventType]) -> list[ReadEvent]:
        """The events of a turn with their whole content; none if there is no such turn."""
        found = self._archive.open(ref, Part(types=tuple(types)))
        if found is None:
            return []
        views, turn = self._views, found.turn
        return [views.read_event(row, turn) for row in found.events]

    # search_sessions

    def _search(self, call: Call, *, explain: bool) -> Released:
        question = read_search(call)
        self._warn(call, searching=True)
        scope = question.scope
        found = self._archive.search(
            SearchRequest(
                query=question.request.query,
                types=question.types,
                limit=question.n_hits,
                session=None if scope is None else scope.key,
                turn=scope.ordinal if isinstance(scope, TurnRef) else None,
                project=question.project,
                source=question.source,
                since=question.since,
                until=question.until,
                here=None if self._here is None else str(self._here),
                explain=explain,
                deadline=call.deadline(SEARCH_SECONDS),
            )
        )
        if scope is not None and not found.known:
            raise Refusal("not_found", f"{_kind(scope)} not found", field="within_id", id=question.request.within_id)
        if scope is None:
            call.sla_target_ms = 750 if found.documents <= 100_000 else 1500 if found.documents <= 500_000 else 2500
        hits = self._views.hits(found.hits, found.query)
        self._name_origins(call, [hit.session for hit in found.hits])
        if not hits:
            self._warn_of_source(call, question.source)
        call.check_deadline()
        if explain:
            explanation = self._views.explanation(found)
            data = ExplainedData(len(hits), question.n_hits, found.more, hits, explanation)
            return call.answer(question.request, data)
        return call.answer(question.request, SearchData(len(hits), question.n_hits, found.more, hits))

    # list_sessions

    def _list(self, call: Call) -> Released:
        question = read_list(call)
        broad = question.end - question.start >= BROAD_MS
        call.sla_target_ms = _list_target(question.mode, broad)
        self._warn(call)
        rows = self._archive.sessions(
            SessionsRequest(
                start=question.start,
                end=question.end,
                limit=question.limit + 1,
                mode=question.mode,
                ascending=question.ascending,
                after=question.after,
                project=question.project,
                source=question.source,
                deadline=call.deadline(BROAD_LIST_SECONDS if broad else LIST_SECONDS),
            )
        )
        more = len(rows) > question.limit
        page = rows[: question.limit]
        call.sla_target_ms = _list_target(question.mode, broad or more)
        cursor = make_cursor((page[-1].updated_at, session_id(page[-1].key)), *question.identity) if more else None
        sessions = self._views.listings(page)
        self._name_origins(call, page)
        if not sessions:
            self._warn_of_source(call, question.source)
        call.check_deadline()
        return call.answer(question.request, ListingData(len(sessions), question.limit, more, sessions, cursor))

    # open

    def _open(self, call: Call) -> Released:
        question = read_open(call)
        self._warn(call)
        ref = question.ref
        view: SessionView | TurnView | EventView | None
        if isinstance(ref, SessionRef):
            view = self._open_session(call, ref, question)
        elif isinstance(ref, TurnRef):
            view = self._open_turn(call, ref, question)
        else:
            view = self._open_event(call, ref, question)
        if view is None:
            raise Refusal("not_found", f"{_kind(ref)} not found", id=question.request.id)
        return call.answer(question.request, view)

    def _open_session(self, call: Call, ref: SessionRef, question: OpenQuestion) -> SessionView | None:
        found = self._archive.open(ref, _part(question))
        if found is None:
            return None
        if found.session.turn_count > MANY_TURNS:
            call.sla_target_ms = 1500
        self._name_origins(call, [found.session])
        self._check_anchor(question, found.turns)
        shown, cursor = _page(question, found.turns)
        heads = self._views.heads(shown)
        return SessionView(
            self._views.session_head(found.session),
            [self._views.turn_line(row, heads) for row in shown],
            SessionRefs(*(None if key is None else session_id(key) for key in (found.previous, found.next))),
            links=self._links(found.parent, found.children, self._capsules_of(ref.key)),
            page=Page(len(shown), found.total, cursor) if question.partial else UNSET,
        )

    def _open_turn(self, call: Call, ref: TurnRef, question: OpenQuestion) -> TurnView | None:
        found = self._archive.open(ref, _part(question))
        if found is None:
            return None
        self._name_origins(call, [found.session])
        self._check_anchor(question, found.events)
        turn, (shown, cursor) = found.turn, _page(question, found.events)
        return TurnView(
            self._views.turn_head(turn),
            self._views.session_name(found.session),
            self._views.turn_summary(turn, self._views.heads([turn])),
            self._views.event_lines(shown, turn),
            TurnRefs(
                session_id(ref.key),
                turn_id(ref.key, ref.ordinal - 1) if found.has_previous else None,
                turn_id(ref.key, ref.ordinal + 1) if found.has_next else None,
                None if found.first is None else event_id(found.first),
                None if found.last is None else event_id(found.last),
            ),
            page=Page(len(shown), found.total, cursor) if question.partial else UNSET,
        )

    def _open_event(self, call: Call, ref: EventRef, question: OpenQuestion) -> EventView | None:
        found = self._archive.open(ref, _part(question))
        if found is None:
            return None
        self._name_origins(call, [found.session])
        event, turn = found.event, found.turn
        return EventView(
            self._views.event_header(event, turn),
            self._views.content(event),
            self._views.session_name(found.session),
            self._views.turn_name(turn),
            EventRefs(
                session_id(event.session),
                turn_id(event.session, event.turn),
                None if found.previous is None else event_id(found.previous),
                None if found.next is None else event_id(found.next),
                turn_id(event.session, event.turn - 1) if found.has_previous_turn else None,
                turn_id(event.session, event.turn + 1) if found.has_next_turn else None,
            ),
            events=UNSET if question.before is None else self._views.event_lines(found.events, turn),
            links=self._links(None, found.children),
        )

    def _links(
        self, parent: str | None, children: Sequence[str], capsules: Sequence[CapsuleLink] = ()
    ) -> Links | UnsetType:
        parent_id = None if parent is None else session_id(parent)
        notes = self._views.capsule_links(capsules)
        return Links(parent_id, [session_id(key) for key in children], notes) if parent or children or notes else UNSET

    def _check_anchor(self, question: OpenQuestion, shown: Sequence[object]) -> None:
        """Refuse an `around` that is not in what was opened: else it would be among the rows."""
        around = question.around
        if around is None or shown:
            return
        if self._archive.open(around) is None:
            raise Refusal("not_found", f"{_kind(around)} not found", field="around", id=question.request.around)
        raise Refusal("invalid_request", "around is not part of what id opens", field="around")

    # Warnings

    def _warn(self, call: Call, *, searching: bool = False) -> None:
        state = self._archive.sync_state()
        if state.read_only:
            call.warnings.append("The archive can be read but not written, so newer sessions are missing in it.")
        elif state.first_finished_at is None:
            call.warnings.append(_first_sync(state))
        elif self._is_behind():
            call.warnings.append("New transcripts are being read now: what was written just before may be missing.")
        if state.notice is not None:
            call.warnings.append(state.notice)
        if state.index_behind and searching:
            call.warnings.append(
                "The search index is missing or out of date, so events may not be found: backstory sync builds it."
            )

    def _name_origins(self, call: Call, sessions: Sequence[SessionRow]) -> None:
        origins: dict[str, list[str]] = {}
        for row in {row.key: row for row in sessions if row.user is not None}.values():
            origins.setdefault(f"{row.user} on {row.machine}", []).append(session_id(row.key))
        if self._names_origins:
            call.warnings += [f"From {origin}: {', '.join(ids)}." for origin, ids in origins.items()]

    def _warn_of_source(self, call: Call, source: str | None) -> None:
        """Warn of a source that the archive does not have: it is probably misspelt."""
        known = self._archive.counts().by_source if source is not None else {}
        if source is not None and source not in known:
            there = ", ".join(known) or "none yet"
            call.warnings.append(f"The archive has no sessions of the source {source}. It has: {there}.")


def _first_sync(state: SyncState) -> str:
    if not state.started_at:
        return "Nothing has been indexed yet: the first sync has not started, so results are missing."
    done = f"{state.files_done} of {state.files_total} transcripts are indexed, newest first"
    return f"The first sync is still running: {done}. Older sessions may be missing; ask again later."


def _list_target(mode: str | None, broad: bool) -> int:
    return 300 if not broad else 1000 if mode is None else 1200


def _kind(ref: Ref) -> str:
    return "session" if isinstance(ref, SessionRef) else "turn" if isinstance(ref, TurnRef) else "event"


def _part(question: OpenQuestion) -> Part:
    """The rows that were asked for: all, those of some types, around one, or on a page, and one more."""
    types = EVENT_TYPES if question.types is None else question.types
    anchor = question.ref if isinstance(question.ref, EventRef) else question.around
    if anchor is not None and question.before is not None and question.after is not None:
        around = anchor.uid if isinstance(anchor, EventRef) else _ordinal_in(question.ref, anchor)
        return Part(types=types, around=around, before=question.before, after=question.after, heads=HEAD_CHARS)
    if question.limit is None:
        return Part(types=types, heads=HEAD_CHARS)
    return Part(types=types, above=question.beyond, limit=question.limit + 1, heads=HEAD_CHARS)


def _ordinal_in(opened: Ref, around: Ref) -> int:
    """The ordinal of a turn in the session that is opened; 0, which no turn has, for one of another session."""
    inside = isinstance(around, TurnRef) and isinstance(opened, SessionRef) and around.key == opened.key
    return around.ordinal if inside and isinstance(around, TurnRef) else 0


def _page(question: OpenQuestion, rows: list[Row]) -> tuple[list[Row], str | None]:
    """The rows of a page, and the cursor of the next one."""
    if question.limit is None or len(rows) <= question.limit:
        return rows, None
    shown = rows[: question.limit]
    return shown, make_cursor((shown[-1].ordinal, ""), *question.identity)
