"""Asking the index: candidates of any type with their BM25 scores, which `archive/ranking.py` puts in order."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cache
from itertools import pairwise
from string import ascii_lowercase
from typing import TYPE_CHECKING

from msgspec import Struct

from ...model import EVENT_TYPES
from .. import ranking
from ..analysis import STEMMERS, analyzer
from ..base import DeadlineExceeded, Term
from ..query import Clause, Query, index_text
from ..question import Hints
from ..ranking import Candidate
from ..stopwords import STOP_WORDS
from .documents import FORMER_FIELDS, ONE_FIELD_SINCE
from .index import stem_field

if TYPE_CHECKING:
    import tantivy

_K1 = 1.2  # tantivy's BM25
# The events that are weighed: deeper ones change the first page of one question in a hundred.
_CANDIDATES = 300
# Ties at the end of a page are resolved by looking so many times further, up to this many documents with one score.
_TIED = 8
_MAX_TIED = 1_000_000
_MAX_TIED_EXCHANGES = 20_000
# Two words side by side are a phrase of at most so many tokens.
_MAX_ADJACENT = 6
_MIN_CORRECTED_CHARS = 4
_CORRECTIONS = 3

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="search")


class Filters(Struct, frozen=True, kw_only=True):
    """Numbers, as in the index; None does not filter."""

    types: tuple[int, ...]
    session: int | None = None
    turn: int | None = None
    projects: tuple[int, ...] | None = None
    source: int | None = None
    since: int | None = None
    until: int | None = None


class Match(Struct, frozen=True):
    """A document of the index."""

    id: int
    score: float
    ts: int
    address: tantivy.DocAddress


class Question:
    """A query put to one snapshot of the index."""

    def __init__(
        self,
        schema: tantivy.Schema,
        snapshot: tantivy.Searcher,
        query: Query,
        hints: Hints,
        filters: Filters,
        deadline: float | None,
        *,
        version: int,
    ) -> None:
        self._schema = schema
        self._snapshot = snapshot
        self._query = query
        self._hints = hints
        self._filters = filters
        self._deadline = deadline
        self.has_places = version >= ONE_FIELD_SINCE
        """False for an index of an older version, which `candidates` cannot read."""
        self._weights = ranking.WEIGHTS
        self._fields = FORMER_FIELDS[:1] if self.has_places else FORMER_FIELDS
        # Each word is asked for several times: for its score, its rarity and its corrections.
        self._counted: dict[tuple[str, str], int] = {}
        self._stemmed: dict[str, list[tuple[str, str]]] = {}
        self.terms = [self._term(token) for token in dict.fromkeys(_tokens(query.clauses))]
        self._parts = list(self._score())

    @property
    def bound(self) -> float:
        """The highest BM25 score that a document can reach."""
        return (_K1 + 1) * sum(weight * self._idf(phrase) for phrase, weight in self._weighted_phrases())

    def matches(self, limit: int, *, typed: bool) -> tuple[list[Match], bool]:
        """At least the `limit` best documents, with all that tie with the last of them; and whether there are more.
        `typed`: only documents of the types of the filters."""
        if not self._parts:
            return [], False
        query = self._boolean(list(self._restrict(typed=typed)))
        enough = max(_CANDIDATES, limit + 1)
        while True:
            hits = self._hits(query, enough)
            if len(hits) < enough or hits[-1][0] < hits[limit - 1][0] or enough >= _MAX_TIED:
                break
            enough *= _TIED
        addresses = [address for _, address in hits]
        ids = self._snapshot.fast_field_values("id", addresses)
        times = self._snapshot.fast_field_values("ts", addresses)
        found = [
            Match(int(id or 0), float(score), int(ts or 0), address)
            for (score, address), id, ts in zip(hits, ids, times, strict=True)
        ]
        return found, len(hits) == enough

    def candidates(self, matches: Sequence[Match]) -> list[Candidate]:
        """The documents with their places."""
        addresses = [match.address for match in matches]
        columns = [self._snapshot.fast_field_values(name, addresses) for name in ("turn", "type", "project")]
        return [
            Candidate(
                id=match.id,
                score=match.score,
                type=EVENT_TYPES[int(kind or 0)],
                session=int(turn or 0) >> 20,
                turn=int(turn or 0),
                project=int(project or 0),
                ts=match.ts,
            )
            for match, turn, kind, project in zip(matches, *columns, strict=True)
        ]

    def matched(self, text: str, title: str) -> dict[str, list[str]]:
        """The words of the query that a text and a title have, by field."""
        words = [word for term in self.terms for word in (term.word, *term.read_as)]
        split = analyzer()
        tokens, named = (set(split.analyze(" ".join(index_text(part)))) for part in (text, title))
        stems = {field: set(_stemmers()[field].analyze(text)) for word in words for field, _ in self._stems(word)}
        return {
            "text": [word for word in words if word in tokens],
            "stem": [
                word
                for word in words
                if word not in tokens and any(stem in stems[field] for field, stem in self._stems(word))
            ],
            "title": [word for word in words if word in named],
        }

    def _term(self, token: str) -> Term:
        documents = max(self._documents(field, token) for field in self._fields)
        corrections = () if documents else tuple(self._corrections(token))
        return Term(word=token, documents=documents, read_as=corrections)

    def _corrections(self, word: str) -> list[str]:
        """The commonest words of the index that are one edit away from a word it does not have."""
        if len(word) < _MIN_CORRECTED_CHARS or not word.isalpha() or not word.isascii() or self._stems(word):
            return []
        known = {near: self._snapshot.doc_freq("text", near) for near in _edits(word)}
        best = sorted((near for near, count in known.items() if count), key=lambda near: (-known[near], near))
        return best[:_CORRECTIONS]

    def _stems(self, token: str) -> list[tuple[str, str]]:
        """(field, stem) of a word in the languages that have the stem."""
        if not self.has_places or token.isdigit():
            return []
        if token not in self._stemmed:
            stems = [(field, stem) for field, stemmer in _stemmers().items() for stem in stemmer.analyze(token)]
            self._stemmed[token] = [(field, stem) for field, stem in stems if self._documents(field, stem)]
        return self._stemmed[token]

    def _weight(self, token: str) -> float:
        if token in self._hints.time_words:
            return self._weights.part
        return self._weights.number if self._hints.is_error and token.isdigit() else 1.0

    def _weighted_phrases(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """The phrases that make a score: words, paths and identifiers whole and by part, neighbours, quoted phrases."""
        weights: dict[tuple[str, ...], float] = {}
        for clause in self._query.clauses:
            for phrase in clause.alternatives:
                weights[phrase] = self._weight(phrase[0]) if len(phrase) == 1 else 1.0
        for clause in self._query.clauses:
            for token in _single_parts(clause):
                weights.setdefault((token,), self._weights.part)
        for term in self.terms:
            for near in term.read_as:
                weights.setdefault((near,), self._weights.part)
        words = [clause.alternatives[0] for clause in self._query.clauses if not clause.quoted]
        for one, other in pairwise(words):
            if len(one) + len(other) <= _MAX_ADJACENT:
                weights.setdefault((*one, *other), self._weights.adjacent)
        return iter(weights.items())

    def _score(self) -> Iterator[tantivy.Query]:
        for phrase, weight in self._weighted_phrases():
            for field in self._fields:
                yield self._boosted(self._phrase(field, phrase), weight)
            if len(phrase) == 1:
                for field, stem in self._stems(phrase[0]):
                    yield self._boosted(self._phrase(field, (stem,)), weight * self._weights.stem)

    def _boolean(self, restrictions: list[tantivy.Query]) -> tantivy.Query:
        """Any of the phrases makes a match, but quoted ones are required. Tantivy skips documents that cannot make the
        page while nothing but words is asked for."""
        import tantivy

        scored = [(tantivy.Occur.Should, part) for part in self._parts]
        quoted = [clause.alternatives[0] for clause in self._query.clauses if clause.quoted]
        required = [self._either(phrase) for phrase in quoted]
        if not required and not restrictions:
            return tantivy.Query.boolean_query(scored)
        if not required:
            required, scored = [tantivy.Query.boolean_query(scored)], []
        conditions = [*required, *(tantivy.Query.const_score_query(query, 0.0) for query in restrictions)]
        return tantivy.Query.boolean_query([*((tantivy.Occur.Must, query) for query in conditions), *scored])

    def _either(self, phrase: Sequence[str]) -> tantivy.Query:
        import tantivy

        queries = [self._phrase(field, phrase) for field in self._fields]
        either = tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])
        return tantivy.Query.const_score_query(either, 0.0)

    def _boosted(self, query: tantivy.Query, weight: float) -> tantivy.Query:
        import tantivy

        return query if weight == 1.0 else tantivy.Query.boost_query(query, weight)

    def _phrase(self, field: str, phrase: Sequence[str]) -> tantivy.Query:
        import tantivy

        if len(phrase) == 1:
            return tantivy.Query.term_query(self._schema, field, phrase[0], "freq")
        return tantivy.Query.phrase_query(self._schema, field, list(phrase))

    def _restrict(self, *, typed: bool) -> Iterator[tantivy.Query]:
        import tantivy

        filters = self._filters
        numbers = (
            ("type", filters.types if typed else None),
            ("project", filters.projects),
            ("source", None if filters.source is None else (filters.source,)),
            ("session", None if filters.session is None else (filters.session,)),
            ("turn", None if filters.turn is None else (filters.turn,)),
        )
        for field, values in numbers:
            if values is not None:
                terms = [tantivy.Query.term_query(self._schema, field, value, "basic") for value in values]
                yield tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        if filters.since is not None or filters.until is not None:
            yield tantivy.Query.range_query(
                self._schema,
                "ts",
                tantivy.FieldType.Integer,
                lower_bound=filters.since,
                upper_bound=filters.until,
                # tantivy refuses an open bound that is also excluded
                include_upper=filters.until is None,
            )

    def _hits(self, query: tantivy.Query, limit: int) -> list[tuple[float, tantivy.DocAddress]]:
        if self._deadline is None:
            return self._snapshot.search(query, limit, count=False).hits
        try:
            if (seconds := self._deadline - time.monotonic()) <= 0:
                raise FutureTimeout
            return _threads.submit(self._snapshot.search, query, limit, count=False).result(timeout=seconds).hits
        except FutureTimeout:
            raise DeadlineExceeded("the search took too long") from None

    def _idf(self, phrase: Sequence[str]) -> float:
        """The rarity of a phrase, with that of its stem."""
        rarity = max(sum(self._token_idf(field, token) for token in phrase) for field in self._fields)
        if len(phrase) == 1:
            rarity += self._weights.stem * sum(self._token_idf(field, stem) for field, stem in self._stems(phrase[0]))
        return rarity

    def _token_idf(self, field: str, token: str) -> float:
        total, having = self._snapshot.num_docs, self._documents(field, token)
        return math.log1p((max(total - having, 0) + 0.5) / (having + 0.5))

    def _documents(self, field: str, token: str) -> int:
        count = self._counted.get((field, token))
        if count is None:
            count = self._counted[field, token] = self._snapshot.doc_freq(field, token)
        return count


def _tokens(clauses: Iterable[Clause]) -> Iterator[str]:
    for clause in clauses:
        for phrase in clause.alternatives:
            yield from phrase


def _single_parts(clause: Clause) -> list[str]:
    """The single tokens of a path or identifier, where they say anything."""
    if clause.quoted:
        return []
    parts = dict.fromkeys(token for phrase in clause.alternatives if len(phrase) > 1 for token in phrase)
    return [token for token in parts if token not in STOP_WORDS["en"]]


@cache
def _stemmers() -> dict[str, tantivy.TextAnalyzer]:
    """By the field of their stems."""
    return {stem_field(language): analyzer(language) for language in STEMMERS}


def _edits(word: str) -> set[str]:
    """All words that are one letter more, less, other or swapped away."""
    splits = [(word[:place], word[place:]) for place in range(len(word) + 1)]
    near = {before + after[1:] for before, after in splits if after}
    near |= {before + after[1] + after[0] + after[2:] for before, after in splits if len(after) > 1}
    for letter in ascii_lowercase:
        near |= {before + letter + after[1:] for before, after in splits if after}
        near |= {before + letter + after for before, after in splits}
    near.discard(word)
    return near


# Exchanges: plain BM25 over any of the words


class RankedExchange(Struct, frozen=True):
    score: float
    ts: int
    number: int


def rank_exchanges(
    schema: tantivy.Schema,
    snapshot: tantivy.Searcher,
    query: Query,
    folders: tuple[int, ...] | None,
    session: int | None,
    limit: int,
) -> list[RankedExchange]:
    """The best exchanges: by score, then the newest, then by their numbers. None does not filter."""
    # The engine makes room for as many as are asked for.
    limit = min(limit, snapshot.num_docs)
    if not query.clauses or limit < 1:
        return []
    question = _exchange_query(schema, query, folders, session)
    enough = limit + 1
    while True:
        hits = snapshot.search(question, enough, count=False).hits
        if len(hits) < enough or hits[-1][0] < hits[limit - 1][0] or enough >= _MAX_TIED_EXCHANGES:
            break
        enough *= _TIED
    addresses = [address for _, address in hits]
    numbers = snapshot.fast_field_values("exchange", addresses)
    times = snapshot.fast_field_values("ts", addresses)
    ranked = [
        RankedExchange(float(score), int(ts or 0), int(number or 0))
        for (score, _), ts, number in zip(hits, times, numbers, strict=True)
    ]
    ranked.sort(key=lambda exchange: (-exchange.score, -exchange.ts, exchange.number))
    return ranked[:limit]


def _exchange_query(
    schema: tantivy.Schema, query: Query, folders: tuple[int, ...] | None, session: int | None
) -> tantivy.Query:
    import tantivy

    words = {token for clause in query.clauses for token in clause.alternatives[0]}
    terms = [(tantivy.Occur.Should, tantivy.Query.term_query(schema, "text", word, "freq")) for word in sorted(words)]
    required = [tantivy.Query.boolean_query(terms)]
    # A phrase in quotes must match as it stands.
    required += [
        tantivy.Query.phrase_query(schema, "text", list(clause.alternatives[0]))
        for clause in query.clauses
        if clause.quoted and len(clause.alternatives[0]) > 1
    ]
    if folders is not None:
        required.append(tantivy.Query.const_score_query(tantivy.Query.term_set_query(schema, "folder", folders), 0.0))
    if session is not None:
        only = tantivy.Query.term_query(schema, "session", session, "basic")
        required.append(tantivy.Query.const_score_query(only, 0.0))
    # Nothing but terms is what tantivy can prune: documents that cannot make the page are skipped.
    if len(required) == 1:
        return required[0]
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, condition) for condition in required])
