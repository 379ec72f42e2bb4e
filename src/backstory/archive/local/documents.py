"""The documents of the search indexes: every searchable event, and every exchange as a whole. Names are numbers."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from msgspec import Struct

from ...model import EventType
from ..query import STEMMERS, IndexText
from ..stopwords import language_of
from .index import TOKENIZER, Kind, stem_field

if TYPE_CHECKING:
    import tantivy

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


# Change the version with the schema, the tokenizer or what is fed: an index of another version is rebuilt, and answers
# meanwhile if it can be read as the new one is (`Kind.readable_from`).
EVENTS = Kind("events", 7, 7, _event_schema, heap_bytes=50_000_000, threads=2)
# Exchanges are an index of their own: BM25 compares a text with the average length of all documents.
# Their folder is named after the turns that they once were.
EXCHANGES = Kind("turns", 6, 6, _exchange_schema, heap_bytes=32_000_000, threads=1)
