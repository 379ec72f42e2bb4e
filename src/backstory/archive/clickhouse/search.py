"""Searching: the server gives candidates with their BM25 scores, ranking their order, the tables the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from ...model import EVENT_TYPES, EventType, event_id
from .. import ranking
from ..base import Exchange, ExchangesRequest, Found, Hit, SearchRequest, any_folder
from ..hits import Project, fill_page, named_projects, project_around, projects_with
from ..query import Query, parse_query
from ..question import read_hints
from ..ranking import Candidate, Context, Ranked
from .documents import splitter, title_terms
from .question import PLACE_COLUMNS, Place, Question, Statistics
from .reading import CURRENT_EXCHANGE, EVENT, EXCHANGES_AT_ONCE, SESSION, Reading, row_limit
from .rows import EXCHANGE_COLUMNS, columns, read_event
from .server import Server, quoted

# The sessions whose titles match best.
_TITLES = 50
_UNKNOWN = EventType.UNKNOWN.code
# For each word: how rare it is, and how often a document has it, which is of the average length or longer.
_BM25 = (
    "arraySum((w, n) -> {1} * countEqual({0}, w) * 2.2 "
    "/ (countEqual({0}, w) + 1.2 * (0.25 + 0.75 * length({0}) / average)), %(words)s, {2}) AS score"
)
_OF_ALL = "assumeNotNull(known.1) AS total, assumeNotNull(known.2) AS average"
# Rows that are deleted or replaced count among those with a word until parts are merged.
_RARITY = "log1p((greatest(total - toInt64(n), 0) + 0.5) / (n + 0.5))"
# SQLite's rarity of a word in titles, so that they weigh the same as in the local engine.
_TITLE_SCORES = (
    "WITH (SELECT tuple(count(), avg(length(title_stems)), "
    "sumForEach(arrayMap(w -> toUInt64(has(title_stems, w)), %(words)s))) FROM session FINAL) AS known, "
    f"{_OF_ALL} "
    f"SELECT key, {_BM25.format('title_stems', 'greatest(log((total - n + 0.5) / (n + 0.5)), 1e-6)', 'known.3')} "
    f"FROM session FINAL WHERE hasAny(title_stems, %(words)s) ORDER BY score DESC, key LIMIT {_TITLES}"
)
_EXCHANGE_SCORES = (
    f"WITH (SELECT tuple(count(), avg(length(tokens))) FROM exchange) AS known, {_OF_ALL} "
    f"SELECT session, number, {_BM25.format('tokens', _RARITY, '%(counts)s')} "
    "FROM exchange FINAL WHERE "
)


class _Numbers:
    """Numbers for the names in one answer; ranking compares numbers."""

    def __init__(self) -> None:
        self._given: dict[Any, int] = {}

    def __getitem__(self, name: Any) -> int:
        return self._given.setdefault(name, len(self._given) + 1)


class Searching(Reading):
    def __init__(self, server: Server, machine: str) -> None:
        super().__init__(server, machine)
        # The parts of the tables that these were read from.
        self._known_events: int | None = None
        self._known_projects: int | None = None
        self._statistics = Statistics(0, 0, 0.0, 0.0)
        self._projects: list[Project] = []

    def search(self, request: SearchRequest) -> Found:
        query = parse_query(request.query, splitter().analyze)
        known = self._read_state(request)
        statistics, projects = self._statistics, self._projects
        conditions, parameters = _filters(request, projects)
        if not known or conditions is None:
            return Found(query=query, hits=[], more=False, documents=statistics.documents, known=known)
        now = datetime.now().astimezone()
        hints = read_hints(request.query, now)
        question = Question(self._server, query, hints, request, statistics)
        places, is_cut = self._places(question, request, conditions, parameters)
        titles = self._titles(request, query)
        found = {place.session for place in places if EVENT_TYPES[place.type] in request.types}
        prompts = self._first_prompts(titles.keys() - found, request)
        titles = {key: score for key, score in titles.items() if key in found or key in prompts}
        if EventType.USER_INPUT in request.types:
            places += [place for place in prompts.values() if _passes(place, request, parameters)]
        numbers = _Numbers()
        by_number = {numbers[place.uid]: place for place in places}
        context = Context(
            now=int(now.timestamp() * 1000),
            is_error=hints.is_error,
            period=hints.period,
            projects={numbers[projects[at].path] for at in named_projects(projects, query)},
            here={numbers[projects[at].path] for at in project_around(projects, request.here)},
        )
        spread = request.session is None
        ranked = ranking.rank(
            [_candidate(number, place, numbers) for number, place in by_number.items()],
            {numbers[key]: score for key, score in titles.items()},
            frozenset(request.types),
            context,
            spread=spread,
        )
        bound = ranking.bound(question.bound, max(titles.values(), default=0.0), context)
        ranked.sort(key=lambda hit: (-hit.score, -hit.candidate.ts, event_id(by_number[hit.candidate.id].uid)))
        load = partial(self._hits, places=by_number, bound=bound)
        hits, more = fill_page(ranked, request.limit, _cut, load, fold=spread)
        if request.explain:
            for hit in hits:
                hit.matched = question.matched(hit.event.text, hit.session.title)
        totals = None
        if request.totals is not None:
            totals = question.totals(conditions, parameters, {hit.session.key for hit in hits})
        return Found(
            query=query,
            hits=hits,
            more=more or is_cut,
            documents=statistics.documents,
            terms=question.terms,
            totals=totals,
        )

    def _read_state(self, request: SearchRequest | None = None) -> bool:
        """Read the statistics and the projects again if the parts of their tables are others than before. Returns
        whether the session or turn of the request exists."""
        deadline = request.deadline if request else None
        given = {"database": self._server.database, "session": "", "turn": 0}
        exists = "1"
        if request is not None and request.session is not None:
            given |= {"session": request.session, "turn": request.turn or 0}
            exists = "(SELECT count() FROM session WHERE key = %(session)s)"
            if request.turn is not None:
                exists = "(SELECT count() FROM turn WHERE session = %(session)s AND ordinal = %(turn)s)"
        parts = "system.parts"
        if self._server.cluster is not None:
            parts = f"clusterAllReplicas({quoted(self._server.cluster)}, system.parts)"
        events, projects, known = self._server.row(
            "SELECT sumIf(cityHash64(name), startsWith(table, 'event')), "
            f"sumIf(cityHash64(table, name), NOT startsWith(table, 'event')), {exists} FROM {parts} "
            "WHERE active AND database = %(database)s AND match(table, '^(event|project|repository)(_local)?$')",
            given,
            deadline,
        )
        if projects != self._known_projects:
            self._projects = self._read_projects(deadline)
            self._known_projects = projects
        if events != self._known_events:
            self._statistics = self._read_statistics(deadline)
            self._known_events = events
        return bool(known)

    def _read_statistics(self, deadline: float | None) -> Statistics:
        documents, rows, words, stems = self._server.row(
            f"SELECT count(), (SELECT count() FROM document WHERE type <> {_UNKNOWN}), avg(words), avg(stems) "
            f"FROM event FINAL WHERE type <> {_UNKNOWN}",
            deadline=deadline,
        )
        return Statistics(documents, rows, words if documents else 0, stems if documents else 0)

    def _read_projects(self, deadline: float | None) -> list[Project]:
        paths, repositories = self._server.row(
            "SELECT (SELECT groupUniqArray(path) FROM project), "
            "(SELECT groupArray((path, identity)) FROM repository FINAL)",
            deadline=deadline,
        )
        identities: dict[str, str] = dict(repositories)
        projects = enumerate(sorted({*paths, *identities}))
        return [Project(number, path, identities.get(path)) for number, path in projects]

    def _places(
        self, question: Question, request: SearchRequest, conditions: Sequence[str], parameters: dict[str, Any]
    ) -> tuple[list[Place], bool]:
        """Events of all types, which are evidence, and enough of the types that are returned; and whether there are
        more of those."""
        places, is_cut = question.matches(request.limit, conditions, parameters)
        returned = {kind.code for kind in request.types}
        if is_cut and len(returned) < len(EVENT_TYPES) and _count(places, returned) <= request.limit:
            only = f"type IN ({', '.join(map(str, sorted(returned)))})"
            typed, is_cut = question.matches(request.limit, [*conditions, only], parameters)
            known = {(place.uid, place.version) for place in places}
            places += [place for place in typed if (place.uid, place.version) not in known]
        places = question.weigh_closely(self._current(places))
        places.sort(key=lambda place: (-place.score, -place.ts, event_id(place.uid)))
        return places, is_cut and _count(places, returned) > request.limit

    def _current(self, places: list[Place]) -> list[Place]:
        """Without events as they were before they were replaced, which stay in the table until parts are merged."""
        if self._statistics.rows == self._statistics.documents:
            return places
        rows = self._server.rows_in(
            "SELECT uid, max(version) FROM place WHERE uid IN ({0}) GROUP BY uid", [p.uid for p in places]
        )
        latest = dict(rows)
        once = {place.uid: place for place in places if place.version == latest.get(place.uid)}
        return list(once.values())

    def _titles(self, request: SearchRequest, query: Query) -> dict[str, float]:
        """The scores of the sessions whose titles match."""
        # A quoted phrase is required, and a title does not have it in the right place; within a session there is one.
        stems = title_terms(query)
        if request.session is not None or query.is_quoted or not stems:
            return {}
        return dict(self._server.rows(_TITLE_SCORES, {"words": stems}, request.deadline))

    def _first_prompts(self, keys: Collection[str], request: SearchRequest) -> dict[str, Place]:
        """The first prompts of sessions: shown if nothing else of them is found."""
        if not keys:
            return {}
        rows = self._server.rows(
            f"SELECT {', '.join(PLACE_COLUMNS)}, 0 FROM event FINAL WHERE session IN %(keys)s "
            f"AND type = {EventType.USER_INPUT.code} ORDER BY session, turn, ordinal LIMIT 1 BY session",
            {"keys": tuple(keys)},
            request.deadline,
        )
        return {place.session: place for place in (Place(*row) for row in rows)}

    # The page

    def _hits(self, ranked: Sequence[Ranked], *, places: dict[int, Place], bound: float) -> list[Hit]:
        chosen = [places[hit.candidate.id] for hit in ranked]
        # One statement over the three tables would take longer than these two.
        rows = self._server.rows(
            f"SELECT {EVENT} FROM event e FINAL WHERE (e.session, e.turn, e.ordinal) IN %(events)s",
            {"events": tuple((place.session, place.turn, place.ordinal) for place in chosen)},
        )
        events = {event.uid: event for event in map(read_event, rows)}
        turns = self._turns_at({(place.session, place.turn) for place in chosen})
        hits = []
        for hit, place in zip(ranked, chosen, strict=True):
            if (event := events.get(place.uid)) is not None and (place.session, place.turn) in turns:
                turn, session = turns[place.session, place.turn]
                score = min(hit.score / bound, 1.0)
                hits.append(Hit(score=score, event=event, turn=turn, session=session, evidence=hit.evidence))
        return hits

    # Exchanges

    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        if request.query is None:
            yield from super().exchanges(request)
            return
        ranked = self._rank_exchanges(request, request.query)
        for start in range(0, len(ranked), EXCHANGES_AT_ONCE):
            yield from self._exchanges_at(ranked[start : start + EXCHANGES_AT_ONCE], request)

    def _rank_exchanges(self, request: ExchangesRequest, text: str) -> Sequence[Sequence[Any]]:
        query = parse_query(text, splitter().analyze)
        words = sorted({token for clause in query.clauses for token in clause.alternatives[0]})
        if not words:
            return []
        counts = dict(
            self._server.rows(
                f"SELECT token, sum(cardinality) FROM {self._server.index('exchange', 'token_index')} "
                "WHERE token IN %(words)s GROUP BY token",
                {"words": tuple(words)},
            )
        )
        words = [word for word in words if word in counts]
        if not words:
            return []
        parameters: dict[str, Any] = {"words": words, "counts": [counts[word] for word in words]}
        tests = ["hasAnyTokens(tokens, %(words)s)"]
        phrases = [clause.alternatives[0] for clause in query.clauses if clause.quoted]
        for number, phrase in enumerate(phrase for phrase in phrases if len(phrase) > 1):
            parameters[f"quoted{number}"] = list(phrase)
            tests.append(f"hasSubstr(tokens, %(quoted{number})s)")
        if request.session is not None:
            parameters["session"] = request.session
            tests.append("session = %(session)s")
        if request.folders is not None and request.folders is not any_folder:
            names = self._server.rows("SELECT DISTINCT folder FROM session FINAL WHERE folder IS NOT NULL")
            parameters["folders"] = tuple(name for (name,) in names if request.folders(name))
            if not parameters["folders"]:
                return []
            tests.append("session IN (SELECT key FROM session FINAL WHERE folder IN %(folders)s)")
        order = f" ORDER BY score DESC, ts DESC, session, number LIMIT {row_limit(request.limit)}"
        return self._server.rows(_EXCHANGE_SCORES + " AND ".join(tests) + order, parameters)

    def _exchanges_at(self, ranked: Sequence[Sequence[Any]], request: ExchangesRequest) -> Iterator[Exchange]:
        rows = self._server.rows(
            f"SELECT {columns('x', EXCHANGE_COLUMNS)}, {SESSION} FROM exchange x FINAL "
            "JOIN session s FINAL ON s.key = x.session "
            f"WHERE (x.session, x.number) IN %(places)s AND s.key IN %(keys)s AND {CURRENT_EXCHANGE}",
            {
                "places": tuple((session, number) for session, number, _ in ranked),
                "keys": tuple({session for session, *_ in ranked}),
            },
        )
        found = {(each.session.key, each.row.number): each for each in self._read_exchanges(rows, request)}
        for session, number, score in ranked:
            if (exchange := found.get((session, number))) is not None:
                exchange.score = score
                yield exchange


def _filters(request: SearchRequest, projects: Sequence[Project]) -> tuple[list[str] | None, dict[str, Any]]:
    """The request as conditions on events, None when nothing can match."""
    given: dict[str, Any] = {
        "session": request.session,
        "turn": request.turn if request.session is not None else None,
        "source": request.source,
        "since": request.since,
        "until": request.until,
    }
    if request.project is not None:
        given["projects"] = tuple(projects[at].path for at in projects_with(projects, request.project))
        if not given["projects"]:
            return None, {}
    tests = {
        "session": "session = %(session)s",
        "turn": "turn = %(turn)s",
        "source": "source = %(source)s",
        "since": "ts >= %(since)s",
        "until": "ts < %(until)s",
        "projects": "project IN %(projects)s",
    }
    parameters: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    return [tests[name] for name in parameters], parameters


def _passes(place: Place, request: SearchRequest, parameters: dict[str, Any]) -> bool:
    """True if a prompt that stands for the title of its session is within the filters."""
    return (
        (request.since is None or place.ts >= request.since)
        and (request.until is None or place.ts < request.until)
        and (request.project is None or place.project in parameters["projects"])
        and request.source in (None, place.session.partition("/")[0])
    )


def _candidate(number: int, place: Place, numbers: _Numbers) -> Candidate:
    return Candidate(
        id=number,
        score=place.score,
        type=EVENT_TYPES[place.type],
        session=numbers[place.session],
        turn=numbers[place.session, place.turn],
        project=numbers[place.project],
        ts=place.ts,
    )


def _cut(ranked: list[Ranked], count: int) -> tuple[list[Ranked], list[Ranked]]:
    return ranked[:count], ranked[count:]


def _count(places: Iterable[Place], types: set[int]) -> int:
    return sum(place.type in types for place in places)
