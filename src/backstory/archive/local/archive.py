"""The local archive: SQLite is the record, tantivy the index. This is the reading side."""

from __future__ import annotations

import heapq
import sqlite3
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec

from ...config import make_private_folder
from ...model import EVENT_TYPES, EventType, event_id, session_id
from ..base import (
    EVERYTHING,
    ArchiveError,
    Counts,
    DeadlineExceeded,
    EventRow,
    FileRow,
    Found,
    Hit,
    Part,
    Prompted,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    Stamp,
    SyncState,
    TurnHit,
    TurnRow,
    TurnsRequest,
    UsageRow,
)
from ..query import parse_query
from .bodies import Bodies
from .database import Reader, connect, is_writable, prepare
from .documents import EVENTS, TURN_SOURCE, TURNS, split_turn_number, turn_number
from .following import Following
from .index import Index, explained
from .rows import (
    EVENT_COLUMNS,
    FILE_COLUMNS,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
    read_event,
    read_file,
    read_session,
    read_text,
    read_turn,
    read_usage,
)
from .search import Filters, search
from .spans.store import LocalSpans
from .turns import rank_turns
from .writer import LocalWriter, take_lock

__all__ = ["LocalArchive"]

_SESSION = ", ".join(f"s.{name}" for name in SESSION_COLUMNS)
_TURN = ", ".join(f"t.{name}" for name in TURN_COLUMNS)
_EVENT = ", ".join(f"e.{name}" for name in EVENT_COLUMNS)
_TEXT = "e.uid, e.type, e.tool, e.body"
_USAGE = ", ".join(f"u.{name}" for name in USAGE_COLUMNS)
_CHUNK = 2_000
_MAX_NUMBER = (1 << 63) - 1  # that SQLite knows
# What the index `session_folder` is of.
_IN_FOLDERS = "source = :source AND event_count > 0 AND folder IS NOT NULL"


