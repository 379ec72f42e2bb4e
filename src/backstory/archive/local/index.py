"""The index: a tantivy folder beside the record. It holds no text and can be rebuilt from the record at any time.

`index/current` names the folder in use, so that another one can be built beside it and swapped in with one rename.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from ...config import make_private_folder
from ...model import DEFAULT_TYPES, SEARCHABLE_TYPES
from ..query import MAX_TOKEN_CHARS, index_text

if TYPE_CHECKING:
    import tantivy

__all__ = ["FIELDS", "Document", "Index", "IndexWriter", "TurnDocument", "split_turn_number", "turn_number"]

# Change it with the schema, the tokenizer or what is fed: an index of another version is rebuilt.
INDEX_VERSION = 2
# What is searched by default has a field of its own, so that the common search needs no filter by type: tantivy skips
# documents that cannot make the page only while nothing but terms is asked for (3 times faster at a million events).
FIELDS: dict[str, set[int]] = {
    "text": {kind.code for kind in DEFAULT_TYPES},
    "rest": {kind.code for kind in SEARCHABLE_TYPES if kind not in DEFAULT_TYPES},
}
_POINTER = "current"
_HEAP_BYTES = 100_000_000
_THREADS = 2


def turn_number(session: int, turn: int) -> int:
    """(session, turn) as one term."""
    return session << 20 | turn


def split_turn_number(number: int) -> tuple[int, int]:
    return number >> 20, number & (1 << 20) - 1


class Document(Struct, frozen=True):
    """One event as the index sees it; all names are already numbers."""

    id: int
    text: str
    session: int
    turn: int
    type: int
    project: int
    source: int
    ts: int


class TurnDocument(Struct, frozen=True):
    """A whole turn as the index sees it: found by words spread over its prompt, its answers and its tools."""

    session: int
    turn: int
    change: int
    text: str
    folder: int
    ts: int


class Index:
    """Opens the index for reading and follows every commit and swap made by any process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._seen: tuple[object, ...] = ()
        self._index: tantivy.Index | None = None

    @cached_property
    def analyzer(self) -> tantivy.TextAnalyzer:
        """Splits a question as the index splits texts."""
        return _analyzer()

    def searcher(self) -> tantivy.Searcher | None:
        """A snapshot with every commit up to now; None before the first one."""
        with self._lock:
            folder = self.current()
            if folder is None:
                return None
            try:
                commit = (folder / "meta.json").stat()
            except FileNotFoundError:
                return None
            seen = (folder, commit.st_mtime_ns, commit.st_ino)
            if seen != self._seen:
                if self._index is None or self._seen[:1] != (folder,):
                    self._index = _open(folder)
                self._index.reload()
                self._seen = seen
            assert self._index is not None
            return self._index.searcher()

    def last(self, field: str) -> int:
        """The highest `id` of an event, or `change` of a turn, that was committed; 0 when there is none."""
        import tantivy

        searcher = self.searcher()
        if searcher is None:
            return 0
        having = tantivy.Query.exists_query(field)
        hits = searcher.search(having, 1, count=False, order_by_field=field).hits
        return int(searcher.fast_field_values(field, [hits[0][1]])[0] or 0) if hits else 0

    @property
    def schema(self) -> tantivy.Schema:
        assert self._index is not None
        return self._index.schema

    def current(self) -> Path | None:
        try:
            name = (self.folder / _POINTER).read_text("ascii")
        except (FileNotFoundError, UnicodeDecodeError):
            return None
        return self.folder / name

    @property
    def outdated(self) -> bool:
        """Written by another version of this code, or not there at all."""
        folder = self.current()
        return folder is None or _version_of(folder) != INDEX_VERSION or not (folder / "meta.json").exists()

    def writer(self) -> IndexWriter:
        """For the holder of the writer lock. The index must not be outdated."""
        folder = self.current()
        assert folder is not None
        return IndexWriter(_open(folder))

    def build(self, documents: Iterable[Document], turns: Iterable[TurnDocument]) -> int:
        """A new index from all documents, beside the old one, then swapped in. Gives the number of events."""
        make_private_folder(self.folder)
        number = 1 + max((_number_of(path) for path in self.folder.iterdir() if path.is_dir()), default=0)
        folder = make_private_folder(self.folder / f"v{INDEX_VERSION}-{number}")
        writer = IndexWriter(_create(folder))
        count = writer.add(documents)
        writer.replace_turns(turns)
        writer.commit()
        writer.close()
        pointer = self.folder / f"{_POINTER}.new"
        pointer.write_text(folder.name, "ascii")
        pointer.replace(self.folder / _POINTER)
        for other in self.folder.iterdir():
            if other.is_dir() and other != folder:
                shutil.rmtree(other, ignore_errors=True)
        return count


