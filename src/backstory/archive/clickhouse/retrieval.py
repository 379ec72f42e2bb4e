"""The statements of a search for events: the best ones, their documents, and totals. They are short: the server takes
longer to understand a long statement than to run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from heapq import nlargest
from operator import attrgetter
from typing import Any, NamedTuple

from ...model import EVENT_TYPES, EventType, event_id
from ..base import SearchRequest, Totals
from ..ranking import CANDIDATES, best_of, weigh_closely
from .common import cover
from .postings import HAVING_BITS, Letters, documents_with, phrase_test, scored_documents
from .question import Phrase, Question, Statistics
from .rows import decode_row
from .server import Server, array

# What is quoted is looked for in this many times the events that are weighed, then in as many again, and so on, up to
# this part of all events: to look at an event by its name takes about forty times as long as in a row with all.
_WITH_QUOTED = 3
_MUCH_SLOWER = 128
_MOST_QUOTED = 50_000
# The names of events in a statement, which stays below ClickHouse's `max_query_size` of 256 KiB.
_NAMES_AT_ONCE = 5_000
# So many of the best may be gone before the search begins anew without them.
_SPARE = 20
# Of more events with the same score, the newest have to be chosen on the server.
_MOST_TIES = 2_000
# The events with the rarest word are looked up if the words have so many times more events.
_MUCH_RARER = 4
_NAME = "(version, number)"
# Of one session; its events are next to each other.
_OF_SESSION = "SELECT version, number FROM event FINAL WHERE {}"
_BATCHES_OF_SESSION = "SELECT version FROM event WHERE session = %(session)s"
_FAILED = (
    f"countIf(type = {EventType.TOOL_RESPONSE.code} "
    "AND (JSONExtractBool(facts, 'failed') OR JSONExtractInt(facts, 'exit') <> 0))"
)


class Place(NamedTuple):
    """An event that matches."""

    id: str
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
        """The sort key: the order of hits in the contract."""
        return -self.score, -self.ts, self.id


def read_place(row: Mapping[str, Any], version: int, score: float = 0.0) -> Place:
    return Place(
        id=event_id(row["uid"]),
        session=row["session"],
        turn=row["turn"],
        ordinal=row["ordinal"],
        uid=row["uid"],
        version=version,
        type=row["type"],
        project=row["project"],
        ts=row["ts"],
        score=score,
    )


class Match(NamedTuple):
    """An event, and what counts if it is one of the best."""

    place: Place
    neighbours: float
    """The scores of the neighbouring words and very common ones that it has."""
    covered: float
    """Its share of the words of a long question."""


class Matches(NamedTuple):
    found: list[Match]
    is_cut: bool


class _Scored(NamedTuple):
    """An event that is chosen by its words."""

    version: int
    number: int
    score: float
    having: int
    """The choosing words that it has, as bits in their order."""
    reach: float
    """The highest score that it can have with the phrases that are quoted."""


class Retrieval:
    """A question put to the server. `conditions` are those of the request on events, `terms` the tokens that events
    have as postings have them."""

    def __init__(
        self,
        server: Server,
        question: Question,
        statistics: Statistics,
        request: SearchRequest,
        conditions: Sequence[str],
        parameters: Mapping[str, Any],
        terms: Mapping[str, int],
        *,
        has_replaced: bool,
    ) -> None:
        self._server = server
        self._question = question
        self._statistics = statistics
        self._request = request
        self._conditions = conditions
        self._parameters = parameters
        self._terms = terms
        self._has_replaced = has_replaced

    def matches(self, types: Collection[EventType] = ()) -> Matches:
        """The best events, more than the request asks for if there are so many; with `types`, of these alone."""
        enough = max(CANDIDATES, self._request.limit + 1)
        if not self._question.can_match:
            return Matches([], is_cut=False)
        conditions = [*self._conditions, *([_of(types)] if types else ())]
        found = None
        if not self._question.demanded and (not conditions or self._request.session is not None):
            find = self._quoted if self._question.quoted else self._unquoted
            found = find(enough, conditions)
        if found is None:
            found = self._read(self._best_within(enough + _SPARE, conditions))
        best = sorted(found, key=lambda match: match.place.order)[:enough]
        return Matches(best, len(best) == enough)

    def _unquoted(self, enough: int, conditions: Sequence[str]) -> list[Match] | None:
        """The best events by their postings alone; None if too many of them are gone or have the same score."""
        count = enough + _SPARE
        chosen = self._best(_MOST_TIES, conditions)
        if len(chosen) > count:
            chosen = [each for each in chosen if each.reach >= chosen[count - 1].reach]
        found = self._read(chosen)
        is_enough = len(chosen) < count or (len(chosen) < _MOST_TIES and len(found) >= enough)
        return found if is_enough else None

    def _quoted(self, enough: int, conditions: Sequence[str]) -> list[Match] | None:
        """The events with what is quoted. Of those that have its words the best are looked at in portions, until no
        other one can be better than those that are found. None if all have to be looked at."""
        size = enough * _WITH_QUOTED
        most = min(max(self._statistics.documents // _MUCH_SLOWER, size), _MOST_QUOTED)
        chosen = self._best(most, conditions)
        # The score that none of the events beyond these reaches.
        beyond = chosen[-1].reach if len(chosen) == most else -1.0
        found = self._read(chosen[:size])
        start = size
        while len(found) < enough or start > size:
            best = nlargest(enough, (each.place.score for each in found))
            least = best[-1] if len(best) == enough else 0.0
            if least > (chosen[start].reach if start < len(chosen) else beyond):
                break
            if start >= len(chosen) or max(best, default=0.0) <= beyond:
                return None
            portion = chosen[start : start + min(start, _NAMES_AT_ONCE)]
            found += self._read(portion)
            start += len(portion)
        return found

    def _best(self, most: int, conditions: Sequence[str]) -> list[_Scored]:
        """The events that may score best by their postings alone, in order. Some may be gone, or have the words of a
        quoted phrase in another order. There are conditions in a session only."""
        within = []
        if conditions:
            within.append(f"{_NAME} GLOBAL IN ({_OF_SESSION.format(' AND '.join(conditions))})")
        documents = self._scored(within, _BATCHES_OF_SESSION if conditions else None)
        rows = self._server.rows(
            f"{documents} ORDER BY reach DESC LIMIT {most}", self._parameters, self._request.deadline
        )
        return [_Scored(*row) for row in rows]

    def _scored(self, within: Sequence[str], batches: str | None) -> str:
        question, terms = self._question, self._terms
        if question.required and question.share(rarest := question.rarest(question.required)) * _MUCH_RARER < 1:
            within = [*within, self._having([rarest])]
        words = {terms[word]: weight for word, weight in question.choosing.items()}
        longer = question.longer
        required = {tuple(terms[token] for token in cover(each)): longer.get(each, 0.0) for each in question.quoted}
        return scored_documents(words, required, within, batches)

    def _best_within(self, count: int, conditions: Sequence[str]) -> list[_Scored]:
        """The best events that meet the conditions and have what is quoted."""
        question = self._question
        tests, batches, score = list(conditions), None, "s.score"
        if self._request.session is not None:
            batches = _BATCHES_OF_SESSION
            tests.append(f"d.version GLOBAL IN ({batches})")
        if question.quoted or question.demanded:
            tests += self._phrase_tests()
            letters = Letters(question.longer, self._terms)
            score += f" + {letters.score_of_text(question.longer, self._statistics.words)}"
        if self._has_replaced:
            tests.append("(d.version, d.number) GLOBAL NOT IN (SELECT version, number FROM replaced)")
        documents = self._scored((), batches)
        rows = self._server.rows(
            f"SELECT d.version, d.number, s.score, s.having, s.reach FROM document d "
            f"GLOBAL ANY JOIN ({documents}) s ON d.version = s.version AND d.number = s.number "
            f"WHERE {' AND '.join(tests) or 'true'} "
            f"ORDER BY {score} DESC, d.ts DESC, base64URLEncode(d.uid) LIMIT {count}",
            self._parameters,
            self._request.deadline,
        )
        return [_Scored(*row) for row in rows]

    def _read(self, chosen: Sequence[_Scored]) -> list[Match]:
        """The events with the scores of phrases, those without what is quoted left out."""
        question = self._question
        if not chosen:
            return []
        longer, closely = question.longer, question.closely
        bits = self._bits()
        covered = question.covered(bits)
        in_texts = dict.fromkeys([*closely, *(phrase for word in covered for phrase in word.phrases)])
        letters = Letters([*longer, *in_texts], self._terms)
        if question.quoted:
            texts = rows = self._documents(chosen, f"row, {letters.text}", self._quoted_tests())
        else:
            looked_at = self._looked_at(chosen, bits, longer, in_texts)
            spelled = self._server.beside(partial(self._documents, looked_at, letters.text))
            rows = self._documents(chosen, "row")
            texts = spelled()
        text_of = {(version, number): text for version, number, *_, text in texts}
        by_name = {(each.version, each.number): each for each in chosen}
        words = [(sum(bits[token] for token in word.tokens), word.phrases, word.share) for word in covered]
        average = self._statistics.words
        found = []
        for version, number, stored, *_ in rows:
            row, text = decode_row(stored), text_of.get((version, number), "")
            scored = by_name[version, number]
            scores = [
                letters.score(text, row["words"], phrases, average) if text else 0.0 for phrases in (longer, closely)
            ]
            share = sum(
                share for any_of, phrases, share in words if scored.having & any_of or letters.has_any(text, phrases)
            )
            found.append(Match(read_place(row, version, scored.score + scores[0]), scores[1], share))
        return found

    def _bits(self) -> dict[str, int]:
        """The words and stems that scores tell about, as bits."""
        return {token: 1 << place for place, token in enumerate([*self._question.choosing][:HAVING_BITS])}

    def _documents(self, chosen: Sequence[_Scored], columns: str, tests: Sequence[str] = ()) -> Sequence[Any]:
        """Columns of the documents of events, behind their names."""
        if not chosen:
            return []
        names = array(((each.version, each.number) for each in chosen), "Tuple(UInt64, UInt32)")
        conditions = [f"{_NAME} IN {names}", *tests]
        if self._has_replaced:
            conditions.append(f"{_NAME} GLOBAL NOT IN (SELECT version, number FROM replaced WHERE {_NAME} IN {names})")
        return self._server.rows(
            f"SELECT version, number, {columns} FROM document WHERE {' AND '.join(conditions)}",
            deadline=self._request.deadline,
        )

    def _looked_at(
        self,
        chosen: Sequence[_Scored],
        bits: Mapping[str, int],
        longer: Collection[Phrase],
        closely: Collection[Phrase],
    ) -> list[_Scored]:
        """The events that may have a phrase, by the words that they have, and those that are weighed closely: if a
        phrase brings others among them, these have it."""
        needed = {sum({bits.get(word, 0) for word in phrase}) for phrase in longer}
        looked_at = dict.fromkeys(best_of(chosen, attrgetter("score")) if closely else ())
        looked_at |= dict.fromkeys(each for each in chosen if any(each.having & all_of == all_of for all_of in needed))
        return list(looked_at)

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
        tests = " AND ".join([*self._conditions, *self._tests(words)])
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

    def _tests(self, words: Sequence[str]) -> list[str]:
        """The conditions of a match on events."""
        if not self._question.quoted:
            return [self._having(words)]
        tests = " AND ".join(self._phrase_tests())
        return [f"{_NAME} GLOBAL IN (SELECT version, number FROM document WHERE {tests})"]

    def _phrase_tests(self) -> list[str]:
        """The documents with the rarest words are found before the words of any are read."""
        question = self._question
        if question.quoted:
            return [self._having([question.rarest(question.required)]), *self._quoted_tests()]
        tests = [self._phrase_test(phrase) for phrase in question.demanded]
        return [self._having(sorted({*map(question.rarest, question.demanded)})), f"({' OR '.join(tests)})"]

    def _quoted_tests(self) -> list[str]:
        return [self._phrase_test(phrase) for phrase in self._question.quoted]

    def _phrase_test(self, phrase: Phrase) -> str:
        return phrase_test(self._terms[word] for word in phrase)

    def _having(self, words: Iterable[str]) -> str:
        return f"{_NAME} GLOBAL IN ({documents_with(self._terms[word] for word in words)})"


def _of(types: Iterable[EventType]) -> str:
    return f"type IN ({', '.join(str(kind.code) for kind in types)})"


def weigh(matches: Sequence[Match]) -> list[Place]:
    """The events with their scores."""
    best = {match.place.uid for match in best_of(matches, lambda match: match.place.score)}
    return [
        place._replace(score=weigh_closely(place.score, neighbours, covered)) if place.uid in best else place
        for place, neighbours, covered in matches
    ]
