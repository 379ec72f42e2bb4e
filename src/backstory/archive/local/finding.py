"""Finding events and exchanges: the index says which, the record what they are."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from ...model import event_id
from ..base import ExchangeHit, ExchangesRequest, Found, Hit, SearchRequest
from ..query import parse_query
from .connections import Connections
from .documents import EVENTS, EXCHANGES, split_turn_number, turn_number
from .exchanges import rank_exchanges
from .index import Index, explained
from .rows import EVENT_COLUMNS, SESSION_COLUMNS, TURN_COLUMNS, read_event, read_session, read_turn
from .search import Filters, search

__all__ = ["Finding"]

_SESSION = ", ".join(f"s.{name}" for name in SESSION_COLUMNS)
_TURN = ", ".join(f"t.{name}" for name in TURN_COLUMNS)
_EVENT = ", ".join(f"e.{name}" for name in EVENT_COLUMNS)


class Finding(Connections):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._events = Index(path.parent / "index", EVENTS)
        self._exchanges = Index(path.parent / "index", EXCHANGES)

    def search(self, request: SearchRequest) -> Found:
        query = parse_query(request.query, self._events.analyzer.analyze)
        snapshot = self._events.searcher()
        filters = self._filters(request)
        documents = 0 if snapshot is None else snapshot.num_docs
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

    def search_exchanges(self, request: ExchangesRequest) -> list[ExchangeHit]:
        snapshot = self._exchanges.searcher()
        if snapshot is None:
            return []
        query = parse_query(request.query, self._exchanges.analyzer.analyze)
        db = self._db
        folders = session = None
        if request.folders is not None:
            names = db.execute("SELECT id, path FROM project").fetchall()
            folders = tuple(id for id, path in names if request.folders(path))
        if request.session is not None:
            row = db.execute("SELECT id FROM session WHERE key = ?", (request.session,)).fetchone()
            session = row[0] if row else 0
        with explained():
            ranked = rank_exchanges(self._exchanges.schema, snapshot, query, folders, session, request.limit)
        places = [(exchange.score, *split_turn_number(exchange.number)) for exchange in ranked]
        ids = list({session for _, session, _ in places})
        rows = self._in(db, f"SELECT s.id, {_SESSION} FROM session s WHERE s.id IN ({{}})", ids)
        sessions = {id: read_session(values) for id, *values in rows}
        return [
            ExchangeHit(score=score, session=sessions[id], number=number)
            for score, id, number in places
            if id in sessions and number < sessions[id].exchange_count
        ]

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