class IndexWriter:
    """Adds documents. What was added is found after `commit`."""

    def __init__(self, index: tantivy.Index) -> None:
        self._index = index
        self._writer = index.writer(_HEAP_BYTES, _THREADS)

    def delete_above(self, last_id: int) -> None:
        import tantivy

        query = tantivy.Query.range_query(
            self._index.schema, "id", tantivy.FieldType.Unsigned, lower_bound=last_id, include_lower=False
        )
        self._writer.delete_documents_by_query(query)

    def add(self, documents: Iterable[Document]) -> int:
        import tantivy

        count = 0
        for document in documents:
            text, parts = index_text(document.text)
            entry = tantivy.Document()
            field = "text" if document.type in FIELDS["text"] else "rest"
            entry.add_unsigned("id", document.id)
            entry.add_text(field, text)
            if parts:
                entry.add_text(field, parts)
            entry.add_unsigned("session", document.session)
            entry.add_unsigned("turn", turn_number(document.session, document.turn))
            entry.add_unsigned("type", document.type)
            entry.add_unsigned("project", document.project)
            entry.add_unsigned("source", document.source)
            entry.add_integer("ts", document.ts)
            self._writer.add_document(entry)
            count += 1
        return count

    def replace_turns(self, turns: Iterable[TurnDocument]) -> None:
        """Turns grow: each takes the place of what was known of it."""
        import tantivy

        for turn in turns:
            number = turn_number(turn.session, turn.turn)
            text, parts = index_text(turn.text)
            entry = tantivy.Document()
            entry.add_unsigned("whole_turn", number)
            entry.add_unsigned("change", turn.change)
            entry.add_text("talk", text)
            if parts:
                entry.add_text("talk", parts)
            entry.add_unsigned("session", turn.session)
            entry.add_unsigned("project", turn.folder)
            entry.add_integer("ts", turn.ts)
            self._writer.delete_documents_by_term("whole_turn", number)
            self._writer.add_document(entry)

    def commit(self) -> None:
        self._writer.commit()

    def close(self) -> None:
        """Let running merges finish; a merge cut short is only work lost."""
        self._writer.wait_merging_threads()


def _analyzer() -> tantivy.TextAnalyzer:
    import tantivy

    # Tantivy's default drops tokens of 40 and more characters: a git SHA-1 would not be found.
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for step in (
        tantivy.Filter.remove_long(MAX_TOKEN_CHARS),
        tantivy.Filter.lowercase(),
        tantivy.Filter.ascii_fold(),
    ):
        builder = builder.filter(step)
    return builder.build()


def _create(folder: Path) -> tantivy.Index:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("id", fast=True)
    for name in FIELDS:
        builder.add_text_field(name, tokenizer_name="words", index_option="position")
    for name in ("session", "turn", "type", "project", "source"):
        builder.add_unsigned_field(name, indexed=True)
    builder.add_integer_field("ts", fast=True)
    builder.add_text_field("talk", tokenizer_name="words", index_option="position")
    builder.add_unsigned_field("whole_turn", indexed=True, fast=True)
    builder.add_unsigned_field("change", fast=True)
    index = tantivy.Index(builder.build(), str(folder), reuse=False)
    index.register_tokenizer("words", _analyzer())
    return index


def _open(folder: Path) -> tantivy.Index:
    import tantivy

    index = tantivy.Index.open(str(folder))
    index.register_tokenizer("words", _analyzer())
    index.config_reader("manual")
    return index


def _version_of(folder: Path) -> int:
    version = folder.name.removeprefix("v").partition("-")[0]
    return int(version) if version.isdigit() else 0


def _number_of(folder: Path) -> int:
    number = folder.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
