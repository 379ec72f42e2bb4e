"""A query as SQL: BM25 over the postings of events, with the scores that `archive/ranking.py` weighs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model import EVENT_TYPES, EventType, event_id
from .. import ranking
from ..base import SearchRequest, Term, Totals
from ..phrases import best_corrections, edits, is_corrected, matching_phrases, neighbours
from ..query import Query, index_text
from ..question import Hints
from .documents import STEM, splitter, word_stems
from .postings import event_terms, phrase_frequency, posting_terms
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
# What is quoted is looked for in this many times the events that are weighed, before it is in all.
_WITH_QUOTED = 3
# So many of the best may be gone, or replaced, before the search begins anew without them.
_SPARE = 60
# Of more events with the same score, the newest have to be chosen on the server.
_MOST_TIES = 2_000
_TOKENS_AT_ONCE = 2_000
_DOCUMENTS_WITH = "SELECT version, arrayJoin(numbers) FROM posting WHERE term IN ({})"

_FAILED = (
    f"countIf(type = {EventType.TOOL_RESPONSE.code} "
    "AND (JSONExtractBool(facts, 'failed') OR JSONExtractInt(facts, 'exit') <> 0))"
)


class Statistics(NamedTuple):
    """Of the searchable events."""

    documents: int
    rows: int
    """With those that were replaced and still have postings."""
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


Scores = dict[tuple[int, int], float]
"""Of events by version and number."""

_VERSION = 4
PLACE_COLUMNS = ("session", "turn", "ordinal", "uid", "version", "type", "project", "ts")


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
        corrections = self._corrections(words)
        self.terms = [
            Term(word=word, documents=self._counts.get(word, 0), read_as=corrections.get(word, ())) for word in words
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
        required = self._required
        if not words or not all(self._counts.get(token) for token in required):
            return [], False
        if required:
            some = words = [min(required, key=lambda token: self._counts[token])]
        else:
            some = words if self._request.session is not None else self._telling(words, enough)
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
        more = self._read_phrases(best, {pair: self._neighbours[pair] for pair in rarest})
        return [place._replace(score=place.score + more.get((place.uid, place.version), 0.0)) for place in places]

    def totals(self, conditions: Sequence[str], parameters: Mapping[str, Any], keys: Collection[str]) -> Totals:
        """All matches, those of the types of the request by source, project and time, and in these sessions."""
        times = self._request.totals or ()
        words = self._known_words()
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
        sources: Counter[str] = Counter()
        projects: Counter[str] = Counter()
        models: Counter[str] = Counter()
        failed = 0
        later = [0] * len(times)
        values: dict[str, Any] = dict(parameters)
        tests = self._tests(words, conditions, values)
        # Until parts are merged, an event that was replaced is there twice.
        final = "" if self._statistics.rows == self._statistics.documents else " FINAL"
        since = "".join(f", countIf(ts >= {time:d})" for time in times)
        rows = self._server.rows(
            f"SELECT type, source, project, coalesce(originating_model, model) AS by, count(), {_FAILED}{since} "
            f"FROM event{final} WHERE {' AND '.join(tests)} GROUP BY type, source, project, by",
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
            branches=self._branches(f"event{final}", tests, values),
            failed=failed,
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

    def _branches(self, table: str, tests: Sequence[str], values: Mapping[str, Any]) -> dict[str, int]:
        types = ", ".join(str(kind.code) for kind in self._request.types)
        rows = self._server.rows(
            "SELECT s.branch, sum(e.found) FROM (SELECT session, count() AS found "
            f"FROM {table} WHERE {' AND '.join(tests)} AND type IN ({types}) GROUP BY session) AS e "
            "JOIN (SELECT key, branch FROM session FINAL WHERE branch <> '') AS s ON s.key = e.session "
            "GROUP BY s.branch",
            values,
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
        """The numbers of events by token, those of none left out. The postings have them: no event is read. Events
        that were deleted or replaced count, too."""
        counts: dict[str, int] = {}
        names = list(dict.fromkeys(tokens))
        for start in range(0, len(names), _TOKENS_AT_ONCE):
            some = names[start : start + _TOKENS_AT_ONCE]
            rows = self._server.rows(
                "WITH arrayMap(token -> cityHash64(token), %(tokens)s) AS hashes "
                "SELECT indexOf(hashes, term), sum(length(numbers)) FROM posting "
                "WHERE term IN (SELECT arrayJoin(hashes)) GROUP BY term",
                {"tokens": some},
                self._request.deadline,
            )
            counts |= {some[place - 1]: count for place, count in rows}
        self._counts |= counts
        return counts

    def _corrections(self, words: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """For each word that no event has, the commonest words that are one edit away."""
        unknown = [
            word
            for word in words
            if is_corrected(word)
            and not any(map(self._counts.get, (word, *(STEM + stem for stem in self._stems[word]))))
        ]
        near = {word: sorted(edits(word)) for word in unknown}
        counts = self._count(other for others in near.values() for other in others)
        return {
            word: best_corrections({other: counts[other] for other in others if other in counts})
            for word, others in near.items()
        }

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

    def _telling(self, words: Sequence[str], enough: int) -> list[str]:
        """The rarest words, of which events can be enough."""
        chosen: list[str] = []
        events = 0
        for word in words:
            events += self._counts[word]
            if events - self._counts[word] >= enough and events > _SCORED:
                break
            chosen.append(word)
        return chosen

    @property
    def _required(self) -> set[str]:
        """The words of quoted phrases."""
        return {token for phrase in self._quoted for token in phrase}

    @property
    def _quoted(self) -> list[tuple[str, ...]]:
        return [clause.alternatives[0] for clause in self._query.clauses if clause.quoted]

    def _select(
        self, words: Sequence[str], limit: int, conditions: Sequence[str], parameters: Mapping[str, Any]
    ) -> list[Place]:
        """The best events that have any of the words. The words in their order are read for few: phrases are looked
        for in the best by the rest of their scores."""
        count = limit * (_WITH_QUOTED if self._quoted else 1) + _SPARE
        if not conditions:
            best = self._best(words, count)
            places = self._read_places(best)
            if len(best) < count or (len(best) < _MOST_TIES and len(places) >= limit):
                return places[:limit]
        return self._read_places(self._best_within(words, count, conditions, parameters))[:limit]

    def _best(self, words: Sequence[str], count: int) -> Scores:
        """The best events by their postings alone. Some may be gone from the table of events, or have the words of a
        quoted phrase in another order."""
        values: dict[str, Any] = {}
        rows = self._server.rows(
            "SELECT version, number, score "
            f"FROM ({self._scored_documents(words, values)} ORDER BY expected DESC LIMIT {count} WITH TIES) "
            f"LIMIT {_MOST_TIES}",
            values,
            self._request.deadline,
        )
        return {(version, number): score for version, number, score in rows}

    def _best_within(
        self, words: Sequence[str], count: int, conditions: Sequence[str], parameters: Mapping[str, Any]
    ) -> Scores:
        """The best events that meet the conditions and have what is quoted."""
        values: dict[str, Any] = dict(parameters)
        documents = self._scored_documents(words, values)
        tests, score = list(conditions), "d.score"
        if self._quoted:  # the events with the rarest word are found before the words of any are read
            tests = self._tests(words, conditions, values)
            score = f"{score} + {self._phrase_scores('p', self._longer, values)}"
        rows = self._server.rows(
            f"SELECT e.version, e.number, d.score FROM event e GLOBAL JOIN ({documents}) d "
            f"ON e.version = d.version AND e.number = d.number WHERE {' AND '.join(tests) or 'true'} "
            f"ORDER BY {score} DESC, e.ts DESC, base64URLEncode(e.uid) LIMIT {count}",
            values,
            self._request.deadline,
        )
        return {(version, number): score for version, number, score in rows}

    def _read_places(self, scores: Scores) -> list[Place]:
        """The events with these scores, the best first. Scores of phrases are added; events without what is quoted are
        left out."""
        named = ", ".join(f"({version}, {number})" for version, number in scores)
        if not named:
            return []
        rows = self._server.rows(
            f"SELECT {', '.join(PLACE_COLUMNS)}, number FROM document WHERE (version, number) IN ({named})",
            deadline=self._request.deadline,
        )
        places = [Place(*(*row, scores[row[_VERSION], number])) for *row, number in rows]
        if self._longer or self._quoted:
            more = self._read_phrases(places, self._longer)
            places = [
                place._replace(score=place.score + more.get((place.uid, place.version), 0.0))
                for place in places
                if not self._quoted or (place.uid, place.version) in more
            ]
        return sorted(places, key=lambda place: (-place.score, -place.ts, event_id(place.uid)))

    def _read_phrases(
        self, places: Iterable[Place], phrases: Mapping[tuple[str, ...], float]
    ) -> dict[tuple[bytes, int], float]:
        """The scores of phrases with their weights, by uid and version, for events with what is quoted."""
        values: dict[str, Any] = {"places": tuple((place.session, place.turn, place.ordinal) for place in places)}
        if not values["places"]:
            return {}
        tests = ["(session, turn, ordinal) IN %(places)s", *self._quoted_tests(values)]
        rows = self._server.rows(
            f"SELECT uid, version, {self._phrase_scores('p', phrases, values)} FROM event WHERE {' AND '.join(tests)}",
            values,
            self._request.deadline,
        )
        return {(uid, version): score for uid, version, score in rows}

    @property
    def _longer(self) -> dict[tuple[str, ...], float]:
        """The phrases of several words whose words are all known."""
        return {
            phrase: weight
            for phrase, weight in self._phrases.items()
            if len(phrase) > 1 and all(self._counts.get(token) for token in phrase)
        }

    def _scored_documents(self, words: Sequence[str], values: dict[str, Any]) -> str:
        """A query for the events that have any of these words and all that are quoted: `version`, `number`, `score`
        without phrases, and `expected` with the words of quoted ones."""
        required = self._required
        terms = dict.fromkeys([*words, *required], (0.0, self._statistics.words))
        for phrase, weight in self._phrases.items():
            if len(phrase) == 1 and self._counts.get(phrase[0]):
                terms[phrase[0]] = (weight * self._idf(phrase[0]), self._statistics.words)
            for stem, share in self._stemmed(phrase):
                terms[stem] = (share * self._idf(stem), self._statistics.stems)
        hashes = posting_terms("t", terms, values)
        weights = [weight * (_K1 + 1) for weight, _ in terms.values()]
        promises = [weight or self._idf(word) for word, (weight, _) in terms.items()]
        slopes = [_K1 * _B / max(average, 1.0) for _, average in terms.values()]
        tests = [f"term IN ({hashes})"]
        if self._request.session is not None:
            tests.append("version GLOBAL IN (SELECT version FROM event WHERE session = %(session)s)")
        chosen = ""
        if len(words) < len(terms):
            chosen = f" WHERE (version, number) GLOBAL IN ({_DOCUMENTS_WITH.format(posting_terms('w', words, values))})"
        part = f"frequency / (frequency + {_K1 * (1 - _B)!r} + slope * length)"
        expected, having = "score", ""
        if required:
            expected = f"sum(promise * {part})"
            flags = [int(word in required) for word in terms]
            having = f" HAVING uniqExactIf(place, {flags}[place] = 1) = {len(required)}"
        return (
            f"SELECT version, number, sum(weight * {part}) AS score, {expected} AS expected "
            f"FROM (SELECT version, numbers, frequencies, lengths, indexOf([{hashes}], term) AS place, "
            f"{weights}[place] AS weight, {promises}[place] AS promise, {slopes}[place] AS slope "
            f"FROM posting WHERE {' AND '.join(tests)}) "
            "ARRAY JOIN numbers AS number, frequencies AS frequency, lengths AS length"
            f"{chosen} GROUP BY version, number{having}"
        )

    def _tests(self, words: Sequence[str], conditions: Sequence[str], values: dict[str, Any]) -> list[str]:
        """The conditions of a match; adds their parameters to `values`."""
        documents = _DOCUMENTS_WITH.format(posting_terms("w", words, values))
        return [*conditions, f"(version, number) GLOBAL IN ({documents})", *self._quoted_tests(values)]

    def _quoted_tests(self, values: dict[str, Any]) -> Iterable[str]:
        for number, phrase in enumerate(self._quoted):
            yield f"hasSubstr(terms, [{', '.join(event_terms(f'q{number}', phrase, values))}])"

    def _phrase_scores(self, name: str, phrases: Mapping[tuple[str, ...], float], values: dict[str, Any]) -> str:
        """The sum of the scores of phrases with their weights; `name` is that of parameters."""
        norm = f"({_K1 * (1 - _B)!r} + {_K1 * _B / max(self._statistics.words, 1.0)!r} * words)"
        parts = ["0."]
        for number, (phrase, weight) in enumerate(phrases.items()):
            frequency = phrase_frequency(f"{name}{number}", phrase, values)
            best = weight * sum(map(self._idf, phrase)) * (_K1 + 1)
            parts.append(f"{best!r} * {frequency} / ({frequency} + {norm})")
        return " + ".join(parts)
