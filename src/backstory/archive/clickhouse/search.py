"""Searching: the server gives candidates with their BM25 scores, ranking their order, the tables the rows."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any

from ...model import EVENT_TYPES, EventType
from ..base import Exchange, ExchangesRequest, Found, Hit, SearchRequest, any_folder
from ..hits import Project, fill_page, named_projects, project_around, projects_with
from ..query import parse_query
from ..question import read_hints
from ..ranking import COMMON_TITLES, RETURNED, Candidate, Context, Ranked, rank, score_titles
from ..ranking import bound as bound_of
from .beginning import Beginning, Known, begin, known_tokens
from .documents import splitter
from .question import Question, Statistics, Words
from .reading import CURRENT_EXCHANGE, EXCHANGES_AT_ONCE, SESSION, Reading, row_limit
from .retrieval import Match, Matches, Place, Retrieval, read_place, weigh
from .rows import EXCHANGE_COLUMNS, columns, decode_row
from .server import Server, array
from .together import read_together

# Statistics are read anew when the number of events has changed by this part.
_CHANGED = 0.02
# Rows that come while others are merged into one may leave their number as it was.
_PROJECT_SECONDS = 60.0
_EXCHANGE_SCORES = (
    "WITH (SELECT tuple(count(), avg(length(tokens))) FROM exchange) AS known, "
    "assumeNotNull(known.1) AS total, assumeNotNull(known.2) AS average "
    # Rows that are deleted or replaced count among those with a word until parts are merged.
    "SELECT session, number, arraySum((w, n) -> log1p((greatest(total - toInt64(n), 0) + 0.5) / (n + 0.5)) "
    "* countEqual(tokens, w) * 2.2 / (countEqual(tokens, w) + 1.2 * (0.25 + 0.75 * length(tokens) / average)), "
    "%(words)s, %(counts)s) AS score FROM exchange FINAL WHERE "
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
        self._statistics = Statistics()
        self._projects: list[Project] = []
        self._known_projects: tuple[int, int] | None = None
        self._projects_until = 0.0

    def search(self, request: SearchRequest) -> Found:
        query = parse_query(request.query, splitter().analyze)
        words = Words(query, request.query)
        state = begin(self._server, request, words.tokens)
        projects, statistics = self._read_projects(state, request), self._read_statistics(state, request)
        conditions, parameters = _filters(request, projects)
        if not state.known or conditions is None:
            return Found(query=query, hits=[], more=False, documents=state.documents, known=state.known)
        now = datetime.now().astimezone()
        hints = read_hints(request.query, now)
        tokens = state.tokens | self._corrections(words, state, request)
        counts = {token: known.documents for token, known in tokens.items()}
        terms = {token: known.term for token, known in tokens.items()}
        question = Question(query, hints, words, counts, statistics)
        retrieval = Retrieval(
            self._server, question, statistics, request, conditions, parameters, terms, has_replaced=state.has_replaced
        )
        titled = self._server.beside(partial(self._title_scores, question.title_words, state, request))
        places, is_cut = _find(retrieval, question, request)
        titles = titled()
        numbers = _Numbers()
        context = Context(
            now=int(now.timestamp() * 1000),
            is_error=hints.is_error,
            period=hints.period,
            projects={numbers[projects[at].path] for at in named_projects(projects, query)},
            here={numbers[projects[at].path] for at in project_around(projects, request.here)},
        )
        ranking = _Ranking(request, context, numbers, titles)
        ranked = ranking.rank(places)
        if missing := ranking.missing(ranked):
            prompts = self._first_prompts(missing, request)
            ranked = ranking.rank([*places, *(each for each in prompts if _passes(each, request, parameters))])
        bound = bound_of(question.bound, max(titles.values(), default=0.0), context)
        load = partial(self._hits, places=ranking.places, bound=bound)
        hits, more = fill_page(ranked, request.limit, _cut, load, fold=request.session is None)
        if request.explain:
            for hit in hits:
                hit.matched = question.matched(hit.event.text, hit.session.title)
        totals = None if request.totals is None else retrieval.totals({hit.session.key for hit in hits})
        return Found(
            query=query,
            hits=hits,
            more=more or is_cut,
            documents=state.documents,
            terms=question.terms,
            totals=totals,
        )

    def _corrections(self, words: Words, state: Beginning, request: SearchRequest) -> dict[str, Known]:
        """Known words near those that no event has, and the stems of the words that these are read as."""
        near = words.near(state.tokens)
        tokens = known_tokens(self._server, list({*chain(*near.values())}), request.deadline)
        stems = words.correct(near, {token: known.documents for token, known in tokens.items()})
        return tokens | known_tokens(self._server, stems, request.deadline)

    def _read_statistics(self, state: Beginning, request: SearchRequest) -> Statistics:
        """The averages are kept while the number of events is about the same."""
        known = self._statistics.documents
        if abs(state.documents - known) > _CHANGED * known:
            averages = self._server.row("SELECT avg(words), avg(stems) FROM document", deadline=request.deadline)
            self._statistics = Statistics(state.documents, *averages) if state.documents else Statistics()
        return self._statistics._replace(documents=state.documents)

    def _title_scores(self, words: Sequence[str], state: Beginning, request: SearchRequest) -> dict[str, float]:
        """A session has one title: within it there is nothing to choose."""
        if request.session is not None or not words:
            return {}
        titled = self._server.rows(
            f"SELECT groupArray({COMMON_TITLES + 1})(key) FROM session FINAL "
            f"ARRAY JOIN arrayIntersect(title_stems, {array(words, 'String')}) AS stem GROUP BY stem",
            deadline=request.deadline,
        )
        return score_titles(state.titles, (sessions for (sessions,) in titled))

    def _read_projects(self, state: Beginning, request: SearchRequest) -> list[Project]:
        """They are kept for a while, as long as their tables have the same number of rows."""
        if state.projects != self._known_projects or time.monotonic() > self._projects_until:
            paths = self._server.rows("SELECT DISTINCT path FROM project", deadline=request.deadline)
            repositories = self._server.rows("SELECT path, identity FROM repository FINAL", deadline=request.deadline)
            identities: dict[str, str] = dict(repositories)
            named = enumerate(sorted({*(path for (path,) in paths), *identities}))
            self._projects = [Project(number, path, identities.get(path)) for number, path in named]
            self._known_projects = state.projects
            self._projects_until = time.monotonic() + _PROJECT_SECONDS
        return self._projects

    def _first_prompts(self, keys: Collection[str], request: SearchRequest) -> list[Place]:
        """The first prompts of sessions: shown if nothing else of them is found."""
        rows = self._server.rows(
            f"SELECT version, project, row FROM event FINAL WHERE session IN {array(keys, 'String')} "
            f"AND type = {EventType.USER_INPUT.code} ORDER BY session, turn, ordinal LIMIT 1 BY session",
            deadline=request.deadline,
        )
        return [read_place({**decode_row(row), "project": project}, version) for version, project, row in rows]

    # The page

    def _hits(self, ranked: Sequence[Ranked], *, places: Mapping[int, Place], bound: float) -> list[Hit]:
        """An event that was replaced since has another version."""
        chosen = [places[hit.candidate.id] for hit in ranked]
        events, turns, sessions = read_together(
            self._server,
            {(place.session, place.turn) for place in chosen},
            {(place.session, place.turn, place.ordinal) for place in chosen},
        )
        return [
            Hit(
                score=min(hit.score / bound, 1.0),
                event=events[place.uid, place.version],
                turn=turns[place.session, place.turn],
                session=sessions[place.session],
                evidence=hit.evidence,
            )
            for hit, place in zip(ranked, chosen, strict=True)
            if (place.uid, place.version) in events
            and (place.session, place.turn) in turns
            and place.session in sessions
        ]

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


def _find(retrieval: Retrieval, question: Question, request: SearchRequest) -> tuple[list[Place], bool]:
    """Events of all types, which are evidence, and enough of the types that are returned, in no order."""
    enough = max(request.limit, RETURNED)
    matches, is_cut = _find_typed(retrieval, request, enough)
    if _count(matches, request.types) <= enough and question.widen():
        matches, is_cut = _find_typed(retrieval, request, enough)
    return weigh(matches), is_cut and _count(matches, request.types) > request.limit


def _find_typed(retrieval: Retrieval, request: SearchRequest, enough: int) -> Matches:
    matches, is_cut = retrieval.matches()
    if is_cut and len(request.types) < len(EVENT_TYPES) and _count(matches, request.types) <= enough:
        typed, is_cut = retrieval.matches(request.types)
        matches = [*matches, *typed]
    # An event that two machines have written has postings of both.
    newest: dict[bytes, Match] = {}
    for match in matches:
        known = newest.get(match.place.uid)
        if known is None or known.place.version < match.place.version:
            newest[match.place.uid] = match
    return Matches(list(newest.values()), is_cut)


class _Ranking:
    """Puts places in order. Ranking compares numbers, which are given to the names of an answer."""

    def __init__(
        self, request: SearchRequest, context: Context, numbers: _Numbers, titles: Mapping[str, float]
    ) -> None:
        self._request = request
        self._context = context
        self._numbers = numbers
        self._titles = titles
        self.places: dict[int, Place] = {}
        self._found: set[str] = set()

    def rank(self, places: Iterable[Place]) -> list[Ranked]:
        numbers = self._numbers
        ordered = sorted(places, key=lambda place: place.order)
        self.places = {numbers[place.uid]: place for place in ordered}
        self._found = {place.session for place in ordered if EVENT_TYPES[place.type] in self._request.types}
        ranked = rank(
            [_candidate(number, place, numbers) for number, place in self.places.items()],
            {numbers[key]: score for key, score in self._titles.items()},
            frozenset(self._request.types),
            self._context,
            spread=self._request.session is None,
        )
        ranked.sort(key=lambda hit: (-hit.score, -hit.candidate.ts, self.places[hit.candidate.id].id))
        return ranked

    def missing(self, ranked: Sequence[Ranked]) -> set[str]:
        """The sessions of which only the titles match, and well enough for the page."""
        if EventType.USER_INPUT not in self._request.types:
            return set()
        # Repetitions leave the page, so that more than its length is looked at.
        enough = 2 * self._request.limit
        least = ranked[enough].score if len(ranked) > enough else 0.0
        return {
            key
            for key, score in self._titles.items()
            if key not in self._found and bound_of(0.0, score, self._context) >= least
        }


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
        "source": "startsWith(session, concat(%(source)s, '/'))",
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


def _count(matches: Iterable[Match], types: Collection[EventType]) -> int:
    return sum(EVENT_TYPES[match.place.type] in types for match in matches)
