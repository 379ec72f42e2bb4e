"""Searching: the index gives candidates, ranking their order, the record the rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import lru_cache, partial
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

import msgspec

from ...model import EVENT_TYPES, EventType, event_id
from ...sqlite import select_in
from .. import ranking
from ..base import Exchange, ExchangesRequest, Found, Hit, SearchRequest, Totals, any_folder
from ..hits import Project, fill_page, named_projects, project_around, projects_with
from ..query import parse_query
from ..question import read_hints
from ..ranking import Candidate, Context, Ranked
from .counting import count_matches
from .documents import turn_number
from .exchanges import RankedExchange, rank_exchanges
from .index import Index, explained
from .reading import EVENT, EXCHANGES_AT_ONCE, SESSION, TURN, Reading
from .retrieval import Filters, Match, Question
from .rows import (
    EVENT_COLUMNS,
    EXCHANGE_COLUMNS,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    columns,
    read_event,
    read_session,
    read_turn,
    split,
)

# The sessions whose titles match best.
_TITLES = 50

# All that a search needs of the record before it asks the index, in one statement.
_CONTEXT = """
SELECT (SELECT id FROM session WHERE key = :session) AS session,
    EXISTS (SELECT 1 FROM turn t JOIN session s ON s.id = t.session WHERE s.key = :session AND t.ordinal = :turn)
        AS has_turn,
    (SELECT id FROM source WHERE name = :source) AS source,
    (SELECT json_group_array(json_array(id, path, identity)) FROM project) AS projects,
    (SELECT json_group_array(json_array(id, name)) FROM source) AS sources
