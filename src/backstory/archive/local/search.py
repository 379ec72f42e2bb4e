"""Asking the index: all terms first, then any of them, ranked exactly and scored from 0 to 1."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING

from msgspec import Struct

from ..base import DeadlineExceeded
from ..query import STOP_WORDS, Clause, Query

if TYPE_CHECKING:
    import tantivy

__all__ = ["Filters", "Match", "search"]

_K1 = 1.2  # tantivy's BM25
# A part of a path or an identifier says less than the whole.
_PART_BOOST = 0.5
# Ties at the end of a page are resolved by looking further; this many documents with one and the same score is enough.
_MAX_TIED = 20_000

_threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="search")


class Filters(Struct, frozen=True, kw_only=True):
    """Numbers, as in the index; None does not filter."""

    types: tuple[int, ...] | None = None
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


class _Searcher(Struct, frozen=True):
    """A snapshot of the index and what is needed to ask it."""

    schema: tantivy.Schema
    snapshot: tantivy.Searcher

    def idf(self, phrase: Sequence[str]) -> float:
        total = self.snapshot.num_docs
        frequencies = (self.snapshot.doc_freq("text", token) for token in phrase)
        return sum(math.log1p((max(total - n, 0) + 0.5) / (n + 0.5)) for n in frequencies)

    def phrase(self, phrase: Sequence[str]) -> tantivy.Query:
        import tantivy

        if len(phrase) == 1:
            return tantivy.Query.term_query(self.schema, "text", phrase[0])
        return tantivy.Query.phrase_query(self.schema, "text", list(phrase))

    def clause(self, clause: Clause) -> tantivy.Query:
        import tantivy

        queries = [self.phrase(alternative) for alternative in clause.alternatives]
        return queries[0] if len(queries) == 1 else tantivy.Query.disjunction_max_query(queries)


def search(
    schema: tantivy.Schema,
    snapshot: tantivy.Searcher,
    query: Query,
    filters: Filters,
    limit: int,
    deadline: float | None,
    tie_break: Callable[[list[int]], dict[int, bytes]],
) -> tuple[list[Match], bool]:
    """The best matches and whether there are more.

    Order: score, then newest, then `tie_break` (the event ids of documents) ascending. With fewer than `limit`
    documents that have every term, those that have some of them follow.
    """
    import tantivy

    searcher = _Searcher(schema, snapshot)
    if not query.clauses:
        return [], False
    restrictions = [
        (tantivy.Occur.Must, tantivy.Query.const_score_query(q, 0.0)) for q in _restrictions(schema, filters)
    ]
    for plan in (_all_terms, _any_terms):
        scored, bound = plan(searcher, query)
        ranked = tantivy.Query.boolean_query([(tantivy.Occur.Must, scored), *restrictions]) if restrictions else scored
        hits = _top(snapshot, ranked, limit, deadline)
        if len(hits) > limit or (len(query.clauses) == 1 and not _has_parts(query)):
            break
    matches = [Match(id, min(max(score / bound, 1e-9), 1.0), ts) for score, id, ts in hits]
    return _order(matches, limit, tie_break), len(matches) > limit


def _all_terms(searcher: _Searcher, query: Query) -> tuple[tantivy.Query, float]:
    import tantivy

    bound = (_K1 + 1) * sum(max(map(searcher.idf, clause.alternatives)) for clause in query.clauses)
    queries = [searcher.clause(clause) for clause in query.clauses]
    return tantivy.Query.boolean_query([(tantivy.Occur.Must, q) for q in queries]), bound


def _any_terms(searcher: _Searcher, query: Query) -> tuple[tantivy.Query, float]:
    """Any clause, any part of one; quoted phrases stay required. Having every term is worth as much as the terms."""
    import tantivy

    everything, bound = _all_terms(searcher, query)
    choices = [(tantivy.Occur.Should, tantivy.Query.const_score_query(everything, bound))]
    bound *= 2
    for clause in query.clauses:
        occur = tantivy.Occur.Must if clause.quoted else tantivy.Occur.Should
        choices.append((occur, searcher.clause(clause)))
        for part in _parts(clause):
            choices.append((tantivy.Occur.Should, tantivy.Query.boost_query(searcher.phrase((part,)), _PART_BOOST)))
            bound += (_K1 + 1) * _PART_BOOST * searcher.idf((part,))
    return tantivy.Query.boolean_query(choices), bound


def _parts(clause: Clause) -> list[str]:
    """The single tokens of a path or identifier, where they say anything."""
    if clause.quoted:
        return []
    parts = dict.fromkeys(token for phrase in clause.alternatives if len(phrase) > 1 for token in phrase)
    return [token for token in parts if token not in STOP_WORDS]


def _has_parts(query: Query) -> bool:
    return any(_parts(clause) for clause in query.clauses)


def _restrictions(schema: tantivy.Schema, filters: Filters) -> list[tantivy.Query]:
    import tantivy

    found = []
    for field, values in (
        ("type", filters.types),
        ("project", filters.projects),
        ("source", None if filters.source is None else (filters.source,)),
        ("session", None if filters.session is None else (filters.session,)),
        ("turn", None if filters.turn is None else (filters.turn,)),
    ):
        if values is not None:
            terms = [tantivy.Query.term_query(schema, field, value, "basic") for value in values]
            found.append(terms[0] if len(terms) == 1 else _either(terms))
    if filters.since is not None or filters.until is not None:
        found.append(
            tantivy.Query.range_query(
                schema,
                "ts",
                tantivy.FieldType.Integer,
                lower_bound=filters.since,
                upper_bound=filters.until,
                include_upper=False,
            )
        )
    return found


def _either(queries: list[tantivy.Query]) -> tantivy.Query:
    import tantivy

    return tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])


def _top(
    snapshot: tantivy.Searcher, query: tantivy.Query, limit: int, deadline: float | None
) -> list[tuple[float, int, int]]:
    """(score, id, time) of at least the `limit` best and one more, and of all that share the score at the cut."""
    wanted = limit + 1
    while True:
        hits = _ask(snapshot, query, wanted, deadline)
        if len(hits) < wanted or hits[-1][0] < hits[limit - 1][0] or wanted >= _MAX_TIED:
            break
        wanted *= 8
    addresses = [address for _, address in hits]
    ids = snapshot.fast_field_values("id", addresses)
    times = snapshot.fast_field_values("ts", addresses)
    return [(float(score), int(id or 0), int(ts or 0)) for (score, _), id, ts in zip(hits, ids, times, strict=True)]


def _ask(
    snapshot: tantivy.Searcher, query: tantivy.Query, limit: int, deadline: float | None
) -> list[tuple[float, tantivy.DocAddress]]:
    if deadline is None:
        return snapshot.search(query, limit, count=False).hits
    answer = _threads.submit(snapshot.search, query, limit, count=False)
    try:
        return answer.result(timeout=max(deadline - time.monotonic(), 0)).hits
    except FutureTimeout:
        raise DeadlineExceeded("the search took too long") from None


def _order(matches: list[Match], limit: int, tie_break: Callable[[list[int]], dict[int, bytes]]) -> list[Match]:
    matches.sort(key=lambda match: (-match.score, -match.ts))
    if len(matches) > limit:
        # Only what may still make the page needs its place among equals decided.
        last = matches[limit - 1]
        matches = [m for m in matches if (m.score, m.ts) >= (last.score, last.ts)]
    ids = tie_break([match.id for match in matches])
    matches.sort(key=lambda match: (-match.score, -match.ts, ids.get(match.id, b"")))
    return matches[:limit]
