"""The documents of the search indexes: every searchable event, and every exchange as a whole. Names are numbers.

Events are asked for in `retrieval`, with the conditions here; exchanges by plain BM25 over any of the words, here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from ...model import EventType
from ..query import STEMMERS, IndexText, Query
from ..stopwords import language_of
from .index import TOKENIZER, Kind, stem_field

if TYPE_CHECKING:
    import tantivy

# Before this version, which an index may still have while a new one is built, the types that are not searched by
# default had a field of their own, and there were neither stems nor columns for the place of an event.
ONE_FIELD_SINCE = 4
# Before this version, not all that is counted has a column.
COUNTED_SINCE = 7
FORMER_FIELDS = ("text", "rest")
# Output of tools is data and code more than language: its stems would double the index and find nothing better.
_PROSE = frozenset(
    kind.code
    for kind in (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE, EventType.REASONING, EventType.COMPACTION)
)

# A prompt or an answer says what it is about in the beginning; what is pasted into it follows.
_STEMMED_CHARS = 800


_TURN_BITS = 20


def turn_number(session: int, turn: int) -> int:
    """(session, turn), or (session, exchange), as one term."""
    return session << _TURN_BITS | turn


_STEM_FIELDS = {language: stem_field(language) for language in STEMMERS}


class EventDocument(Struct, frozen=True):
    id: int
    text: str
    indexed: IndexText
    session: int
    turn: int
    type: int
    project: int
    source: int
    ts: int
    model: str | None
    failed: bool

    def entry(self) -> tantivy.Document:
        entry = _document()()
        add_unsigned = entry.add_unsigned
        add_unsigned("id", self.id)
        _add_text(entry, self.indexed)
        if self.type in _PROSE:
            entry.add_text(_STEM_FIELDS[language_of(self.text)], self.indexed.spaced[:_STEMMED_CHARS])
        session = self.session
        add_unsigned("session", session)
        add_unsigned("turn", session << _TURN_BITS | self.turn)
        add_unsigned("type", self.type)
        add_unsigned("project", self.project)
        add_unsigned("source", self.source)
        entry.add_integer("ts", self.ts)
        if self.model:
            entry.add_text("model", self.model)
        if self.failed:
            entry.add_unsigned("failed", 1)
        return entry


class ExchangeDocument(Struct, frozen=True):
    """An exchange is found by words spread over the user's text, the answers and the names of the tools."""

    session: int
    number: int
    change: int
    indexed: IndexText
    folder: int
    ts: int

    def entry(self) -> tantivy.Document:
        entry = _document()()
        entry.add_unsigned("exchange", turn_number(self.session, self.number))
        entry.add_unsigned("change", self.change)
        _add_text(entry, self.indexed)
        entry.add_unsigned("session", self.session)
        entry.add_unsigned("folder", self.folder)
        entry.add_integer("ts", self.ts)
        return entry


@cache  # an import that has been done before still takes longer than a field
def _document() -> type[tantivy.Document]:
    import tantivy

    return tantivy.Document


def _add_text(entry: tantivy.Document, text: IndexText) -> None:
    entry.add_text("text", text.spaced)
    if parts := text.parts:
        entry.add_text("text", parts)


def _event_schema(builder: tantivy.SchemaBuilder) -> None:
    builder.add_unsigned_field("id", fast=True)
    # One field for all types: BM25 compares a text with the average length of its field, and a word's rarity is that
    # in its field. Fields by type rank worse (first 55 instead of 63 of 100 known items).
    builder.add_text_field("text", tokenizer_name=TOKENIZER, index_option="position")
    for language in STEMMERS:
        builder.add_text_field(stem_field(language), tokenizer_name=stem_field(language), index_option="basic")
    builder.add_unsigned_field("session", indexed=True)
    for name in ("turn", "type", "project", "source"):
        builder.add_unsigned_field(name, indexed=True, fast=True)
    builder.add_integer_field("ts", fast=True)
    # For counting. A text with a column has to be indexed, too: one term for each model.
    builder.add_text_field("model", tokenizer_name="raw", index_option="basic", fast=True)
    builder.add_unsigned_field("failed", fast=True)


def _exchange_schema(builder: tantivy.SchemaBuilder) -> None:
    builder.add_unsigned_field("exchange", indexed=True, fast=True)
    builder.add_unsigned_field("change", fast=True)
    builder.add_text_field("text", tokenizer_name=TOKENIZER, index_option="position")
    for name in ("session", "folder"):
        builder.add_unsigned_field(name, indexed=True)
    builder.add_integer_field("ts", fast=True)


# Change the version with the schema, the tokenizer or what is fed: an index of another version is rebuilt.
EVENTS = Kind("events", 7, 1, _event_schema, heap_bytes=50_000_000, threads=2)
# Exchanges are an index of their own: BM25 compares a text with the average length of all documents.
# Their folder has the name from when turns were indexed, so that the index of an older version is replaced.
EXCHANGES = Kind("turns", 6, 4, _exchange_schema, heap_bytes=32_000_000, threads=1)


# Conditions


class Filters(Struct, frozen=True, kw_only=True):
    """Numbers, as in the index; None does not filter."""

    types: tuple[int, ...]
    session: int | None = None
    turn: int | None = None
    projects: tuple[int, ...] | None = None
    source: int | None = None
    since: int | None = None
    until: int | None = None

    def queries(self, schema: tantivy.Schema, *, typed: bool) -> Iterator[tantivy.Query]:
        """Queries that all have to match. `typed`: with the condition on types."""
        import tantivy

        numbers = (
            ("type", self.types if typed else None),
            ("project", self.projects),
            ("source", None if self.source is None else (self.source,)),
            ("session", None if self.session is None else (self.session,)),
            ("turn", None if self.turn is None else (self.turn,)),
        )
        for field, values in numbers:
            if values is not None:
                terms = [tantivy.Query.term_query(schema, field, value, "basic") for value in values]
                yield tantivy.Query.boolean_query([(tantivy.Occur.Should, term) for term in terms])
        if self.since is not None or self.until is not None:
            yield tantivy.Query.range_query(
                schema,
                "ts",
                tantivy.FieldType.Integer,
                lower_bound=self.since,
                upper_bound=self.until,
                # tantivy refuses an open bound that is also excluded
                include_upper=self.until is None,
            )


# Exchanges


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
