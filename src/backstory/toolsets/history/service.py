"""The three tools: search finds events, open expands whatever an ID stands for, list goes by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec import UNSET, UnsetType

from ...archive.base import (
    Archive,
    ArchiveError,
    EventRow,
    Part,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    SyncState,
    TurnRow,
)
from ...config import Settings
from ...model import EVENT_TYPES, EventRef, EventType, Ref, SessionRef, TurnRef, event_id, session_id, turn_id
from ..base import Arguments, Reply
from .cursor import make_cursor
from .envelope import Call, Refusal, handle
from .rules import OpenQuestion, SearchQuestion, read_list, read_open, read_search
from .snippet import HEAD_CHARS
from .types import (
    CapsuleLink,
    EventRefs,
    EventView,
    Links,
    ListingData,
    Page,
    ReadEvent,
    SearchData,
    SessionRefs,
    SessionView,
    TurnRefs,
    TurnView,
)
from .views import Views

__all__ = ["CapsulesOf", "History"]


class _Ordered(Protocol):
    ordinal: int


Row = TypeVar("Row", bound=_Ordered)
# The capsules that say they came out of a session, given its key. Capsules are another toolset: who puts the two
# together knows both.
CapsulesOf = Callable[[str], Sequence[CapsuleLink]]

SEARCH_SECONDS = 5.0
LIST_SECONDS = 2.0
BROAD_LIST_SECONDS = 3.0
BROAD_MS = 30 * 86_400_000
MANY_TURNS = 100


class History:
    """Answers from an archive. Takes arguments as they came, never raises."""

    def __init__(self, archive: Archive, settings: Settings, capsules_of: CapsulesOf) -> None:
        self._archive = archive
        self._capsules_of = capsules_of
        self._views = Views(settings.redact)
        self._handle = partial(handle, mode=settings.redact)

    def search_sessions(self, arguments: Arguments) -> Reply:
        return self._handle("search_sessions", arguments, 750, self._search)

    def list_sessions(self, arguments: Arguments) -> Reply:
        return self._handle("list_sessions", arguments, 300, self._list)

    def open(self, arguments: Arguments) -> Reply:
        return self._handle("open", arguments, 200, self._open)

    def read_turn(self, ref: TurnRef, types: Sequence[EventType]) -> list[ReadEvent]:
        """The events of a turn with their whole content; none if there is no such turn."""
        turn = self._archive.turn(ref.key, ref.ordinal)
        if turn is None:
            return []
        rows = self._archive.events(ref.key, ref.ordinal, Part(types=tuple(types)))
        return [ReadEvent(self._views.event_header(row, turn), self._views.content(row), row.call_id) for row in rows]

    # search_sessions

    def _search(self, call: Call) -> Reply:
        question = read_search(call)
        self._warn(call, searching=True)
        session, turn = self._scope(question)
        found = self._archive.search(
            SearchRequest(
                query=question.request.query,
                types=question.types,
                limit=question.n_hits,
                session=session,
                turn=turn,
                project=question.project,
                source=question.source,
                since=question.since,
                until=question.until,
                deadline=call.deadline(SEARCH_SECONDS),
            )
        )
        if question.scope is None:
            call.sla_target_ms = 750 if found.documents <= 100_000 else 1500 if found.documents <= 500_000 else 2500
        hits = self._views.hits(found.hits, found.query)
        if not hits:
            self._warn_of_source(call, question.source)
        call.check_deadline()
        return call.answer(question.request, SearchData(len(hits), question.n_hits, found.more, hits))

    def _scope(self, question: SearchQuestion) -> tuple[str | None, int | None]:
        scope = question.scope
        if scope is None:
            return None, None
        row = (
            self._archive.session(scope.key)
            if isinstance(scope, SessionRef)
            else self._archive.turn(scope.key, scope.ordinal)
        )
        if row is None:
            raise Refusal("not_found", f"{_kind(scope)} not found", field="within_id", id=str(scope))
        return scope.key, None if isinstance(scope, SessionRef) else scope.ordinal

    # list_sessions

    def _list(self, call: Call) -> Reply:
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
        if not sessions:
            self._warn_of_source(call, question.source)
        call.check_deadline()
        return call.answer(question.request, ListingData(len(sessions), question.limit, more, sessions, cursor))

    # open

    def _open(self, call: Call) -> Reply:
        question = read_open(call)
        self._warn(call)
        ref = question.ref
        view: SessionView | TurnView | EventView | None
        if isinstance(ref, SessionRef):
            view = self._open_session(call, ref, question)
        elif isinstance(ref, TurnRef):
            view = self._open_turn(ref, question)
        else:
            view = self._open_event(ref, question)
        if view is None:
            raise Refusal("not_found", f"{_kind(ref)} not found", id=question.request.id)
        return call.answer(question.request, view)

    def _open_session(self, call: Call, ref: SessionRef, question: OpenQuestion) -> SessionView | None:
        session = self._archive.session(ref.key)
        if session is None:
            return None
        if session.turn_count > MANY_TURNS:
            call.sla_target_ms = 1500
        around = self._anchor(question, ref.key, None)
        shown, cursor = _part(question, around, partial(self._archive.turns, ref.key))
        heads = self._views.heads(self._archive.turn_heads(shown, HEAD_CHARS))
        previous, following = self._archive.neighbours(session)
        return SessionView(
            self._views.session_head(session),
            [self._views.turn_line(row, heads) for row in shown],
            SessionRefs(*(None if key is None else session_id(key) for key in (previous, following))),
            links=self._links(session.parent, self._archive.children(ref.key), self._capsules_of(ref.key)),
            page=Page(len(shown), self._total_turns(session, question), cursor) if question.partial else UNSET,
        )

    def _total_turns(self, session: SessionRow, question: OpenQuestion) -> int:
        types = question.types
        return session.turn_count if types is None else self._archive.count_turns(session.key, types)

    def _open_turn(self, ref: TurnRef, question: OpenQuestion) -> TurnView | None:
        turn = self._archive.turn(ref.key, ref.ordinal)
        if turn is None:
            return None
        session = self._session_of(turn)
        around = self._anchor(question, ref.key, ref.ordinal)
        shown, cursor = _part(question, around, partial(self._archive.events, ref.key, ref.ordinal))
        heads = self._views.heads(self._archive.turn_heads([turn], HEAD_CHARS))
        first, last = self._archive.end_events(ref.key, ref.ordinal)
        return TurnView(
            self._views.turn_head(turn),
            self._views.session_name(session),
            self._views.turn_summary(turn, heads),
            self._views.event_lines(shown, turn),
            TurnRefs(
                session_id(ref.key),
                self._turn_beside(turn, -1),
                self._turn_beside(turn, 1),
                None if first is None else event_id(first),
                None if last is None else event_id(last),
            ),
            page=Page(len(shown), self._total_events(turn, question), cursor) if question.partial else UNSET,
        )

    def _total_events(self, turn: TurnRow, question: OpenQuestion) -> int:
        types = question.types
        if types is None or set(turn.types) <= set(types):
            return turn.event_count
        return self._archive.count_events(turn.session, turn.ordinal, types)

    def _open_event(self, ref: EventRef, question: OpenQuestion) -> EventView | None:
        event = self._archive.event(ref.uid)
        if event is None:
            return None
        turn = self._archive.turn(event.session, event.turn)
        if turn is None:
            raise ArchiveError("the turn of this event is missing; `backstory doctor` may tell why")
        session = self._session_of(turn)
        previous, following = self._archive.neighbour_events(event)
        around: list[EventRow] | UnsetType = UNSET
        if question.before is not None:
            around, _ = _part(question, event.ordinal, partial(self._archive.events, event.session, event.turn))
        started = []
        if event.call_id is not None:
            started = [row for row in self._archive.children(event.session) if row.parent_call == event.call_id]
        return EventView(
            self._views.event_header(event, turn),
            self._views.content(event),
            self._views.session_name(session),
            self._views.turn_name(turn),
            EventRefs(
                session_id(event.session),
                turn_id(event.session, event.turn),
                None if previous is None else event_id(previous),
                None if following is None else event_id(following),
                self._turn_beside(turn, -1),
                self._turn_beside(turn, 1),
            ),
            events=UNSET if around is UNSET else self._views.event_lines(around, turn),
            links=self._links(None, started),
        )

    def _session_of(self, turn: TurnRow) -> SessionRow:
        session = self._archive.session(turn.session)
        if session is None:
            raise ArchiveError("the session of this turn is missing; `backstory doctor` may tell why")
        return session

    def _turn_beside(self, turn: TurnRow, step: int) -> str | None:
        ordinal = turn.ordinal + step
        exists = ordinal > 0 and self._archive.turn(turn.session, ordinal) is not None
        return turn_id(turn.session, ordinal) if exists else None

    def _links(
        self, parent: str | None, children: Sequence[SessionRow], capsules: Sequence[CapsuleLink] = ()
    ) -> Links | UnsetType:
        """Only to what can be opened: the transcript of a parent may never have been there."""
        parent_id = session_id(parent) if parent is not None and self._archive.session(parent) is not None else None
        child_ids = [session_id(row.key) for row in children]
        notes = self._views.capsule_links(capsules)
        return Links(parent_id, child_ids, notes) if parent_id or child_ids or notes else UNSET

    def _anchor(self, question: OpenQuestion, key: str, turn: int | None) -> int | None:
        """The ordinal of what `around` names, among the turns of a session or the events of a turn."""
        around = question.around
        if around is None:
            return None
        if isinstance(around, EventRef):
            event = self._archive.event(around.uid)
            place = None if event is None else (event.session, event.turn)
            ordinal = None if event is None else event.ordinal if turn is not None else event.turn
        else:
            assert isinstance(around, TurnRef)
            row = self._archive.turn(around.key, around.ordinal)
            place = None if row is None else (row.session, row.ordinal)
            ordinal = None if row is None else row.ordinal
        if place is None:
            raise Refusal("not_found", f"{_kind(around)} not found", field="around", id=str(around))
        if place[0] != key or (turn is not None and place[1] != turn):
            raise Refusal("invalid_request", "around is not part of what id opens", field="around")
        return ordinal

    # Warnings

    def _warn(self, call: Call, *, searching: bool = False) -> None:
        state = self._archive.sync_state()
        if state.read_only:
            call.warnings.append("The archive can be read but not written, so newer sessions are missing in it.")
        elif state.first_finished_at is None:
            call.warnings.append(_first_sync(state))
        if state.index_behind and searching:
            call.warnings.append("The search index is behind the archive; the newest events may not be found yet.")

    def _warn_of_source(self, call: Call, source: str | None) -> None:
        """A source that is not there at all is more likely a slip than a question."""
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


def _part(
    question: OpenQuestion, around: int | None, read: Callable[[Part], list[Row]]
) -> tuple[list[Row], str | None]:
    """What was asked for: all rows, or those of some types, around one, or on a page, with the cursor of the next."""
    types = EVENT_TYPES if question.types is None else question.types
    if around is not None:
        earlier = read(Part(types=types, below=around, limit=question.before, last=True))
        later = read(Part(types=types, above=around, limit=question.after))
        return [*earlier, *read(Part(above=around - 1, below=around + 1)), *later], None
    if question.limit is None:
        return read(Part(types=types)), None
    rows = read(Part(types=types, above=question.beyond, limit=question.limit + 1))
    shown = rows[: question.limit]
    return shown, make_cursor((shown[-1].ordinal, ""), *question.identity) if len(rows) > len(shown) else None
