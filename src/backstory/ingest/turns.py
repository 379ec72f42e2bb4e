"""From items to rows: assigns events to turns, ends turns, and keeps turn and session rows up to date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..archive.base import Batch, EventRow, Part, Reader, SessionRow, TurnRow, UsageRow
from ..model import MAX_TURNS, EventType, digest, session_mark
from ..sources.base import About, Event, Item, Transcript, Usage
from .rows import (
    Exchanges,
    OpenSession,
    add_tokens,
    describe,
    differs,
    event_row,
    follow,
    has_begun,
    prompt_title,
    revise,
    usage_row,
    wider_mode,
)

_RECENT_TURNS = 16
_INPUT, _CALL = EventType.USER_INPUT, EventType.TOOL_CALL


class _Place(NamedTuple):
    """The place of an event that is there already."""

    session: str
    turn: int


class Added(NamedTuple):
    """The time of the earliest event that was new, the sessions that had some of the others, the other sessions that
    the transcript has spoken of, and the digest of something forgotten that it repeats, if there was any."""

    since: int | None
    owners: frozenset[str]
    others: frozenset[str]
    forgotten: tuple[bytes, ...]


class Assembly:
    """Collects what a commit will write.

    An event whose uid the archive has is not written again, unless it replaces what is there: in its own session it
    shows where the transcript stands, in another session it is a replay of what belongs there.
    """

    def __init__(self, known: Reader) -> None:
        self._known = known
        self._open: dict[str, OpenSession] = {}
        # Those among them that the transcript which is being read has spoken of.
        self._current: dict[str, OpenSession] = {}
        self._placed: dict[bytes, _Place] = {}
        self._events: dict[bytes, EventRow] = {}
        self._replaced: dict[bytes, EventRow] = {}
        # The events of turns in which something is replaced, by uid, in their order.
        self._turn_events: dict[tuple[str, int], dict[bytes, EventRow]] = {}
        self._usage: dict[bytes, UsageRow] = {}
        self._owners: set[str] = set()
        self._since: int | None = None
        self.text_chars = 0

    @property
    def event_count(self) -> int:
        return len(self._events) + len(self._replaced)

    def begin(self, transcript: Transcript, turn: int | None, *, from_start: bool, alone: bool) -> None:
        """Begin a transcript, at its start or where reading stopped: in this turn, 0 for none, None for the latest.
        `alone`: its session has no other transcript (any more)."""
        for session in self._current.values():
            session.turn, session.entering = self._turn(session, session.row.turn_count), False
        self._current = {}
        session = self._session(transcript, None)
        if from_start:
            session.entering = session.restarted = True
            session.upgrading = session.row.provisional
        if turn is not None:
            session.turn = self._turn(session, turn)
        if alone and transcript.folder and transcript.folder != session.row.folder:
            session.row.folder, session.changed = transcript.folder, True

    def position(self, transcript: Transcript) -> int | None:
        """The turn in which the transcript that is being read stands, as `begin` takes it."""
        session = self._session(transcript, None)
        return None if session.ordinal == session.row.turn_count else session.ordinal

    def add(self, transcript: Transcript, items: Sequence[Item], fallback_ts: int, *, again: bool = False) -> Added:
        """Take items in their order. `fallback_ts` is the time of events that have none. `again`: they come
        from what was read before."""
        self._owners, self._since = set(), None
        if again and self._session(transcript, None).upgrading:
            items = _only_exchanges(items)
        fallback_ts = transcript.begun or fallback_ts
        new = [item.uid for item in items if isinstance(item, Event) and item.uid not in self._placed]
        if new:
            found = self._known.events(part=Part(uids=tuple(new), texts=False))
            self._placed.update((event.uid, _Place(event.session, event.turn)) for event in found)
        gone = self._known.forgotten([*new, *(item.key for item in items if isinstance(item, Usage))])
        lost = self._forgotten_origins(transcript.source, items)
        own = self._session(transcript, None)
        for item in items:
            session = own if item.session is None else self._session(transcript, item.session)
            if session.forgotten:
                continue
            if isinstance(item, Event):
                if item.uid in gone or item.origin in lost:
                    session.inherits = session.inherits or not session.row.event_count
                    session.pass_over(item)
                else:
                    self._add_event(session, item, fallback_ts)
            elif isinstance(item, Usage):
                if item.key not in gone and item.origin not in lost:
                    self._add_usage(session, item, fallback_ts)
            elif isinstance(item, About):
                describe(session.row, item, transcript)
                session.changed = True
            else:
                session.end_turn(item)
        others = frozenset(self._current) - {own.row.key}
        return Added(self._since, frozenset(self._owners), others, (*lost.values(), *gone)[:1])

    def _forgotten_origins(self, source: str, items: Sequence[Item]) -> dict[str | None, bytes]:
        """The digests of the forgotten sessions that items were copied from, by the agent's own ids. Such a session may
        have gone on since: what it said then is forgotten, too."""
        origins = {item.origin for item in items if isinstance(item, Event | Usage) and item.origin}
        marks: dict[str | None, bytes] = {origin: session_mark(f"{source}/{origin}") for origin in origins}
        gone = self._known.forgotten([*marks.values()])
        return {origin: mark for origin, mark in marks.items() if mark in gone}

    def session_row(self, key: str) -> SessionRow | None:
        """A session as it is, with what is not committed yet."""
        session = self._open.get(key)
        return session.row if session else self._known.session(key)

    def turn_keys(self, key: str) -> frozenset[str]:
        """The agent's own ids of a session's turns, with those that are not committed yet."""
        turns = self._open[key].turns.values() if key in self._open else ()
        return self._known.turn_keys(key) | {turn.turn_key for turn in turns if turn.turn_key}

    def take(self) -> Batch:
        """The rows as they are now, to be written before anything else is added. Of the sessions only those that are
        being read stay at hand."""
        batch = Batch(
            events=list(self._events.values()),
            replaced=list(self._replaced.values()),
            usage=list(self._usage.values()),
        )
        for session in self._open.values():
            if session.inherits:
                batch.forgotten.append(_copy_mark(session.row.key))
            elif session.changed or session.changed_turns:
                batch.sessions.append(session.row)
            batch.turns.extend(session.turns[ordinal] for ordinal in sorted(session.changed_turns))
            if session.exchanges is not None:
                batch.exchanges += session.exchanges.take()
            session.rest()
        self._events, self._replaced, self._usage, self.text_chars = {}, {}, {}, 0
        self._placed.clear()
        self._turn_events.clear()
        self._open = dict(self._current)
        return batch

    def forget(self) -> None:
        """Drop the sessions so far, of which nothing more will come. The rows from `take` must have been written."""
        self._open.clear()
        self._current.clear()

    def _session(self, transcript: Transcript, native: str | None) -> OpenSession:
        key = f"{transcript.source}/{native or transcript.session}"
        session = self._open.get(key)
        if session is None:
            row = self._known.session(key)
            turn = self._stored_turn(key, row.turn_count) if row and row.turn_count else None
            session = OpenSession(row or SessionRow(key=key, source=transcript.source), turn, {})
            if turn:
                session.turns[turn.ordinal] = turn
            parent = transcript.session if native and native != transcript.session else transcript.parent
            above = [f"{transcript.source}/{parent}"] if parent else []
            session.forgotten = bool(self._known.forgotten([session_mark(name) for name in (key, *above)]))
            session.inherits = not session.row.event_count and bool(self._known.forgotten([_copy_mark(key)]))
            if parent and not session.row.parent:
                session.row.parent = f"{transcript.source}/{parent}"
                session.changed = row is not None
            if transcript.folder and not native and not session.row.folder:
                session.row.folder = transcript.folder
                session.changed = row is not None
            self._open[key] = session
        self._current[key] = session
        return session

    def _add_event(self, session: OpenSession, event: Event, fallback_ts: int) -> None:
        row = session.row
        place = self._placed.get(event.uid)
        ts = event.ts or row.updated_at or fallback_ts
        if session.inherits and (place is None or event.exchange is not None):
            session.inherits, row.title, row.title_rank = False, "", 0
            row.summary = row.slug = None
        if event.exchange is not None:
            self._add_to_exchange(session, event, ts, again=place is not None)
        if place is not None:
            self._meet_again(session, event, place)
            return
        session.entering = False
        turn = self._late_turn(session, event) if event.late else self._turn_for(session, event)
        if self._since is None or ts < self._since:
            self._since = ts
        # Comparisons instead of `min` and `max`, at a third of the price: this is done for every event.
        turn.event_count += 1
        if not turn.started_at or ts < turn.started_at:
            turn.started_at = ts
        if ts > turn.updated_at:
            turn.updated_at = ts
        follow(turn, event)
        row.event_count += 1
        if not row.started_at or ts < row.started_at:
            row.started_at = ts
        if ts > row.updated_at:
            row.updated_at = ts
        if not event.aside:
            session.cover(ts)
        if event.type is _CALL and event.tool:
            row.mode = wider_mode(row.mode, event.tool)
        if event.starts_turn and (not row.title or row.title_rank < 0):
            title, rank = prompt_title(event.text)
            if not row.title or rank > row.title_rank:
                row.title, row.title_rank = title, rank
        if event.cwd and event.cwd != row.last_cwd:
            row.cwd, row.last_cwd = row.cwd or event.cwd, event.cwd
        session.settle()
        self._placed[event.uid] = _Place(row.key, turn.ordinal)
        self.text_chars += len(event.text)
        added = event_row(event, row, turn.ordinal, turn.event_count, ts)
        self._events[event.uid] = added
        if self._turn_events and (events := self._turn_events.get((row.key, turn.ordinal))) is not None:
            events[event.uid] = added

    def _meet_again(self, session: OpenSession, event: Event, place: _Place) -> None:
        """Take an event that is there already: of this session, or repeated from another one."""
        row = session.row
        if event.ts and not event.aside and not row.first_at <= event.ts <= row.last_at:
            session.cover(event.ts)
            session.changed = True
        if place.session != row.key:
            self._owners.add(place.session)
            session.pass_over(event)
            return
        # Only prompts tell where it stands: other records may be written again at any time.
        if event.starts_turn or session.entering:
            session.turn, session.entering = self._turn(session, place.turn), False
        if event.replaces:
            self._replace(session, event, place.turn)

    def _replace(self, session: OpenSession, event: Event, ordinal: int) -> None:
        """Let an event that is there already read as it does now, in its place; its turn and session follow."""
        row, turn = session.row, self._turn(session, ordinal)
        events = self._events_of(row.key, ordinal)
        before = events.get(event.uid)
        if turn is None or before is None:
            return
        after = event_row(event, row, ordinal, before.ordinal, event.ts or before.ts)
        if not differs(before, after):
            if event.ends_turn and turn.terminal != event.uid:  # it was read before the agent said so
                revise(turn, list(events.values()), event)
                if turn.terminal == event.uid:
                    session.changed_turns.add(ordinal)
                    session.settle()
            return
        events[event.uid] = after
        if event.uid in self._events:
            self._events[event.uid] = after
        else:
            after.cwd = event.cwd
            self._replaced[event.uid] = after
        self.text_chars += len(event.text)
        revise(turn, list(events.values()), event)
        row.updated_at = max(row.updated_at, after.ts)
        if after.type is _CALL and after.tool:
            row.mode = wider_mode(row.mode, after.tool)
        if row.title_rank <= 0 and before.type is _INPUT and row.title == prompt_title(before.text)[0]:
            row.title, row.title_rank = prompt_title(after.text)
        session.changed_turns.add(ordinal)
        session.settle()

    def _events_of(self, key: str, ordinal: int) -> dict[bytes, EventRow]:
        events = self._turn_events.get((key, ordinal))
        if events is None:
            known = self._known.events(key, ordinal)
            new = [row for row in self._events.values() if (row.session, row.turn) == (key, ordinal)]
            events = {row.uid: self._replaced.get(row.uid, row) for row in (*known, *new)}
            # A transcript is read turn by turn: one is enough, and turns may be large.
            self._turn_events = {(key, ordinal): events}
        return events

    def _add_to_exchange(self, session: OpenSession, event: Event, ts: int, *, again: bool) -> None:
        if session.exchanges is None:
            session.exchanges = Exchanges(session.row, self._known)
        if session.restarted:
            session.exchanges.restart()
            session.restarted = False
        if session.exchanges.add(event, ts, again=again):
            session.changed = True
            self.text_chars += len(event.user_text or "")

    def _turn(self, session: OpenSession, ordinal: int) -> TurnRow | None:
        turn = session.turns.get(ordinal)
        if turn is None:
            turn = self._stored_turn(session.row.key, ordinal)
            if turn is not None:
                session.turns[ordinal] = turn
        return turn

    def _stored_turn(self, key: str, ordinal: int) -> TurnRow | None:
        return next(iter(self._known.turns(key, Part(above=ordinal - 1, limit=1))), None)

    def _turn_at(self, session: OpenSession, ts: int) -> int:
        """The turn that began last before a time; 0 before the first one."""
        for ordinal in range(session.row.turn_count, 0, -1):
            turn = self._turn(session, ordinal)
            if turn is not None and turn.started_at <= ts:
                return ordinal
        return 0

    def _late_turn(self, session: OpenSession, event: Event) -> TurnRow:
        """The turn that the event names, if it is among the latest ones."""
        newest = session.row.turn_count
        for ordinal in range(newest, max(newest - _RECENT_TURNS, 0), -1):
            turn = self._turn(session, ordinal)
            if turn is not None and turn.turn_key == event.turn_key:
                session.changed_turns.add(ordinal)
                return turn
        return self._turn_for(session, event)

    def _turn_for(self, session: OpenSession, event: Event) -> TurnRow:
        """The current turn, or a new one if there is none or a prompt begins it.

        What stands before the first prompt (settings, context) is part of the turn that the prompt opens.
        """
        turn = session.turn
        if turn is None or (event.starts_turn and has_begun(turn) and session.row.turn_count < MAX_TURNS - 1):
            turn = session.begin_turn()
        session.changed_turns.add(turn.ordinal)
        return turn

    def _add_usage(self, session: OpenSession, usage: Usage, fallback_ts: int) -> None:
        """One row for all records of a message, each of which has the tokens so far."""
        row = self._usage.get(usage.key)
        if row is None:
            turn = self._turn_at(session, usage.ts) if usage.by_time and usage.ts else session.ordinal
            ts = usage.ts or session.row.updated_at or fallback_ts
            self._usage[usage.key] = usage_row(usage, session.row.key, turn, ts)
            session.changed = True
        else:
            add_tokens(row, usage)


def _only_exchanges(items: Sequence[Item]) -> list[Item]:
    """The items that the exchanges of an older archive need. Its turns stay as that version made them, also where this
    one recognises prompts, endings and events differently."""
    marked = [item for item in items if isinstance(item, Event) and item.exchange is not None]
    for event in marked:
        event.starts_turn = event.ends_turn = event.may_end_turn = False
    return list[Item](marked)


def _copy_mark(key: str) -> bytes:
    """The digest by which a session is known that has only repeated what was forgotten."""
    return digest("copy", key)
