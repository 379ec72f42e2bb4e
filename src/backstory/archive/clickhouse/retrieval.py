"""The statements of a search: the numbers of events per word, the best events, and totals. Each does as much as it can,
because a statement costs milliseconds before it reads anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model import EVENT_TYPES, EventType, event_id
from ..base import SearchRequest, Totals
from .postings import COUNTS, DOCUMENTS_WITH, HASHES, phrase_scores, phrase_test, posting_terms, scored_documents
from .question import CANDIDATES, Question, Statistics
from .server import Server, quoted

# Neighbouring words are looked for in so many of the best events, as in the local engine.
_WEIGHED_CLOSELY = 60
# What is quoted is looked for in this many times the events that are weighed, before it is in all.
_WITH_QUOTED = 3
# So many of the best may be gone before the search begins anew without them.
_SPARE = 60
# Of more events with the same score, the newest have to be chosen on the server.
_MOST_TIES = 2_000
_TOKENS_AT_ONCE = 2_000
# The sessions whose titles match best.
_TITLES = 50
# BM25 with SQLite's rarity of a word, so that titles weigh the same as in the local engine, in one pass.
_TITLE_SCORES = f"""
SELECT arraySlice(arraySort(each -> (-each.2, each.1), arrayMap(title -> (title.1, arraySum((times, having) ->
    greatest(log((total - having + 0.5) / (having + 0.5)), 1e-6) * times * 2.2
    / (times + 1.2 * (0.25 + 0.75 * title.2 / average)), title.3, everywhere)), matching)), 1, {_TITLES})