class LocalArchive:
    """Opens (and creates) the archive below a home folder. Any number of threads may ask."""

    def __init__(self, home: Path) -> None:
        self.home = make_private_folder(home)
        self._path = home / "archive.db"
        prepare(self._path)
        self._local = threading.local()
        self._readers: WeakSet[Reader] = WeakSet()
        self._bodies = Bodies(self._dictionary)
        self._events = Index(home / "index", EVENTS)
        self._turns = Index(home / "index", TURNS)

    def writer(self) -> LocalWriter:
        if not is_writable(self._path):
            raise ArchiveError(f"{self.home} cannot be written to: check its permissions")
        lock = take_lock(self.home)
        try:
            return LocalWriter(self.home, connect(self._path, writable=True), self.following, lock)
        except BaseException:
            lock.release()
            raise

    def following(self, record: sqlite3.Connection | None = None) -> Following:
        """For the writer, or for a process that works for it."""
        return Following(record or connect(self._path, writable=False), self._events, self._turns, self.spans)

    @cached_property
    def spans(self) -> LocalSpans:
        return LocalSpans(self.home, self._events_between)

    # Search

    def search(self, request: SearchRequest) -> Found:
        query = parse_query(request.query, self._events.analyzer.analyze)
        snapshot = self._events.searcher()
        filters = self._filters(request)
        # Events are numbered from one and never deleted.
        documents = self._db.execute("SELECT max(id) FROM event").fetchone()[0] or 0
        if snapshot is None or filters is None:
            return Found(query=query, hits=[], more=False, documents=documents)
        with self._until(request.deadline) as db, explained():
            matches, more = search(
                self._events.schema,
                snapshot,
                query,
                filters,
                request.limit,
                request.deadline,
                lambda ids: {
                    id: event_id(uid) for id, uid in self._in(db, "SELECT id, uid FROM event WHERE id IN ({})", ids)
                },
            )
            hits = self._hits(db, {match.id: match.score for match in matches})
        return Found(query=query, hits=hits, more=more, documents=documents)

    def search_turns(self, request: TurnsRequest) -> list[TurnHit]:
        snapshot = self._turns.searcher()
        if snapshot is None:
            return []
        query = parse_query(request.query, self._turns.analyzer.analyze)
        db = self._db
        folders = session = None
        if request.folders is not None:
            ids = self._in(db, "SELECT id FROM project WHERE path IN ({})", request.folders)
            folders = tuple(id for (id,) in ids)
        if request.session is not None:
            row = db.execute("SELECT id FROM session WHERE key = ?", (request.session,)).fetchone()
            session = row[0] if row else 0
        hits = []
        with explained():
            best = rank_turns(self._turns.schema, snapshot, query, folders, session, request.limit)
        for ranked in best:
            row = db.execute(
                "SELECT (SELECT count(*) FROM turn b WHERE b.session = t.session AND b.ordinal < t.ordinal "
                f"AND b.prompt IS NOT NULL), {_TURN}, {_SESSION} FROM turn t JOIN session s ON s.id = t.session "
                "WHERE t.session = ? AND t.ordinal = ?",
                split_turn_number(ranked.number),
            ).fetchone()
            if row is not None:
                number, *values = row
                session_row = read_session(values[len(TURN_COLUMNS) :])
                turn = read_turn(session_row.key, values[: len(TURN_COLUMNS)])
                hits.append(TurnHit(score=ranked.score, session=session_row, turn=turn, number=number))
        return hits

    def _filters(self, request: SearchRequest) -> Filters | None:
        """The request in the index's numbers; None when nothing can match."""
        db = self._db
        session = source = None
        projects = None
        if request.session is not None:
            row = db.execute("SELECT id FROM session WHERE key = ?", (request.session,)).fetchone()
            if row is None:
                return None
            session = row[0]
        if request.source is not None:
            row = db.execute("SELECT id FROM source WHERE name = ?", (request.source,)).fetchone()
            if row is None:
                return None
            source = row[0]
        if request.project is not None:
            part = request.project.casefold()
            rows = db.execute("SELECT id, path FROM project").fetchall()
            projects = tuple(id for id, path in rows if part in path.casefold())
            if not projects:
                return None
        in_turn = session is not None and request.turn is not None
        return Filters(
            types=tuple(kind.code for kind in request.types),
            session=None if in_turn else session,
            turn=turn_number(session, request.turn) if session is not None and request.turn is not None else None,
            projects=projects,
            source=source,
            since=request.since,
            until=request.until,
        )

    def _hits(self, db: sqlite3.Connection, scores: dict[int, float]) -> list[Hit]:
        rows = self._in(
            db,
            f"SELECT e.id, {_EVENT}, {_TURN}, {_SESSION} FROM event e JOIN session s ON s.id = e.session "
            "JOIN turn t ON t.session = e.session AND t.ordinal = e.turn WHERE e.id IN ({})",
            list(scores),
        )
        events, turns = len(EVENT_COLUMNS), len(TURN_COLUMNS)
        found = {}
        for id, *values in rows:
            session = read_session(values[events + turns :])
            found[id] = Hit(
                score=scores[id],
                event=read_event(session.key, values[:events], self._bodies),
                turn=read_turn(session.key, values[events : events + turns]),
                session=session,
            )
        return [found[id] for id in scores if id in found]

    # Sessions

    def session(self, key: str) -> SessionRow | None:
        row = self._db.execute(f"SELECT {_SESSION} FROM session s WHERE s.key = ?", (key,)).fetchone()
        return read_session(row) if row else None

    def sessions(self, request: SessionsRequest) -> list[SessionRow]:
        order, beyond = ("ASC", ">") if request.ascending else ("DESC", "<")
        conditions = ["s.event_count > 0", "s.updated_at >= ?", "s.started_at < ?"]
        parameters: list[object] = [request.start, request.end]
        if request.after is not None:
            conditions.append(f"(s.updated_at, s.public_id) {beyond} (?, ?)")
            parameters.extend(request.after)
        if request.mode is not None:
            conditions.append("s.mode = ?")
            parameters.append(request.mode)
        if request.source is not None:
            conditions.append("s.source = ?")
            parameters.append(request.source)
        if request.project is not None:
            conditions.append("instr(casefold(s.cwd), casefold(?)) > 0")
            parameters.append(request.project)
        with self._until(request.deadline) as db:
            rows = db.execute(
                f"SELECT {_SESSION} FROM session s WHERE {' AND '.join(conditions)} "
                f"ORDER BY s.updated_at {order}, s.public_id {order} LIMIT ?",
                (*parameters, request.limit),
            ).fetchall()
        return [read_session(row) for row in rows]

    def folders(self) -> list[str]:
        # From one folder straight to the next in the index: there are many more sessions than folders.
        rows = self._db.execute(
            f"WITH RECURSIVE step (folder) AS (SELECT min(folder) FROM session WHERE {_IN_FOLDERS} UNION ALL "
            f"SELECT (SELECT min(folder) FROM session WHERE {_IN_FOLDERS} AND folder > step.folder) FROM step "
            "WHERE step.folder IS NOT NULL) SELECT folder FROM step WHERE folder IS NOT NULL",
            {"source": TURN_SOURCE},
        )
        return [folder for (folder,) in rows]

    def sessions_in(self, folders: Sequence[str] | None, limit: int) -> list[SessionRow]:
        db = self._db
        latest = f"SELECT updated_at, id FROM session WHERE {_IN_FOLDERS} AND parent IS NULL"
        order = "ORDER BY updated_at DESC, id DESC"
        if folders is None:
            found: Iterable[tuple[int, int]] = db.execute(f"{latest} {order}", {"source": TURN_SOURCE})
        else:
            # Each folder has its sessions in order in the index, and is asked for no more of them than are wanted.
            per_folder = f"{latest} AND folder = :folder {order}"
            cursors = [db.execute(per_folder, {"source": TURN_SOURCE, "folder": folder}) for folder in folders]
            found = heapq.merge(*cursors, reverse=True)
        ids = [id for _, id in islice(found, min(limit, sys.maxsize))]
        rows = self._in(db, f"SELECT s.id, {_SESSION} FROM session s WHERE s.id IN ({{}})", ids)
        sessions = {id: read_session(values) for id, *values in rows}
        return [sessions[id] for id in ids if id in sessions]

    def prompted(self, keys: Sequence[str]) -> dict[str, Prompted]:
        # With min(), SQLite takes the other columns from the row that has it.
        rows = self._in(
            self._db,
            "SELECT s.key, count(*), t.prompt, min(t.ordinal) FROM session s JOIN turn t ON t.session = s.id "
            "WHERE s.key IN ({}) AND t.prompt IS NOT NULL GROUP BY s.id",
            keys,
        )
        return {key: Prompted(count, first) for key, count, first, _ in rows}

    def neighbours(self, session: SessionRow) -> tuple[str | None, str | None]:
        place = (session.source, session.cwd, session.started_at, session_id(session.key))
        found = []
        for beyond, order in (("<", "DESC"), (">", "ASC")):
            row = self._db.execute(
                "SELECT key FROM session WHERE event_count > 0 AND source = ? AND cwd IS ? "
                f"AND (started_at, public_id) {beyond} (?, ?) ORDER BY started_at {order}, public_id {order} LIMIT 1",
                place,
            ).fetchone()
            found.append(row[0] if row else None)
        return found[0], found[1]

    def children(self, key: str) -> list[SessionRow]:
        rows = self._db.execute(
            f"SELECT {_SESSION} FROM session s WHERE s.parent = ? AND s.event_count > 0 "
            "ORDER BY s.started_at, s.public_id",
            (key,),
        )
        return [read_session(row) for row in rows]

    # Turns and events

    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]:
        rows = self._part(
            f"SELECT {_TURN} FROM turn t JOIN session s ON s.id = t.session WHERE s.key = ?",
            (key,),
            part,
            "t.ordinal",
            _having(part.types),
        )
        return [read_turn(key, row) for row in rows]

    def count_turns(self, key: str, types: Sequence[EventType]) -> int:
        row = self._db.execute(
            f"SELECT count(*) FROM turn t JOIN session s ON s.id = t.session WHERE s.key = ? AND {_having(types)}",
            (key,),
        ).fetchone()
        return int(row[0])

    def turn(self, key: str, ordinal: int) -> TurnRow | None:
        row = self._db.execute(
            f"SELECT {_TURN} FROM turn t JOIN session s ON s.id = t.session WHERE s.key = ? AND t.ordinal = ?",
            (key, ordinal),
        ).fetchone()
        return read_turn(key, row) if row else None

    def prompted_turns(self, key: str) -> list[int]:
        rows = self._db.execute(
            "SELECT t.ordinal FROM turn t JOIN session s ON s.id = t.session WHERE s.key = ? AND t.prompt IS NOT NULL "
            "ORDER BY t.ordinal",
            (key,),
        )
        return [ordinal for (ordinal,) in rows]

    def events(self, key: str, turn: int, part: Part = EVERYTHING) -> list[EventRow]:
        rows = self._part(
            f"SELECT {_EVENT} FROM event e JOIN session s ON s.id = e.session WHERE s.key = ? AND e.turn = ?",
            (key, turn),
            part,
            "e.ordinal",
            _of(part.types),
        )
        return [read_event(key, row, self._bodies) for row in rows]

    def count_events(self, key: str, turn: int, types: Sequence[EventType]) -> int:
        row = self._db.execute(
            "SELECT count(*) FROM event e JOIN session s ON s.id = e.session WHERE s.key = ? AND e.turn = ? "
            f"AND {_of(types)}",
            (key, turn),
        ).fetchone()
        return int(row[0])

    def _part(
        self, sql: str, parameters: tuple[object, ...], part: Part, ordinal: str, types: str
    ) -> list[tuple[Any, ...]]:
        below, limit = (_MAX_NUMBER if bound is None else bound for bound in (part.below, part.limit))
        rows = self._db.execute(
            f"{sql} AND {ordinal} > ? AND {ordinal} < ? AND {types} "
            f"ORDER BY {ordinal} {'DESC' if part.last else 'ASC'} LIMIT ?",
            (*parameters, part.above, below, limit),
        ).fetchall()
        return rows[::-1] if part.last else rows

    def end_events(self, key: str, turn: int) -> tuple[bytes | None, bytes | None]:
        of_turn = "SELECT e.uid FROM event e JOIN session s ON s.id = e.session WHERE s.key = ? AND e.turn = ?"
        first, last = (
            self._db.execute(f"{of_turn} ORDER BY e.ordinal {order} LIMIT 1", (key, turn)).fetchone()
            for order in ("ASC", "DESC")
        )
        return first and first[0], last and last[0]

    def _events_between(self, session: int, turn: int, first: int, last: int) -> list[EventRow]:
        rows = self._db.execute(
            f"SELECT s.key, {_EVENT} FROM event e JOIN session s ON s.id = e.session "
            "WHERE e.session = ? AND e.turn = ? AND e.ordinal BETWEEN ? AND ? ORDER BY e.ordinal",
            (session, turn, first, last),
        )
        return [read_event(row[0], row[1:], self._bodies) for row in rows]

    def event(self, uid: bytes) -> EventRow | None:
        row = self._db.execute(
            f"SELECT s.key, {_EVENT} FROM event e JOIN session s ON s.id = e.session WHERE e.uid = ?", (uid,)
        ).fetchone()
        return read_event(row[0], row[1:], self._bodies) if row else None

    def event_heads(self, uids: Sequence[bytes], chars: int) -> dict[bytes, tuple[str, bool]]:
        return self._heads(self._in(self._db, f"SELECT {_TEXT} FROM event e WHERE e.uid IN ({{}})", uids), chars)

    def turn_heads(self, turns: Sequence[TurnRow], chars: int) -> dict[bytes, tuple[str, bool]]:
        wanted = {uid for turn in turns for uid in (turn.prompt, turn.response) if uid is not None}
        if not wanted:
            return {}
        # Nearly all of them begin or end their turn. Those lie together, while ids are all over the archive.
        rows = self._db.execute(
            f"SELECT {_TEXT} FROM session s JOIN turn t ON t.session = s.id JOIN event e ON e.session = t.session "
            "AND e.turn = t.ordinal AND e.ordinal IN (1, t.event_count) WHERE s.key = ? AND t.ordinal BETWEEN ? AND ?",
            (turns[0].session, turns[0].ordinal, turns[-1].ordinal),
        )
        found = self._heads((row for row in rows if row[0] in wanted), chars)
        return found | self.event_heads([uid for uid in wanted if uid not in found], chars)

    def _heads(self, rows: Iterable[tuple[Any, ...]], chars: int) -> dict[bytes, tuple[str, bool]]:
        texts = ((uid, read_text(EVENT_TYPES[kind], tool, body, self._bodies)) for uid, kind, tool, body in rows)
        return {uid: (text[:chars], len(text) > chars) for uid, text in texts}

    def neighbour_events(self, event: EventRow) -> tuple[bytes | None, bytes | None]:
        rows = dict(
            self._db.execute(
                "SELECT e.ordinal, e.uid FROM event e JOIN session s ON s.id = e.session "
                "WHERE s.key = ? AND e.turn = ? AND e.ordinal IN (?, ?)",
                (event.session, event.turn, event.ordinal - 1, event.ordinal + 1),
            ).fetchall()
        )
        return rows.get(event.ordinal - 1), rows.get(event.ordinal + 1)

    def usage(self, key: str) -> list[UsageRow]:
        rows = self._db.execute(
            f"SELECT {_USAGE} FROM usage u JOIN session s ON s.id = u.session WHERE s.key = ? ORDER BY u.turn, u.ts",
            (key,),
        )
        return [read_usage(key, row) for row in rows]

    # The archive itself

    def files(self) -> Iterator[FileRow]:
        for row in self._db.execute(f"SELECT {', '.join(FILE_COLUMNS)} FROM file ORDER BY path"):
            yield read_file(row)

    def stamps(self) -> dict[str, Stamp]:
        rows = self._db.execute("SELECT path, source, inode, size, mtime_ns, missing FROM file")
        return {
            path: Stamp(source, inode, size, mtime_ns, bool(missing))
            for path, source, inode, size, mtime_ns, missing in rows
        }

    def counts(self) -> Counts:
        db = self._db
        files, broken, missing = db.execute(
            "SELECT count(*), sum(errors > 0), sum(missing) FROM file WHERE session <> '' OR errors > 0"
        ).fetchone()
        sessions, turns, events = db.execute(
            "SELECT count(*), sum(turn_count), sum(event_count) FROM session WHERE event_count > 0"
        ).fetchone()
        by_source = db.execute("SELECT source, count(*) FROM session WHERE event_count > 0 GROUP BY source ORDER BY 1")
        return Counts(
            sessions=sessions,
            turns=turns or 0,
            events=events or 0,
            files=files,
            files_with_errors=broken or 0,
            files_missing=missing or 0,
            by_source=dict(by_source.fetchall()),
            bytes=sum(path.stat().st_size for path in self.home.rglob("*") if path.is_file()),
        )

    def sync_state(self) -> SyncState:
        row = self._db.execute("SELECT value FROM meta WHERE name = 'sync'").fetchone()
        state = msgspec.json.decode(row[0], type=SyncState) if row else SyncState()
        state.read_only = not is_writable(self._path)
        state.index_behind = state.first_finished_at is not None and (self._events.outdated or self._turns.outdated)
        return state

    def is_whole(self) -> bool:
        row = self._db.execute("SELECT value FROM meta WHERE name = 'whole'").fetchone()
        if row is None or self._events.outdated or self._turns.outdated:
            return False
        event, change = msgspec.json.decode(row[0], type=tuple[int, int])
        last = self._db.execute("SELECT (SELECT max(id) FROM event), (SELECT max(change) FROM turn)").fetchone()
        return event >= (last[0] or 0) and change >= (last[1] or 0)

    def close(self) -> None:
        if "spans" in self.__dict__:
            self.spans.close()
        for reader in list(self._readers):
            reader.close()

    # Connections: one for each thread

    @property
    def _db(self) -> sqlite3.Connection:
        reader: Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = Reader(connect(self._path, writable=False))
            self._readers.add(reader)
        return reader.connection

    @contextmanager
    def _until(self, deadline: float | None) -> Iterator[sqlite3.Connection]:
        """The connection, with statements interrupted once the deadline has passed."""
        db = self._db
        if deadline is None:
            yield db
            return
        db.set_progress_handler(lambda: time.monotonic() > deadline, 20_000)
        try:
            yield db
        except sqlite3.OperationalError as error:
            if str(error) == "interrupted":
                raise DeadlineExceeded("the request took too long") from None
            raise
        finally:
            db.set_progress_handler(None, 0)

    @staticmethod
    def _in(db: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[Any]:
        """Rows for many keys, asked in chunks that SQLite accepts; `{}` stands for the marks."""
        rows: list[Any] = []
        for start in range(0, len(values), _CHUNK):
            chunk = values[start : start + _CHUNK]
            rows += db.execute(sql.format(", ".join("?" * len(chunk))), chunk).fetchall()
        return rows

    def _dictionary(self) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE name = 'dictionary'").fetchone()
        return row[0] if row else None


def _of(types: Sequence[EventType]) -> str:
    """The condition that an event is of one of these types."""
    return "true" if len(types) == len(EVENT_TYPES) else f"e.type IN ({', '.join(str(kind.code) for kind in types)})"


def _having(types: Sequence[EventType]) -> str:
    """The condition that a turn has an event of one of these types."""
    return "true" if len(types) == len(EVENT_TYPES) else f"t.types GLOB '*[{''.join(str(k.code) for k in types)}]*'"
