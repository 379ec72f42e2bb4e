"""A query as SQL: BM25 over the tokens of events, with the scores that `archive/ranking.py` weighs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model import EVENT_TYPES, EventType
from .. import ranking
from ..base import SearchRequest, Term, Totals
from ..phrases import best_corrections, edits, is_corrected, matching_phrases, neighbours
from ..query import Query, index_text
from ..question import Hints
from .documents import STEM, splitter, word_stems
from .server import Server

_K1, _B = 1.2, 0.75
# The events that are weighed, as in the local engine.
_CANDIDATES = 300
# Rarer words choose the events that are scored, up to about so many; commoner ones only add to the scores.
_SCORED = 20_000
# Neighbouring words are looked for in so many of the best events, the rarest pairs only, as in the local engine.
_WEIGHED_CLOSELY = 60
_NEIGHBOURS = 4
# A word belongs to one language or two; the others that have its stem have it by chance.
_STEM_LANGUAGES = 2
_TERM = "toUInt32(cityHash64(%({})s))"


class Statistics(NamedTuple):
    """Of the searchable events."""

    documents: int
    rows: int
    """With those that are replaced but not merged away yet."""
    words: float
    """The average number of words; likewise stems."""
    stems: float


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


PLACE = "session, turn, ordinal, uid, version, type, project, ts"


class Question:
    """A query with the numbers of events that have its words."""

    def __init__(
        self, server: Server, query: Query, hints: Hints, request: SearchRequest, statistics: Statistics
    ) -> None:
        self._server = server
        self._query = query
        self._request = request
        self._statistics = statistics
        self._weights = ranking.WEIGHTS
        self._counts: dict[str, int] = {}
        words = list(dict.fromkeys(token for clause in query.clauses for part in clause.alternatives for token in part))
        # Parts of paths and identifiers are looked for as they are.
        whole = {phrase[0] for clause in query.clauses for phrase in clause.alternatives if len(phrase) == 1}
        self._stems = {word: word_stems(word) if word in whole else [] for word in words}
        self._count([*words, *(STEM + stem for stems in self._stems.values() for stem in stems)])
        self.terms = [
            Term(word=word, documents=self._counts.get(word, 0), read_as=self._corrections(word)) for word in words
        ]
        near = [other for term in self.terms for other in term.read_as]
        self._phrases = matching_phrases(query, hints, near, self._weights)
        self._neighbours = {
            pair: weight for pair, weight in neighbours(query, self._weights).items() if pair not in self._phrases
        }

    @property
    def bound(self) -> float:
        """The highest BM25 score that an event can reach."""
        phrases = self._neighbours | self._phrases
        return (_K1 + 1) * sum(
            weight * sum(map(self._idf, phrase)) + sum(share * self._idf(stem) for stem, share in self._stemmed(phrase))
            for phrase, weight in phrases.items()
        )

    def matches(self, limit: int, conditions: Sequence[str], parameters: Mapping[str, Any]) -> tuple[list[Place], bool]:
        """The best events in the order of the contract, at least `limit` if there are so many; and whether there are
        more."""
        enough = max(_CANDIDATES, limit + 1)
        words = self._known_words()
        if not words:
            return [], False
        some = words if self._request.session is not None else self._telling(words)
        while True:
            found = self._select(some, enough, conditions, parameters)
            if len(found) == enough or len(some) == len(words):
                return found, len(found) == enough
            some = words

    def weigh_closely(self, places: Sequence[Place]) -> list[Place]:
        """The events, the best of them with the scores of the neighbouring words that they have."""
        known = [pair for pair in self._neighbours if all(self._counts.get(token) for token in pair)]
        rarest = sorted(known, key=lambda pair: -sum(map(self._idf, pair)))[:_NEIGHBOURS]
        best = sorted(places, key=lambda place: -place.score)
        while len(best) > _WEIGHED_CLOSELY and best[-1].score < best[_WEIGHED_CLOSELY - 1].score:
            best.pop()
        if not rarest or not best:
            return list(places)
        values: dict[str, Any] = {"places": tuple((place.session, place.turn, place.ordinal) for place in best)}
        parts: list[str] = []
        for number, pair in enumerate(rarest):
            parts += self._score(number, pair, self._neighbours[pair], values)
        rows = self._server.rows(
            f"SELECT uid, version, {' + '.join(parts)} FROM event WHERE (session, turn, ordinal) IN %(places)s",
            values,
            self._request.deadline,
        )
        more = {(uid, version): score for uid, version, score in rows}
        return [place._replace(score=place.score + more.get((place.uid, place.version), 0.0)) for place in places]

    def totals(self, conditions: Sequence[str], parameters: Mapping[str, Any], keys: Collection[str]) -> Totals:
        """All matches, those of the types of the request by source, project and time, and in these sessions."""
        times = self._request.totals or ()
        words = self._known_words()
        if not words:
            return Totals(events=0, types={}, sources={}, projects={}, sessions={}, since=[0] * len(times))
        types: Counter[EventType] = Counter()
        sources: Counter[str] = Counter()
        projects: Counter[str] = Counter()
        later = [0] * len(times)
        values: dict[str, Any] = dict(parameters)
        tests = self._tests(words, conditions, values)
        # Until parts are merged, an event that was replaced is there twice.
        final = "" if self._statistics.rows == self._statistics.documents else " FINAL"
        since = "".join(f", countIf(ts >= {time:d})" for time in times)
        rows = self._server.rows(
            f"SELECT type, source, project, count(){since} FROM event{final} WHERE {' AND '.join(tests)} "
            "GROUP BY type, source, project",
            values,
            self._request.deadline,
        )
        for code, source, project, count, *counts in rows:
            kind = EVENT_TYPES[code]
            types[kind] += count
            if kind in self._request.types:
                sources[source] += count
                if project:
                    projects[project] += count
                later = [total + more for total, more in zip(later, counts, strict=True)]
        return Totals(
            events=sum(types[kind] for kind in self._request.types),
            types=dict(types),
            sources=dict(sources),
            projects=dict(projects),
            sessions=self._counts_within(keys, f"event{final}", tests, values),
            since=later,
        )

    def _counts_within(
        self, keys: Collection[str], table: str, tests: Sequence[str], values: Mapping[str, Any]
    ) -> dict[str, int]:
        if not keys:
            return {}
        types = ", ".join(str(kind.code) for kind in self._request.types)
        rows = self._server.rows(
            f"SELECT session, count() FROM {table} WHERE {' AND '.join(tests)} AND type IN ({types}) "
            "AND session IN %(counted)s GROUP BY session",
            {**values, "counted": tuple(keys)},
            self._request.deadline,
        )
        return dict(rows)

    def matched(self, text: str, title: str) -> dict[str, list[str]]:
        """The words of the query that a text and a title have, by field."""
        words = [word for term in self.terms for word in (term.word, *term.read_as)]
        tokens, named = (set(splitter().analyze(" ".join(index_text(part)))) for part in (text, title))
        stems = {stem for word in splitter().analyze(index_text(text)[0]) for stem in word_stems(word)}
        return {
            "text": [word for word in words if word in tokens],
            "stem": [word for word in words if word not in tokens and not stems.isdisjoint(self._stems.get(word, ()))],
            "title": [word for word in words if word in named],
        }

    def _count(self, tokens: Iterable[str]) -> dict[str, int]:
        """The numbers of events by token, those of none left out. The text index has them: no event is read. Rows that
        are deleted or replaced count until parts are merged."""
        rows = self._server.rows_of(
            f"SELECT token, sum(cardinality) FROM {self._server.index('event', 'token_index')} "
            "WHERE token IN %(names)s GROUP BY token",
            dict.fromkeys(tokens),
            deadline=self._request.deadline,
        )
        counts = dict(rows)
        self._counts |= counts
        return counts

    def _corrections(self, word: str) -> tuple[str, ...]:
        """The commonest words that are one edit away from a word that no event has."""
        stems = self._stems[word]
        if self._counts.get(word) or not is_corrected(word) or any(self._counts.get(STEM + stem) for stem in stems):
            return ()
        return best_corrections(self._count(sorted(edits(word))))

    def _idf(self, token: str) -> float:
        total, having = self._statistics.documents, self._counts.get(token, 0)
        return math.log1p((max(total - having, 0) + 0.5) / (having + 0.5))

    def _stemmed(self, phrase: tuple[str, ...]) -> list[tuple[str, float]]:
        """The stems of a single word that events have, with their weights."""
        if len(phrase) > 1:
            return []
        stems = [STEM + stem for stem in self._stems.get(phrase[0], ()) if self._counts.get(STEM + stem)]
        stems.sort(key=lambda stem: -self._counts[stem])
        return [(stem, self._phrases[phrase] * self._weights.stem) for stem in stems[:_STEM_LANGUAGES]]

    def _known_words(self) -> list[str]:
        """The words and stems that make a match, the rarest first."""
        words = {token for phrase in self._phrases for token in phrase}
        words |= {stem for phrase in self._phrases for stem, _ in self._stemmed(phrase)}
        return sorted((word for word in words if self._counts.get(word)), key=lambda word: (self._counts[word], word))

    def _telling(self, words: Sequence[str]) -> list[str]:
        chosen: list[str] = []
        events = 0
        for word in words:
            events += self._counts[word]
            if chosen and events > _SCORED:
                break
            chosen.append(word)
        return chosen

    def _select(
        self, words: Sequence[str], limit: int, conditions: Sequence[str], parameters: Mapping[str, Any]
    ) -> list[Place]:
        values: dict[str, Any] = dict(parameters)
        tests = self._tests(words, conditions, values)
        parts: list[str] = []
        for number, (phrase, weight) in enumerate(self._phrases.items()):
            parts += self._score(number, phrase, weight, values)
        rows = self._server.rows(
            f"SELECT {PLACE}, {' + '.join(parts)} AS score FROM event WHERE {' AND '.join(tests)} "
            f"ORDER BY score DESC, ts DESC, base64URLEncode(uid) LIMIT {limit}",
            values,
            self._request.deadline,
        )
        return [Place(*row) for row in rows]

    def _tests(self, words: Sequence[str], conditions: Sequence[str], values: dict[str, Any]) -> list[str]:
        """The conditions of a match; adds their parameters to `values`."""
        quoted = [clause.alternatives[0] for clause in self._query.clauses if clause.quoted]
        tests = list(conditions)
        if not quoted:
            values["words"] = list(words)
            tests.append("hasAnyTokens(tokens, %(words)s)")
        for number, phrase in enumerate(quoted):
            values[f"all{number}"] = list(phrase)
            tests.append(f"hasAllTokens(tokens, %(all{number})s)")
            tests.append(f"hasSubstr(terms, arrayMap(token -> toUInt32(cityHash64(token)), %(all{number})s))")
        return tests

    def _score(self, number: int, phrase: tuple[str, ...], weight: float, values: dict[str, Any]) -> Iterable[str]:
        frequency = _frequency(f"p{number}", phrase, values)
        if all(self._counts.get(token) for token in phrase):
            yield _bm25(weight * sum(map(self._idf, phrase)), frequency, "words", self._statistics.words)
        for place, (stem, share) in enumerate(self._stemmed(phrase)):
            frequency = _frequency(f"s{number}_{place}", (stem,), values)
            yield _bm25(share * self._idf(stem), frequency, "stems", self._statistics.stems)


def _bm25(weight: float, frequency: str, length: str, average: float) -> str:
    norm = f"({_K1 * (1 - _B)!r} + {_K1 * _B / max(average, 1.0)!r} * {length})"
    return f"({weight * (_K1 + 1)!r} * {frequency} / ({frequency} + {norm}))"


def _frequency(name: str, phrase: Sequence[str], values: dict[str, Any]) -> str:
    """The number of times that an event has a phrase."""
    names = [f"{name}_{place}" for place in range(len(phrase))]
    values |= zip(names, phrase, strict=True)
    terms = [_TERM.format(each) for each in names]
    if len(terms) == 1:
        return f"countEqual(terms, {terms[0]})"
    letters = ", ".join(names)
    shifted = ", ".join(f"arrayShiftLeft(terms, {place})" if place else "terms" for place in range(len(terms)))
    equal = " AND ".join(f"{each} = {term}" for each, term in zip(names, terms, strict=True))
    rare = " AND ".join(f"countEqual(terms, {term}) > 0" for term in terms)
    return f"if({rare}, arrayCount(({letters}) -> {equal}, {shifted}), 0)"
