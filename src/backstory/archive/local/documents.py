"""What is indexed: every searchable event, and every exchange as a whole. Names are already numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from ...model import DEFAULT_TYPES, SEARCHABLE_TYPES
from ..query import index_text
from .index import TOKENIZER, Kind

if TYPE_CHECKING:
    import tantivy

__all__ = [
    "EVENTS",
    "EXCHANGES",
    "FIELDS",
    "EventDocument",
    "ExchangeDocument",
    "split_turn_number",
    "turn_number",
]

# What is searched by default has a field of its own, so that the common search needs no filter by type: tantivy skips
# documents that cannot make the page only while nothing but terms is asked for (3 times faster at a million events).
FIELDS: dict[str, set[int]] = {
    "text": {kind.code for kind in DEFAULT_TYPES},
    "rest": {kind.code for kind in SEARCHABLE_TYPES if kind not in DEFAULT_TYPES},
}


def turn_number(session: int, turn: int) -> int:
    """(session, turn), or (session, exchange), as one term."""
    return session << 20 | turn


def split_turn_number(number: int) -> tuple[int, int]:
    return number >> 20, number & (1 << 20) - 1


class EventDocument(Struct, frozen=True):
    id: int
    text: str
    session: int
    turn: int
    type: int
    project: int
    source: int
    ts: int

    def entry(self) -> tantivy.Document:
        import tantivy

        entry = tantivy.Document()
        entry.add_unsigned("id", self.id)
        _add_text(entry, "text" if self.type in FIELDS["text"] else "rest", self.text)
        entry.add_unsigned("session", self.session)
        entry.add_unsigned("turn", turn_number(self.session, self.turn))
        entry.add_unsigned("type", self.type)
        entry.add_unsigned("project", self.project)
        entry.add_unsigned("source", self.source)
        entry.add_integer("ts", self.ts)
        return entry


class ExchangeDocument(Struct, frozen=True):
    """An exchange is found by words spread over the user's text, the answers and the names of the tools."""

    session: int
    number: int
    change: int
    text: str
    folder: int
    ts: int

    def entry(self) -> tantivy.Document:
        import tantivy

        entry = tantivy.Document()
        entry.add_unsigned("exchange", turn_number(self.session, self.number))
        entry.add_unsigned("change", self.change)
        _add_text(entry, "text", self.text)
        entry.add_unsigned("session", self.session)
        entry.add_unsigned("folder", self.folder)
        entry.add_integer("ts", self.ts)
        return entry


def _add_text(entry: tantivy.Document, field: str, text: str) -> None:
    spaced, parts = index_text(text)
    entry.add_text(field, spaced)
    if parts:
        entry.add_text(field, parts)


def _event_schema(builder: tantivy.SchemaBuilder) -> None:
    builder.add_unsigned_field("id", fast=True)
    for name in FIELDS:
        builder.add_text_field(name, tokenizer_name=TOKENIZER, index_option="position")
    for name in ("session", "turn", "type", "project", "source"):
        builder.add_unsigned_field(name, indexed=True)
    builder.add_integer_field("ts", fast=True)


def _exchange_schema(builder: tantivy.SchemaBuilder) -> None:
    builder.add_unsigned_field("exchange", indexed=True, fast=True)
    builder.add_unsigned_field("change", fast=True)
    builder.add_text_field("text", tokenizer_name=TOKENIZER, index_option="position")
    for name in ("session", "folder"):
        builder.add_unsigned_field(name, indexed=True)
    builder.add_integer_field("ts", fast=True)


# Change the version with the schema, the tokenizer or what is fed: an index of another version is rebuilt.
EVENTS = Kind("events", 2, 1, _event_schema, heap_bytes=100_000_000, threads=2)
# Exchanges are an index of their own: BM25 compares a text with the average length of all documents.
# Their folder has the name from when turns were indexed, so that the index of an older version is replaced.
EXCHANGES = Kind("turns", 4, 4, _exchange_schema, heap_bytes=32_000_000, threads=1)
