"""Searching: the index gives candidates, ranking their order, the record the rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice, pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ...model import EVENT_TYPES, EventType, event_id
from ...sqlite import Readers, select_in
from .. import ranking
from ..base import Exchange, ExchangesRequest, Found, Hit, SearchRequest, Totals, any_folder
from ..hits import Project, fill_page, named_projects, project_around, projects_with
from ..query import parse_query
from ..question import read_hints
from ..ranking import Candidate, Context, Ranked
from .counting import Numbered, Vocabulary, count_matches
from .documents import ONE_FIELD_SINCE, Filters, RankedExchange, rank_exchanges, turn_number
from .index import Index, explained
from .reading import EVENT, EXCHANGES_AT_ONCE, SESSION, TURN, Reading
from .retrieval import Match, Question
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

if TYPE_CHECKING:
    import tantivy

_SCOPE = """
SELECT id, EXISTS (SELECT 1 FROM turn t WHERE t.session = s.id AND t.ordinal = :turn)
FROM session s WHERE key = :session
"""
# Without `rank`: to compute it FTS5 looks up the length of each title, which takes ten times as long as finding them.
_TITLED = (
    "(SELECT json_group_array(rowid) FROM "
    f"(SELECT rowid FROM session_title WHERE session_title MATCH ? LIMIT {ranking.COMMON_TITLES + 1}))"
)
# Of a session whose title matches, the first prompt is shown if nothing else of it is found.
_FIRST_PROMPTS = """
SELECT s.id, e.id, e.turn, e.project, e.ts, s.source FROM session s JOIN event e ON e.id = (
    SELECT f.id FROM event f WHERE f.session = s.id AND f.type = 0 ORDER BY f.turn, f.ordinal LIMIT 1
) WHERE s.id IN ({})
"""
_BRANCHES = """
SELECT s.branch, sum(c.value) FROM json_each(?) c JOIN session s ON s.id = CAST(c.key AS INTEGER)
WHERE s.branch <> '' GROUP BY s.branch
"""
_PROMPT = EventType.USER_INPUT
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


class _Names(NamedTuple):
    """The names that the index has numbers for. They are the same in every search, until there is a new one."""

    projects: list[Project]
    sources: dict[int, str]


def _read_names(db: sqlite3.Connection) -> _Names:
    projects = [Project(*row) for row in db.execute("SELECT id, path, identity FROM project")]
    return _Names(projects, dict(db.execute("SELECT id, name FROM source").fetchall()))


class Searching(Reading):
    def __init__(self, readers: Readers, events: Index, exchanges: Index) -> None:
        super().__init__(lambda: readers.connection)
        self._readers = readers
        self._events = events
        self._exchanges = exchanges
        self._vocabulary: Vocabulary | None = None

    def search(self, request: SearchRequest) -> Found:
        query = parse_query(request.query, self._events.analyzer.analyze)
        snapshot = self._events.searcher()
        with self._until(request.deadline) as db, explained():
            names = self._readers.read(_read_names)
            filters, known = self._filters(db, request, names)
            if snapshot is None:
                return Found(query=query, hits=[], more=False, documents=0, known=known)
            now = datetime.now().astimezone()
            hints = read_hints(request.query, now)
            question = Question(
                self._events.schema,
                self._words_of(snapshot),
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
            titles = {} if request.session is not None or query.is_quoted else self._titles(db, question)
            context = Context(
                now=int(now.timestamp() * 1000),
                is_error=hints.is_error,
                period=hints.period,
                projects=named_projects(names.projects, query),
                here=project_around(names.projects, request.here),
            )
            bound = ranking.bound(question.bound, max(titles.values(), default=0.0), context)
            hits, more = self._page(db, request, filters, candidates, titles, context, bound)
            if request.explain:
                for hit in hits:
                    hit.matched = question.matched(hit.event.text, hit.session.title)
            totals = None if request.totals is None else self._totals(db, request, question, names, hits)
        return Found(
            query=query, hits=hits, more=more or is_cut, documents=documents, terms=question.terms, totals=totals
        )

    def _words_of(self, snapshot: tantivy.Searcher) -> Vocabulary:
        vocabulary = self._vocabulary
        if vocabulary is None or vocabulary.snapshot is not snapshot:
            has_stems = self._events.version >= ONE_FIELD_SINCE
            vocabulary = self._vocabulary = Vocabulary(self._events.schema, snapshot, has_stems=has_stems)
        return vocabulary

    def _totals(
        self, db: sqlite3.Connection, request: SearchRequest, question: Question, names: _Names, hits: Sequence[Hit]
    ) -> Totals | None:
        keys = {hit.session.key for hit in hits}
        numbered = Numbered(
            sources=names.sources,
            projects={project.id: project.path for project in names.projects},
            sessions=dict(select_in(db, "SELECT id, key FROM session WHERE key IN ({})", list(keys))),
            highest_session=db.execute("SELECT max(id) FROM session").fetchone()[0] or 0,
        )

        def branches_of(counts: Mapping[int, int]) -> dict[str, int]:
            return dict(db.execute(_BRANCHES, (msgspec.json.encode(counts).decode(),)).fetchall())

        return count_matches(question, request.types, request.totals or (), numbered, branches_of)

    def _filters(self, db: sqlite3.Connection, request: SearchRequest, names: _Names) -> tuple[Filters | None, bool]:
        """The request in the numbers of the index, None when nothing can match; and whether its place is known."""
        session = turn = None
        if request.session is not None:
            row = db.execute(_SCOPE, {"session": request.session, "turn": request.turn}).fetchone()
            if row is None or (request.turn is not None and not row[1]):
                return None, False
            if request.turn is None:
                (session, _) = row
            else:
                turn = turn_number(row[0], request.turn)
        projects = source = None
        if request.project is not None:
            projects = tuple(projects_with(names.projects, request.project))
        if request.source is not None:
            source = next((id for id, name in names.sources.items() if name == request.source), None)
        if projects == () or (request.source is not None and source is None):
            return None, True
        return Filters(
            types=tuple(kind.code for kind in request.types),
            session=session,
            turn=turn,
            projects=projects,
            source=source,
            since=request.since,
            until=request.until,
        ), True

    def _titles(self, db: sqlite3.Connection, question: Question) -> dict[int, float]:
        """The scores of the titles that match best, by session."""
        phrases = [f'"{" ".join(phrase)}"' for phrase in question.title_phrases]
        selected = ", ".join(["(SELECT max(id) FROM session)", *[_TITLED] * len(phrases)])
        sessions, *titled = db.execute(f"SELECT {selected}", phrases).fetchone()
        return ranking.score_titles(sessions or 0, map(_decode_ids, titled))

    # Candidates

    def _candidates(
        self, db: sqlite3.Connection, question: Question, request: SearchRequest
    ) -> tuple[list[Candidate], bool]:
        """Events of all types, which are evidence, and enough of the types that are returned; and whether there are
        more of those. Equals of a session are in the order of the contract."""
        returned, enough = frozenset(request.types), max(request.limit, ranking.RETURNED)
        candidates, is_cut = self._matching(db, question, returned, enough)
        if not _has_more(candidates, returned, enough) and question.widen():
            candidates, is_cut = self._matching(db, question, returned, enough)
        candidates = question.weigh_closely(candidates)
        if len({one.score for one in candidates}) < len(candidates):  # else there are no equals
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

    def _page(
        self,
        db: sqlite3.Connection,
        request: SearchRequest,
        filters: Filters,
        candidates: Sequence[Candidate],
        titles: Mapping[int, float],
        context: Context,
        bound: float,
    ) -> tuple[list[Hit], bool]:
        """The first hits, and whether there is another one. Of sessions that match by their titles alone the first
        prompts are hits, too; mostly so much is ahead of them that they are not read."""
        spread, returned = request.session is None, frozenset(request.types)
        fill = partial(
            fill_page,
            limit=request.limit,
            cut=partial(self._cut, db),
            load=partial(self._hits, db, bound=bound),
            fold=spread,
        )
        shown = {one.session for one in candidates if one.type in returned}
        unshown = [session for session in titles if session not in shown] if _PROMPT in returned else []
        if not unshown:
            return fill(ranking.rank(candidates, titles, returned, context, spread=spread))
        evident = {one.session for one in candidates}
        evident.intersection_update(unshown)
        candidates = [*candidates, *self._first_prompts(db, list(evident), request, filters)]
        ranked = ranking.rank(candidates, titles, returned, context, spread=spread)
        named = {session: titles[session] for session in unshown if session not in evident}
        reach = ranking.reach_of_title(max(named.values(), default=0.0), context)
        ahead = [hit for hit in ranked if hit.score > reach]
        if len(ahead) > request.limit:
            hits, more = fill(ahead)
            if more:
                return hits, more
        prompts = self._first_prompts(db, list(named), request, filters)
        return fill(ranking.merge(ranked, ranking.rank(prompts, named, returned, context, spread=spread)))

    def _first_prompts(
        self, db: sqlite3.Connection, sessions: Sequence[int], request: SearchRequest, filters: Filters
    ) -> list[Candidate]:
        """The first prompts of sessions, which stand for their titles, as far as they pass the filters."""
        return [
            Candidate(event, 0.0, _PROMPT, session, turn_number(session, turn), project or 0, ts)
            for session, event, turn, project, ts, source in select_in(db, _FIRST_PROMPTS, sessions)
            if (request.since is None or ts >= request.since)
            and (request.until is None or ts < request.until)
            and (filters.projects is None or project in filters.projects)
            and request.source in (None, source)
        ]

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
        if any(one.score == next.score for one, next in pairwise(hits)):
            hits.sort(key=lambda hit: (-hit.score, -hit.event.ts, event_id(hit.event.uid)))
        return hits

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


def _has_more(candidates: Iterable[Candidate], types: frozenset[EventType], limit: int) -> bool:
    """True if more than so many candidates are of these types."""
    return next(islice((one for one in candidates if one.type in types), limit, None), None) is not None


_place = attrgetter("session", "score", "ts")
_decode_ids = msgspec.json.Decoder(list[int]).decode