FROM (
    SELECT toInt64(count()) AS total, avg(length(title_stems)) AS average,
        sumForEach(arrayMap(word -> toInt64(has(title_stems, word)), %(titles)s)) AS everywhere,
        groupArrayIf((key, length(title_stems), arrayMap(word -> countEqual(title_stems, word), %(titles)s)),
            hasAny(title_stems, %(titles)s)) AS matching
    FROM session FINAL
)
"""
_KEYS = "(SELECT each.1, each.2 FROM (SELECT arrayJoin({}) AS each))"
_NAME = "(version, number)"
_FAILED = (
    f"countIf(type = {EventType.TOOL_RESPONSE.code} "
    "AND (JSONExtractBool(facts, 'failed') OR JSONExtractInt(facts, 'exit') <> 0))"
)


class Place(NamedTuple):
    """An event that matches."""

    session: str
    turn: int
    ordinal: int
    uid: bytes
    version: int
    type: int
    project: str
    ts: int
    score: float

    @property
    def order(self) -> tuple[float, int, str]:
        """That of the contract."""
        return -self.score, -self.ts, event_id(self.uid)


PLACE_COLUMNS = ("session", "turn", "ordinal", "uid", "version", "type", "project", "ts")


class Beginning(NamedTuple):
    """The state of the archive, and the numbers of events by token."""

    documents: int
    projects: int
    """A hash of the parts of the tables of projects."""
    known: bool
    """The session or turn of the request exists."""
    counts: dict[str, int]


class Matches(NamedTuple):
    places: list[Place]
    """The best events in the order of the contract."""
    is_cut: bool
    titles: dict[str, float]
    """The scores of the sessions whose titles match."""


def begin(server: Server, request: SearchRequest, tokens: Sequence[str]) -> Beginning:
    values: dict[str, Any] = {"database": server.database, "tokens": list(tokens)}
    exists = "1"
    if request.session is not None:
        values["session"] = request.session
        exists = "(SELECT count() FROM session WHERE key = %(session)s)"
    if request.session is not None and request.turn is not None:
        exists = f"(SELECT count() FROM turn WHERE session = %(session)s AND ordinal = {request.turn:d})"
    parts = "system.parts"
    if server.cluster is not None:
        parts = f"clusterAllReplicas({quoted(server.cluster)}, system.parts)"
    documents, projects, known, counts = server.row(
        f"WITH {HASHES} SELECT (SELECT count() FROM document), "
        f"(SELECT sum(cityHash64(table, name)) FROM {parts} WHERE active AND database = %(database)s "
        "AND table IN ('project', 'project_local', 'repository', 'repository_local')), "
        f"{exists}, ({COUNTS})",
        values,
        request.deadline,
    )
    return Beginning(documents, projects, bool(known), {tokens[place - 1]: count for place, count in counts})


def count_events(server: Server, tokens: Sequence[str], deadline: float | None) -> dict[str, int]:
    """The numbers of events by token, those of none left out. The postings have them: no event is read. Events that
    were deleted or replaced count, too."""
    counts: dict[str, int] = {}
    for start in range(0, len(tokens), _TOKENS_AT_ONCE):
        some = tokens[start : start + _TOKENS_AT_ONCE]
        (found,) = server.row(f"WITH {HASHES} SELECT ({COUNTS})", {"tokens": some}, deadline)
        counts |= {some[place - 1]: count for place, count in found}
    return counts


class Retrieval:
    """A question put to the server. `conditions` are those of the request on events."""

    def __init__(
        self,
        server: Server,
        question: Question,
        statistics: Statistics,
        request: SearchRequest,
        conditions: Sequence[str],
        parameters: Mapping[str, Any],
    ) -> None:
        self._server = server
        self._question = question
        self._statistics = statistics
        self._request = request
        self._conditions = conditions
        self._parameters = parameters

    def matches(self, types: Collection[EventType] = ()) -> Matches:
        """More events than the request asks for, if there are so many; with `types`, of these alone."""
        enough = max(CANDIDATES, self._request.limit + 1)
        if not self._question.can_match:
            values: dict[str, Any] = {}
            (named,) = self._server.row(f"SELECT ({self._titles(values)})", values, self._request.deadline)
            return Matches([], is_cut=False, titles=dict(named))
        count = enough * (_WITH_QUOTED if self._question.quoted else 1) + _SPARE
        conditions = list(self._conditions)
        if types:
            conditions.append(_of(types))
        if not conditions and not self._question.demanded:
            values = {}
            found = self._select(self._best(count, values), values)
            if found.chosen < count or (found.chosen < _MOST_TIES and len(found.places) >= enough):
                return Matches(found.places[:enough], len(found.places) >= enough, found.titles)
        values = dict(self._parameters)
        found = self._select(self._best_within(count, conditions, values), values)
        return Matches(found.places[:enough], len(found.places) >= enough, found.titles)

    def _best(self, count: int, values: dict[str, Any]) -> str:
        """The best events by their postings alone. Some may be gone, or have the words of a quoted phrase in another
        order."""
        documents = scored_documents(self._question.choosing, self._question.required, values)
        return (
            f"SELECT groupArray({_MOST_TIES})((version, number, score)) FROM (SELECT version, number, score "
            f"FROM ({documents}) ORDER BY expected DESC LIMIT {count} WITH TIES)"
        )

    def _best_within(self, count: int, conditions: Sequence[str], values: dict[str, Any]) -> str:
        """The best events that meet the conditions and have what is quoted."""
        question = self._question
        tests, score, within = list(conditions), "s.score", "true"
        if self._request.session is not None:
            # Of all batches, those with a part of the session.
            within = "version GLOBAL IN (SELECT version FROM event WHERE session = %(session)s)"
            tests.append(f"d.{within}")
        if question.quoted or question.demanded:
            tests += self._phrase_tests(values)
            score += f" + {phrase_scores('p', question.longer, self._statistics.words, values)}"
        documents = scored_documents(question.choosing, question.required, values, within)
        return (
            f"SELECT groupArray((version, number, score)) FROM (SELECT d.version, d.number, s.score FROM document d "
            f"GLOBAL ANY JOIN ({documents}) s ON d.version = s.version AND d.number = s.number "
            f"WHERE {' AND '.join(tests) or 'true'} "
            f"ORDER BY {score} DESC, d.ts DESC, base64URLEncode(d.uid) LIMIT {count})"
        )

    def _select(self, best: str, values: dict[str, Any]) -> _Selected:
        """The places of events that a query chooses, with the scores of phrases, and titles: in one statement."""
        question, average = self._question, self._statistics.words
        longer = phrase_scores("l", question.longer, average, values)
        closely = phrase_scores("c", question.closely, average, values)
        # Phrases count in the order of all events, neighbours in that of the best.
        looked_at = "best" if question.longer or question.quoted else "closest"
        tests = [f"{_NAME} GLOBAL IN {_KEYS.format(looked_at)}", *self._quoted_tests(values)]
        phrases = f"SELECT groupArray((version, number, {longer}, {closely})) FROM document WHERE {' AND '.join(tests)}"
        if not (question.longer or question.quoted or question.closely):
            phrases = "[]"
        chosen, places, scores, named = self._server.row(
            f"WITH ({best}) AS best, best[least(length(best), {_WEIGHED_CLOSELY})].3 AS least_score, "
            "arrayFilter(each -> each.3 >= least_score, best) AS closest "
            f"SELECT best, (SELECT groupArray((number, {', '.join(PLACE_COLUMNS)})) FROM document "
            f"WHERE {_NAME} GLOBAL IN {_KEYS.format('best')}), ({phrases}), ({self._titles(values)})",
            values,
            self._request.deadline,
        )
        by_name = {(version, number): score for version, number, score in chosen}
        more = {(version, number): (longer, closely) for version, number, longer, closely in scores}
        found = [
            (Place(*(*place, by_name[place[4], number])), more.get((place[4], number), (0.0, 0.0)))
            for number, *place in places
            if not question.quoted or (place[4], number) in more
        ]
        return _Selected(len(chosen), _weighed(found), dict(named))

    def _titles(self, values: dict[str, Any]) -> str:
        """A session has one title: within it there is nothing to choose."""
        words = [] if self._request.session is not None else self._question.title_words
        values["titles"] = words
        return _TITLE_SCORES if words else "[]"

    def totals(self, keys: Collection[str]) -> Totals:
        """All matches, those of the types of the request by source, project and time, and in these sessions."""
        times = self._request.totals or ()
        words = self._question.matching
        if not words:
            return Totals(
                events=0,
                types={},
                sources={},
                projects={},
                models={},
                branches={},
                failed=0,
                sessions={},
                since=[0] * len(times),
            )
        types: Counter[EventType] = Counter()
        sources, projects, models = Counter[str](), Counter[str](), Counter[str]()
        failed = 0
        later = [0] * len(times)
        values: dict[str, Any] = dict(self._parameters)
        tests = " AND ".join([*self._conditions, *self._tests(words, values)])
        since = "".join(f", countIf(ts >= {time:d})" for time in times)
        rows = self._server.rows(
            f"SELECT type, source, project, coalesce(originating_model, model) AS by, count(), {_FAILED}{since} "
            f"FROM event FINAL WHERE {tests} GROUP BY type, source, project, by",
            values,
            self._request.deadline,
        )
        for code, source, project, model, count, broken, *counts in rows:
            kind = EVENT_TYPES[code]
            types[kind] += count
            if kind in self._request.types:
                sources[source] += count
                if project:
                    projects[project] += count
                if model:
                    models[model] += count
                failed += broken
                later = [total + more for total, more in zip(later, counts, strict=True)]
        return Totals(
            events=sum(types[kind] for kind in self._request.types),
            types=dict(types),
            sources=dict(sources),
            projects=dict(projects),
            models=dict(models),
            branches=self._branches(tests, values),
            failed=failed,
            sessions=self._counts_within(keys, tests, values),
            since=later,
        )

    def _branches(self, tests: str, values: Mapping[str, Any]) -> dict[str, int]:
        rows = self._server.rows(
            "SELECT s.branch, sum(e.found) FROM (SELECT session, count() AS found "
            f"FROM event FINAL WHERE {tests} AND {_of(self._request.types)} GROUP BY session) AS e "
            "JOIN (SELECT key, branch FROM session FINAL WHERE branch <> '') AS s ON s.key = e.session "
            "GROUP BY s.branch",
            values,
            self._request.deadline,
        )
        return dict(rows)

    def _counts_within(self, keys: Collection[str], tests: str, values: Mapping[str, Any]) -> dict[str, int]:
        if not keys:
            return {}
        rows = self._server.rows(
            f"SELECT session, count() FROM event FINAL WHERE {tests} AND {_of(self._request.types)} "
            "AND session IN %(counted)s GROUP BY session",
            {**values, "counted": tuple(keys)},
            self._request.deadline,
        )
        return dict(rows)

    def _tests(self, words: Sequence[str], values: dict[str, Any]) -> list[str]:
        """The conditions of a match on events."""
        if not self._question.quoted:
            return [self._having(words, values)]
        tests = " AND ".join(self._phrase_tests(values))
        return [f"{_NAME} GLOBAL IN (SELECT version, number FROM document WHERE {tests})"]

    def _phrase_tests(self, values: dict[str, Any]) -> list[str]:
        """The documents with the rarest words are found before the words of any are read."""
        question = self._question
        if question.quoted:
            return [self._having([question.rarest(question.required)], values), *self._quoted_tests(values)]
        phrases = question.demanded
        tests = [phrase_test(f"d{number}", phrase, values) for number, phrase in enumerate(phrases)]
        return [self._having(sorted({*map(question.rarest, phrases)}), values), f"({' OR '.join(tests)})"]

    def _having(self, words: Sequence[str], values: dict[str, Any]) -> str:
        return f"{_NAME} GLOBAL IN ({DOCUMENTS_WITH.format(posting_terms('w', words, values))})"

    def _quoted_tests(self, values: dict[str, Any]) -> list[str]:
        return [phrase_test(f"q{number}", phrase, values) for number, phrase in enumerate(self._question.quoted)]


def _of(types: Iterable[EventType]) -> str:
    return f"type IN ({', '.join(str(kind.code) for kind in types)})"


class _Selected(NamedTuple):
    chosen: int
    """The events that the query has chosen. Those that are gone, or do not have what is quoted, are no places."""
    places: list[Place]
    titles: dict[str, float]


def _weighed(found: Sequence[tuple[Place, tuple[float, float]]]) -> list[Place]:
    """Places in their order. Of the scores of phrases, the first ones count for all, the others for the best."""
    first = [(place._replace(score=place.score + longer), closely) for place, (longer, closely) in found]
    scores = sorted((place.score for place, _ in first), reverse=True)
    least = scores[min(len(scores), _WEIGHED_CLOSELY) - 1] if scores else 0.0
    places = [
        place._replace(score=place.score + closely) if place.score >= least else place for place, closely in first
    ]
    return sorted(places, key=lambda place: place.order)
