"""The local archive: SQLite is the record, tantivy the index."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...config import make_private_folder
from ...model import EVENT_TYPES, EventRef, Ref, SessionRef, TurnRef
from ...sqlite import Readers, connect, is_writable, prepare
from ..base import (
    Archive,
    ArchiveError,
    Counts,
    EventRow,
    Opened,
    OpenedEvent,
    OpenedSession,
    OpenedTurn,
    Part,
    SyncState,
)
from ..errors import DAMAGED
from ..lock import WriterLock, is_held
from .database import FUNCTIONS, MIGRATIONS, explained, progress_of
from .documents import EVENTS, EXCHANGES
from .index import Index
from .reading import EVENT, HEADS, SESSION, TURN, having, of_types
from .rows import (
    EVENT_COLUMNS,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    read_event,
    read_session,
    read_turn,
    split,
)
from .search import Searching

if TYPE_CHECKING:
    from ..spantexts import Ordinals
    from .feed import Feed
    from .spans import LocalSpans
    from .writer import LocalWriter

# The writer may be rewriting the whole file.
_FORGET_BUSY_SECONDS = 60.0

_BESIDE = (
    "(SELECT b.key FROM session b WHERE b.event_count > 0 AND b.source = s.source AND b.cwd IS s.cwd "
    "AND (b.started_at, b.public_id) {} (s.started_at, s.public_id) "
    "ORDER BY b.started_at {order}, b.public_id {order} LIMIT 1)"
)
_CHILDREN = (
    "(SELECT json_group_array(key) FROM (SELECT c.key FROM session c WHERE c.parent = s.key AND c.event_count > 0{} "
    "ORDER BY c.started_at, c.public_id))"
)
_TURN_AT = "EXISTS (SELECT 1 FROM turn b WHERE b.session = t.session AND b.ordinal = t.ordinal {} 1)"
_EVENT_AT = "(SELECT b.uid FROM event b WHERE b.session = e.session AND b.turn = e.turn AND b.ordinal = e.ordinal {} 1)"
_END_EVENT = (
    "(SELECT b.uid FROM event b WHERE b.session = t.session AND b.turn = t.ordinal ORDER BY b.ordinal {} LIMIT 1)"
)


class _BesideSession(NamedTuple):
    previous: str | None
    next: str | None
    parent: str | None
    children: str
    total: int


class _BesideTurn(NamedTuple):
    first: bytes | None
    last: bytes | None
    has_previous: int
    has_next: int
    total: int


class _BesideEvent(NamedTuple):
    previous: bytes | None
    next: bytes | None
    has_previous_turn: int
    has_next_turn: int
    children: str


_OPEN_SESSION = (
    f"SELECT {SESSION}, {_BESIDE.format('<', order='DESC')}, {_BESIDE.format('>', order='ASC')}, "
    f"(SELECT p.key FROM session p WHERE p.key = s.parent), {_CHILDREN.format('')}, {{total}} "
    "FROM session s WHERE s.key = ?"
)
_OPEN_TURN = (
    f"SELECT {SESSION}, {TURN}, {HEADS}, {_END_EVENT.format('ASC')}, {_END_EVENT.format('DESC')}, "
    f"{_TURN_AT.format('-')}, {_TURN_AT.format('+')}, {{total}} "
    "FROM turn t JOIN session s ON s.id = t.session WHERE s.key = ? AND t.ordinal = ?"
)
_OPEN_EVENT = (
    f"SELECT {SESSION}, {TURN}, {EVENT}, {_EVENT_AT.format('-')}, {_EVENT_AT.format('+')}, "
    f"{_TURN_AT.format('-')}, {_TURN_AT.format('+')}, "
    + _CHILDREN.format(" AND c.parent_call = json_extract(e.facts, '$.call')")
    + " FROM event e JOIN session s ON s.id = e.session "
    "LEFT JOIN turn t ON t.session = e.session AND t.ordinal = e.turn WHERE e.uid = ?"
)


class LocalArchive(Searching, Archive):
    """Opens (and creates) the archive below a home folder. A search from a cold process loads nothing but searching."""

    def __init__(self, home: Path, projection: str | None = None) -> None:
        self.home = make_private_folder(home)
        self._projection = projection
        self._path = home / "archive.db"
        self._traces = os.fspath(home / "traces.db")
        with explained(self._path, DAMAGED):
            prepare(self._path, MIGRATIONS, functions=FUNCTIONS)
        self._readers = Readers(lambda: connect(self._path, writable=False))
        indexes = home / "index"
        super().__init__(self._readers, Index(indexes, EVENTS), Index(indexes, EXCHANGES))

    def close(self) -> None:
        if "spans" in self.__dict__:
            self.spans.close()
        self._readers.close()

    # Writing

    def writer(self) -> LocalWriter:
        from .writer import LocalWriter

        self._check_writable()
        lock = WriterLock(self.home)
        try:
            connection = connect(self._path, writable=True, functions=FUNCTIONS)
            return LocalWriter(self.home, connection, self.feed, self._events, self._projection, lock)
        except BaseException:
            lock.release()
            raise

    def feed(self, record: sqlite3.Connection | None = None) -> Feed:
        """The feed of the index: on the connection of the writer, or on one of its own in a second process."""
        from .feed import Feed
        from .spans.turns import TraceFeed

        # Read from the first to the last row once: pages that stay mapped or cached are memory for nothing.
        own = record or connect(self._path, writable=False, pragmas={"mmap_size": 0, "cache_size": -8_192})
        traces = TraceFeed(own, self.spans, self._projection, bulk=record is None)
        return Feed(own, self._events, self._exchanges, traces)

    @cached_property
    def spans(self) -> LocalSpans:
        from .spans import LocalSpans

        return LocalSpans(self.home, self._events_between)

    def forget(self, key: str, *, remember: bool = True, wipe: bool = True) -> None:
        from .forgetting import request

        self._check_writable()
        pragmas = {"synchronous": "FULL"}
        with closing(connect(self._path, writable=True, busy_seconds=_FORGET_BUSY_SECONDS, pragmas=pragmas)) as db:
            request(db, key, remember=remember, wipe=wipe)

    def _check_writable(self) -> None:
        if not is_writable(self._path):
            raise ArchiveError(f"{self.home} cannot be written to: check its permissions")

    def _events_between(self, ranges: Sequence[Ordinals[int]]) -> Iterator[list[EventRow]]:
        for ordinals in ranges:
            rows = self._db.execute(
                f"SELECT s.key, {EVENT} FROM event e JOIN session s ON s.id = e.session "
                "WHERE e.session = ? AND e.turn = ? AND e.ordinal BETWEEN ? AND ? ORDER BY e.ordinal",
                ordinals,
            )
            yield [read_event(row[0], row[1:], self._bodies) for row in rows]

    # Opening: one query for a row and what is beside it, one for what is in it

    def _open(self, ref: Ref, part: Part) -> Opened | None:
        if isinstance(ref, SessionRef):
            return self._open_session(ref, part)
        return self._open_turn(ref, part) if isinstance(ref, TurnRef) else self._open_event(ref, part)

    def _open_session(self, ref: SessionRef, part: Part) -> OpenedSession | None:
        total = "s.turn_count"
        if len(part.types) < len(EVENT_TYPES):
            total = f"(SELECT count(*) FROM turn t WHERE t.session = s.id AND {having(part.types)})"
        row = self._db.execute(_OPEN_SESSION.format(total=total), (ref.key,)).fetchone()
        if row is None:
            return None
        session, rest = split(row, SESSION_COLUMNS)
        beside = _BesideSession(*rest)
        return OpenedSession(
            session=read_session(session),
            turns=self.turns(ref.key, part),
            total=beside.total,
            previous=beside.previous,
            next=beside.next,
            parent=beside.parent,
            children=msgspec.json.decode(beside.children),
        )

    def _open_turn(self, ref: TurnRef, part: Part) -> OpenedTurn | None:
        total = "t.event_count"
        if len(part.types) < len(EVENT_TYPES):
            total = (
                "(SELECT count(*) FROM event e WHERE e.session = t.session AND e.turn = t.ordinal "
                f"AND {of_types(part.types)})"
            )
        row = self._db.execute(_OPEN_TURN.format(total=total), (ref.key, ref.ordinal)).fetchone()
        if row is None:
            return None
        session, turn, heads, rest = split(row, SESSION_COLUMNS, TURN_COLUMNS, ("prompt", "response"))
        beside = _BesideTurn(*rest)
        return OpenedTurn(
            session=read_session(session),
            turn=self._turn(ref.key, (*turn, *heads), part.heads),
            events=self.events(ref.key, ref.ordinal, part),
            total=beside.total,
            first=beside.first,
            last=beside.last,
            has_previous=bool(beside.has_previous),
            has_next=bool(beside.has_next),
        )

    def _open_event(self, ref: EventRef, part: Part) -> OpenedEvent | None:
        row = self._db.execute(_OPEN_EVENT, (ref.uid,)).fetchone()
        if row is None:
            return None
        session_values, turn, event_values, rest = split(row, SESSION_COLUMNS, TURN_COLUMNS, EVENT_COLUMNS)
        if turn[0] is None:
            raise ArchiveError("the turn of this event is missing; `backstory doctor` may tell why")
        session, beside = read_session(session_values), _BesideEvent(*rest)
        event = read_event(session.key, event_values, self._bodies)
        return OpenedEvent(
            session=session,
            turn=read_turn(session.key, turn),
            event=event,
            events=[] if part.around is None else self.events(session.key, event.turn, part),
            previous=beside.previous,
            next=beside.next,
            has_previous_turn=bool(beside.has_previous_turn),
            has_next_turn=bool(beside.has_next_turn),
            children=msgspec.json.decode(beside.children),
        )

    # State

    def counts(self) -> Counts:
        db = self._db
        files, broken, missing = db.execute(
            "SELECT count(*), sum(errors > 0), sum(missing) FROM file WHERE session <> '' OR errors > 0"
        ).fetchone()
        sessions, turns, events = db.execute(
            "SELECT count(*), sum(turn_count), sum(event_count) FROM session WHERE event_count > 0"
        ).fetchone()
        by_source = db.execute("SELECT source, count(*) FROM session WHERE event_count > 0 GROUP BY source ORDER BY 1")
        snapshot = self._events.searcher()
        return Counts(
            sessions=sessions,
            turns=turns or 0,
            events=events or 0,
            documents=0 if snapshot is None else snapshot.num_docs,
            files=files,
            files_with_errors=broken or 0,
            files_missing=missing or 0,
            by_source=dict(by_source.fetchall()),
            bytes=sum(path.stat().st_size for path in self.home.rglob("*") if path.is_file()),
        )

    def sync_state(self, *, folders: bool = False) -> SyncState:
        progress = self._readers.read(progress_of)
        outdated = self._events.outdated or self._exchanges.outdated
        state = copy(progress.sync)
        state.read_only = not is_writable(self._path)
        state.writing = is_held(self.home)
        state.index_behind = state.first_finished_at is not None and outdated
        state.recovered = progress.recovered and not outdated and os.access(self._traces, os.F_OK)
        state.folders = self._folders() if folders else ()
        return state
