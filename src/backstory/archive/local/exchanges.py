"""Asking the index of exchanges: plain BM25 over any of the words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ..query import Query

if TYPE_CHECKING:
    import tantivy

# Ties at the end of a page are resolved by looking so many times further, up to this many documents with one score.
_TIED = 8
_MAX_TIED = 20_000


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
        if len(hits) < enough or hits[-1][0] < hits[limit - 1][0] or enough >= _MAX_TIED:
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
