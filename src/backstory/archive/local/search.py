"""Asking the index: all terms first, then any of them, ranked exactly and scored from 0 to 1."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ..base import DeadlineExceeded
from ..query import STOP_WORDS, Clause, Query
from .index import FIELDS

if TYPE_CHECKING:
    import tantivy

_K1 = 1.2  # tantivy's BM25
# A part of a path or an identifier says less than the whole.
_PART_BOOST = 0.5
# Ties at the end of a page are resolved by looking so many times further, up to this many documents with one score.
_TIED = 8
_MAX_TIED = 1_000_000
_MAX_TIED_EXCHANGES = 20_000

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
    id: int
    score: float
    ts: int


def search(
    schema: tantivy.Schema,
    snapshot: tantivy.Searcher,
    query: Query,
    filters: Filters,
    limit: int,
    deadline: float | None,
    tie_break: Callable[[list[int]], dict[int, str]],
) -> tuple[list[Match], bool]:
    """The best matches and whether there are more.

    Order: score, then newest, then `tie_break` (the event ids of documents) ascending. With fewer than `limit`
    documents that have every term, those that have some of them follow.
    """
    if not query.clauses:
        return [], False
    ask = _Question(schema, snapshot, query, filters, deadline)
    everything = ask.all_terms()
    hits, bound = ask.top(everything, limit), everything.bound
    if len(hits) <= limit and ask.can_relax:
        # These are all the documents with every term. They come first: that is worth as much as the terms themselves.
        complete = {id for _, id, _ in hits}
        anything = ask.any_terms()
        others = (hit for hit in ask.top(anything, limit) if hit[1] not in complete)
        hits = [(score + anything.bound, id, ts) for score, id, ts in hits] + list(others)
        bound = max(bound, anything.bound) + anything.bound
    matches = _order([Match(id, score, ts) for score, id, ts in hits], limit, tie_break)
    scored = [Match(match.id, min(max(match.score / bound, 1e-9), 1.0), match.ts) for match in matches]
    return scored, len(hits) > limit


class _Wanted(NamedTuple):
    query: tantivy.Query
    bound: float
    """The best score it can give."""
    only_terms: bool
    """Nothing but terms, of which any will do: fewer hits are found faster, what cannot make the page is skipped."""


class _Question:
    """A query put to one snapshot of the index."""

    def __init__(
        self,
        schema: tantivy.Schema,
        snapshot: tantivy.Searcher,
        query: Query,
        filters: Filters,
        deadline: float | None,
    ) -> None:
        self._schema = schema
        self._snapshot = snapshot
        self._clauses = query.clauses
        self._deadline = deadline
        self._fields = [name for name, types in FIELDS.items() if types & set(filters.types)]
        self._restrictions = list(self._restrict(filters))

    @property
    def can_relax(self) -> bool:
        """Whether asking for any of the terms is another question than asking for all of them."""
        return len(self._clauses) > 1 or bool(_parts(self._clauses[0]))

    def all_terms(self) -> _Wanted:
        """Every clause must match."""
        import tantivy

        bound = (_K1 + 1) * sum(max(map(self._idf, clause.alternatives)) for clause in self._clauses)
        queries = [self._clause(clause) for clause in self._clauses]
        if len(queries) == 1 and not self._restrictions:
            return _Wanted(queries[0], bound, self._is_term(self._clauses[0]))
        required = [(tantivy.Occur.Must, query) for query in queries]
        return _Wanted(tantivy.Query.boolean_query([*required, *self._restrictions]), bound, only_terms=False)

    def any_terms(self) -> _Wanted:
        """Any single word will do, also the words of a path or an identifier; quoted phrases stay required.

        Only plain terms and no filter: that is what tantivy can prune. Phrases have had their chance with all terms.
        """
        import tantivy

        weights: dict[str, float] = {}
        required = []
        for clause in self._clauses:
            if clause.quoted:
                required.append((tantivy.Occur.Must, self._clause(clause)))
            for token in clause.alternatives[0] if len(clause.alternatives[0]) == 1 and not clause.quoted else ():
                weights[token] = 1.0
            for token in _parts(clause):
                weights.setdefault(token, _PART_BOOST)
        bound = (_K1 + 1) * sum(weight * self._idf((token,)) for token, weight in weights.items())
        bound += (_K1 + 1) * sum(self._idf(clause.alternatives[0]) for clause in self._clauses if clause.quoted)
        wanted = [(tantivy.Occur.Should, self._weighted(token, weight)) for token, weight in weights.items()]
        if not required and not self._restrictions:
            return _Wanted(tantivy.Query.boolean_query(wanted), bound, only_terms=len(self._fields) == 1)
        if not required:
            required = [(tantivy.Occur.Must, tantivy.Query.boolean_query(wanted))]
            wanted = []
        return _Wanted(tantivy.Query.boolean_query([*required, *wanted, *self._restrictions]), bound, only_terms=False)

    def top(self, wanted: _Wanted, limit: int) -> list[tuple[float, int, int]]:
        """(score, id, time) of at least the `limit` best and one more, and of all that share the score at the cut."""
        enough = limit + 1 if wanted.only_terms else (limit + 1) * _TIED
        while True:
            hits = self._hits(wanted.query, enough)
            if len(hits) < enough or hits[-1][0] < hits[limit - 1][0] or enough >= _MAX_TIED:
                break
            enough *= _TIED
        addresses = [address for _, address in hits]
        ids = self._snapshot.fast_field_values("id", addresses)
        times = self._snapshot.fast_field_values("ts", addresses)
        return [(float(score), int(id or 0), int(ts or 0)) for (score, _), id, ts in zip(hits, ids, times, strict=True)]

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
        return max(sum(self._token_idf(field, token) for token in phrase) for field in self._fields)

    def _token_idf(self, field: str, token: str) -> float:
        total, having = self._snapshot.num_docs, self._snapshot.doc_freq(field, token)
        return math.log1p((max(total - having, 0) + 0.5) / (having + 0.5))

    def _is_term(self, clause: Clause) -> bool:
        return len(self._fields) == 1 and list(map(len, clause.alternatives)) == [1]

    def _clause(self, clause: Clause) -> tantivy.Query:
        import tantivy

        queries = [self._phrase(field, phrase) for phrase in clause.alternatives for field in self._fields]
        return queries[0] if len(queries) == 1 else tantivy.Query.disjunction_max_query(queries)

    def _weighted(self, token: str, weight: float) -> tantivy.Query:
        import tantivy

        query = self._clause(Clause(((token,),)))
        return query if weight == 1.0 else tantivy.Query.boost_query(query, weight)

    def _phrase(self, field: str, phrase: Sequence[str]) -> tantivy.Query:
        import tantivy

        if len(phrase) == 1:
            return tantivy.Query.term_query(self._schema, field, phrase[0], "freq")
        return tantivy.Query.phrase_query(self._schema, field, list(phrase))

    def _restrict(self, filters: Filters) -> Iterator[tuple[tantivy.Occur, tantivy.Query]]:
        """The filters as conditions that score nothing."""
        import tantivy

        asked = set(filters.types)
        everything = set().union(*(FIELDS[name] for name in self._fields))
        numbers = (
            ("type", None if asked == everything else filters.types),
            ("project", filters.projects),
            ("source", None if filters.source is None else (filters.source,)),
            ("session", None if filters.session is None else (filters.session,)),
            ("turn", None if filters.turn is None else (filters.turn,)),
        )
        for field, values in numbers:
            if values is not None:
                terms = [tantivy.Query.term_query(self._schema, field, value, "basic") for value in values]
                either = tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
                yield tantivy.Occur.Must, tantivy.Query.const_score_query(either, 0.0)
        if filters.since is not None or filters.until is not None:
            window = tantivy.Query.range_query(
                self._schema,
                "ts",
                tantivy.FieldType.Integer,
                lower_bound=filters.since,
                upper_bound=filters.until,
                # tantivy refuses an open bound that is also excluded
                include_upper=filters.until is None,
            )
            yield tantivy.Occur.Must, tantivy.Query.const_score_query(window, 0.0)


def _parts(clause: Clause) -> list[str]:
    """The single tokens of a path or identifier, where they say anything."""
    if clause.quoted:
        return []
    parts = dict.fromkeys(token for phrase in clause.alternatives if len(phrase) > 1 for token in phrase)
    return [token for token in parts if token not in STOP_WORDS]


def _order(matches: list[Match], limit: int, tie_break: Callable[[list[int]], dict[int, str]]) -> list[Match]:
    matches.sort(key=lambda match: (-match.score, -match.ts))
    if len(matches) > limit:
        # Only what may still make the page needs its place among equals decided.
        last = matches[limit - 1]
        matches = [m for m in matches if (m.score, m.ts) >= (last.score, last.ts)]
    places = [(match.score, match.ts) for match in matches]
    if len(set(places)) < len(places):
        ids = tie_break([match.id for match in matches])
        matches.sort(key=lambda match: (-match.score, -match.ts, ids.get(match.id, "")))
    return matches[:limit]


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
    wanted = limit + 1
    while True:
        hits = snapshot.search(question, wanted, count=False).hits
        if len(hits) < wanted or hits[-1][0] < hits[limit - 1][0] or wanted >= _MAX_TIED_EXCHANGES:
            break
        wanted *= 8
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
    # A phrase in quotes is wanted as it stands.
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