"""
# Of a session whose title matches, the first prompt is shown if nothing else of it is found.
_TITLES_LIKE = """
SELECT found.id, found.score, e.id, e.turn, e.project, e.ts, o.id FROM (
    SELECT rowid AS id, -rank AS score FROM session_title WHERE session_title MATCH :words
    ORDER BY rank, rowid LIMIT :titles
) found JOIN session s ON s.id = found.id JOIN source o ON o.name = s.source JOIN event e ON e.id = (
    SELECT f.id FROM event f WHERE f.session = s.id AND f.type = 0 ORDER BY f.turn, f.ordinal LIMIT 1
)
"""
_HITS = (
    f"SELECT e.id, {EVENT}, {TURN}, {SESSION} FROM event e JOIN session s ON s.id = e.session "
    "JOIN turn t ON t.session = e.session AND t.ordinal = e.turn WHERE e.id IN ({})"
)
_PLACES = "SELECT id, session, turn, type, project FROM event WHERE id IN ({})"
_EXCHANGES_AT = (
    f"SELECT {columns('x', EXCHANGE_COLUMNS)}, {SESSION}, x.session FROM json_each(?) place CROSS JOIN exchange x "
    "ON x.session = place.value >> 20 AND x.number = place.value & 0xFFFFF JOIN session s ON s.id = x.session "
    "WHERE x.number < s.exchange_count"
)


class _Title(NamedTuple):
    """A matching title, and the first prompt of its session."""

    session: int
    score: float
    event: int
    turn: int
    project: int | None
    ts: int
    source: int


class _Context(NamedTuple):
    session: int | None
    has_turn: int
    source: int | None
    projects: list[Project]
    sources: dict[int, str]


# The same projects in every search, until there is a new one.
_decode_projects = lru_cache(maxsize=8)(msgspec.json.Decoder(list[Project]).decode)
_decode_sources = msgspec.json.Decoder(list[tuple[int, str]]).decode


class Searching(Reading):
    def __init__(self, connection: Callable[[], sqlite3.Connection], events: Index, exchanges: Index) -> None:
        super().__init__(connection)
        self._events = events
        self._exchanges = exchanges

    def search(self, request: SearchRequest) -> Found:
        query = parse_query(request.query, self._events.analyzer.analyze)
        snapshot = self._events.searcher()
        with self._until(request.deadline) as db, explained():
            record = self._context(db, request)
            filters, known = _filters(request, record)
            if snapshot is None:
                return Found(query=query, hits=[], more=False, documents=0, known=known)
            now = datetime.now().astimezone()
            hints = read_hints(request.query, now)
            question = Question(
                self._events.schema,
                snapshot,
                query,
                hints,
                filters or Filters(types=()),
                request.deadline,
                version=self._events.version,
            )
            documents = snapshot.num_docs
            if filters is None:
                return Found(query=query, hits=[], more=False, documents=documents, known=known, terms=question.terms)
            candidates, is_cut = self._candidates(db, question, request)
            # A quoted phrase is required, and a title does not have it in the right place; a session has one title.
            named = [] if request.session is not None or query.is_quoted else self._titles(db, question)
            candidates += _title_candidates(named, candidates, request, filters)
            titles = {title.session: title.score for title in named}
            context = Context(
                now=int(now.timestamp() * 1000),
                is_error=hints.is_error,
                period=hints.period,
                projects=named_projects(record.projects, query),
                here=project_around(record.projects, request.here),
            )
            spread = request.session is None
            ranked = ranking.rank(candidates, titles, frozenset(request.types), context, spread=spread)
            bound = ranking.bound(question.bound, max(titles.values(), default=0.0), context)
            load = partial(self._hits, db, bound=bound)
            hits, more = fill_page(ranked, request.limit, partial(self._cut, db), load, fold=spread)
            if request.explain:
                for hit in hits:
                    hit.matched = question.matched(hit.event.text, hit.session.title)
            totals = None if request.totals is None else self._totals(db, request, question, record, hits)
        return Found(
            query=query, hits=hits, more=more or is_cut, documents=documents, terms=question.terms, totals=totals
        )

    def _totals(
        self, db: sqlite3.Connection, request: SearchRequest, question: Question, record: _Context, hits: Sequence[Hit]
    ) -> Totals | None:
        paths = {project.id: project.path for project in record.projects}
        keys = {hit.session.key for hit in hits}
        sessions = dict(select_in(db, "SELECT id, key FROM session WHERE key IN ({})", list(keys)))
        return count_matches(question, request.types, request.totals or (), record.sources, paths, sessions)

    def _context(self, db: sqlite3.Connection, request: SearchRequest) -> _Context:
        values = {"session": request.session, "turn": request.turn, "source": request.source}
        session, has_turn, source, projects, sources = db.execute(_CONTEXT, values).fetchone()
        return _Context(session, has_turn, source, _decode_projects(projects), dict(_decode_sources(sources)))

    def _titles(self, db: sqlite3.Connection, question: Question) -> list[_Title]:
        words = " OR ".join(f'"{" ".join(phrase)}"' for phrase in question.title_phrases)
        return [_Title(*row) for row in db.execute(_TITLES_LIKE, {"words": words or '""', "titles": _TITLES})]

    # Candidates

    def _candidates(
        self, db: sqlite3.Connection, question: Question, request: SearchRequest
    ) -> tuple[list[Candidate], bool]:
        """Events of all types, which are evidence, and enough of the types that are returned; and whether there are
        more of those. Equals of a session are in the order of the contract."""
        returned = frozenset(request.types)
        candidates, is_cut = self._matching(db, question, returned, request.limit)
        if not _has_more(candidates, returned, request.limit) and question.widen():
            candidates, is_cut = self._matching(db, question, returned, request.limit)
        candidates = question.weigh_closely(candidates)
        places = Counter(map(_place, candidates))
        if len(places) < len(candidates):
            ids = self._event_ids(db, [one for one in candidates if places[_place(one)] > 1])
            candidates.sort(key=lambda one: ids.get(one.id, ""))
        return candidates, is_cut and _has_more(candidates, returned, request.limit)

    def _matching(
        self, db: sqlite3.Connection, question: Question, returned: frozenset[EventType], limit: int
    ) -> tuple[list[Candidate], bool]:
        matches, is_cut = question.matches(limit, typed=False)
        candidates = self._placed(db, question, matches)
        if is_cut and len(returned) < len(EVENT_TYPES) and not _has_more(candidates, returned, limit):
            known = {candidate.id for candidate in candidates}
            matches, is_cut = question.matches(limit, typed=True)
            candidates += [one for one in self._placed(db, question, matches) if one.id not in known]
        return candidates, is_cut

    def _placed(self, db: sqlite3.Connection, question: Question, matches: Sequence[Match]) -> list[Candidate]:
        if question.has_places:
            return question.candidates(matches)
        ids, times = question.columns(matches, "id", "ts")
        rows = {id: place for id, *place in select_in(db, _PLACES, ids)}
        return [
            Candidate(id, score, EVENT_TYPES[kind], session, turn_number(session, turn), project or 0, ts)
            for (score, _), id, ts in zip(matches, ids, times, strict=True)
            if id in rows
            for session, turn, kind, project in (rows[id],)
        ]

    def _event_ids(self, db: sqlite3.Connection, candidates: Iterable[Candidate]) -> dict[int, str]:
        rows = select_in(db, "SELECT id, uid FROM event WHERE id IN ({})", [one.id for one in candidates])
        return {id: event_id(uid) for id, uid in rows}

    # The page

    def _cut(self, db: sqlite3.Connection, hits: list[Ranked], count: int) -> tuple[list[Ranked], list[Ranked]]:
        """The first hits and the rest. Where the cut is among equals, their ids decide, and are asked for."""
        if count >= len(hits):
            return hits, []
        place = (hits[count].score, hits[count].ts)
        first = end = count
        while first > 0 and (hits[first - 1].score, hits[first - 1].ts) == place:
            first -= 1
        if first < count:
            while end < len(hits) and (hits[end].score, hits[end].ts) == place:
                end += 1
            ids = self._event_ids(db, (hit.candidate for hit in hits[first:end]))
            hits[first:end] = sorted(hits[first:end], key=lambda hit: ids.get(hit.candidate.id, ""))
        return hits[:count], hits[count:]

    def _hits(self, db: sqlite3.Connection, ranked: Sequence[Ranked], *, bound: float) -> list[Hit]:
        found = {}
        for id, *values in select_in(db, _HITS, [hit.candidate.id for hit in ranked]):
            event, turn, session_values, _ = split(values, EVENT_COLUMNS, TURN_COLUMNS, SESSION_COLUMNS)
            session = read_session(session_values)
            found[id] = (read_event(session.key, event, self._bodies), read_turn(session.key, turn), session)
        hits = []
        for hit in ranked:
            if hit.candidate.id in found:
                row, turn_row, session = found[hit.candidate.id]
                score = min(hit.score / bound, 1.0)
                hits.append(Hit(score=score, event=row, turn=turn_row, session=session, evidence=hit.evidence))
        return sorted(hits, key=lambda hit: (-hit.score, -hit.event.ts, event_id(hit.event.uid)))

    # Exchanges

    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        if request.query is None:
            yield from super().exchanges(request)
            return
        ranked = self._rank_exchanges(request, request.query)
        for start in range(0, len(ranked), EXCHANGES_AT_ONCE):
            yield from self._exchanges_at(ranked[start : start + EXCHANGES_AT_ONCE], request)

    def _rank_exchanges(self, request: ExchangesRequest, text: str) -> list[RankedExchange]:
        snapshot = self._exchanges.searcher()
        if snapshot is None:
            return []
        query = parse_query(text, self._exchanges.analyzer.analyze)
        db = self._db
        folders = session = None
        if request.folders is not None and request.folders is not any_folder:
            names = db.execute("SELECT id, path FROM project").fetchall()
            folders = tuple(id for id, path in names if request.folders(path))
        if request.session is not None:
            row = db.execute("SELECT id FROM session WHERE key = ?", (request.session,)).fetchone()
            session = row[0] if row else 0
        limit = snapshot.num_docs if request.limit is None else request.limit
        with explained():
            return rank_exchanges(self._exchanges.schema, snapshot, query, folders, session, limit)

    def _exchanges_at(self, ranked: Sequence[RankedExchange], request: ExchangesRequest) -> Iterator[Exchange]:
        places = msgspec.json.encode([match.number for match in ranked]).decode()
        rows = self._db.execute(_EXCHANGES_AT, (places,)).fetchall()
        found = {}
        for row, exchange in zip(rows, self._read_exchanges(rows, request), strict=True):
            found[turn_number(row[-1], exchange.row.number)] = exchange
        for match in ranked:
            if match.number in found:  # it may have been deleted since it was indexed
                exchange = found[match.number]
                exchange.score = match.score
                yield exchange


def _filters(request: SearchRequest, record: _Context) -> tuple[Filters | None, bool]:
    """The request in the numbers of the index, None when nothing can match; and whether its place is known."""
    missing_turn = request.turn is not None and not record.has_turn
    if request.session is not None and (record.session is None or missing_turn):
        return None, False
    projects = None
    if request.project is not None:
        projects = tuple(projects_with(record.projects, request.project))
    if (request.source is not None and record.source is None) or projects == ():
        return None, True
    in_turn = record.session is not None and request.turn is not None
    return Filters(
        types=tuple(kind.code for kind in request.types),
        session=None if in_turn else record.session,
        turn=turn_number(record.session or 0, request.turn or 0) if in_turn else None,
        projects=projects,
        source=record.source,
        since=request.since,
        until=request.until,
    ), True


def _title_candidates(
    titles: Iterable[_Title], candidates: Sequence[Candidate], request: SearchRequest, filters: Filters
) -> Iterator[Candidate]:
    """The first prompts of sessions that match by their titles alone."""
    if EventType.USER_INPUT not in request.types:
        return
    found = {candidate.session for candidate in candidates if candidate.type in request.types}
    for title in titles:
        in_time = (request.since is None or title.ts >= request.since) and (
            request.until is None or title.ts < request.until
        )
        in_project = filters.projects is None or title.project in filters.projects
        if title.session not in found and in_time and in_project and filters.source in (None, title.source):
            yield Candidate(
                id=title.event,
                score=0.0,
                type=EventType.USER_INPUT,
                session=title.session,
                turn=turn_number(title.session, title.turn),
                project=title.project or 0,
                ts=title.ts,
            )


def _has_more(candidates: Iterable[Candidate], types: frozenset[EventType], limit: int) -> bool:
    """True if more than so many candidates are of these types."""
    return next(islice((one for one in candidates if one.type in types), limit, None), None) is not None


_place = attrgetter("session", "score", "ts")
