"""The search indexes: tantivy folders beside the record. They hold no text and can be rebuilt from the record.

`current` names the folder in use, so that another one can be built beside it and swapped in with one rename.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ...config import make_private_folder
from ...sqlite import FULL_DISK
from ..base import ArchiveBusy, ArchiveError
from ..query import STEMMERS, analyzer

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    import tantivy

TOKENIZER = "words"
_POINTER = "current"
_LOCK_SECONDS = 10.0
# Tantivy queues up to ten thousand documents, of any size. This bounds the memory that they take.
_MAX_QUEUED_CHARS = 16 << 20
_LOCK_POLL_SECONDS = 0.05


class IndexDamaged(ArchiveError):
    """The index must be rebuilt, which loses nothing."""


@contextmanager
def explained() -> Iterator[None]:
    """Around calls of tantivy: turns its errors into messages that name the cure."""
    try:
        yield
    except BaseException as error:
        # A panic over broken data is no Exception.
        if not isinstance(error, ValueError) and type(error).__name__ != "PanicException":
            raise
        if "No space left" in str(error):
            raise ArchiveError(FULL_DISK) from error
        reason = " ".join(str(error).split())[:120]
        # A thread of tantivy that cannot write takes the cause with it.
        is_cut_off = "writer was killed" in reason
        problem = "cannot be written: make room if the disk is full, then" if is_cut_off else "is damaged:"
        raise IndexDamaged(
            f"the search index {problem} run backstory reindex, which loses nothing ({reason})"
        ) from error


class Kind(Struct, frozen=True):
    """The definition of an index."""

    name: str
    version: int
    readable_from: int
    """The oldest version that can still be asked, until the new one is built: it has all the fields."""
    build_schema: Callable[[tantivy.SchemaBuilder], None]
    heap_bytes: int
    """Of each thread of a writer."""
    threads: int
    """At most: a core is left to the process that feeds them."""


class _Place(NamedTuple):
    """The folder of an index, its version, and the file that every commit replaces: searches ask for its time, so its
    name is made once."""

    folder: Path
    version: int
    meta: str


class Index:
    """Opens an index for reading and follows every commit and swap made by any process."""

    def __init__(self, folder: Path, kind: Kind) -> None:
        self._folder = folder / kind.name
        self._pointer_file = os.fspath(self._folder / _POINTER)
        self._kind = kind
        self._lock = threading.Lock()
        self._seen: tuple[_Place, int, int] | None = None
        self._index: tantivy.Index | None = None
        self._searcher: tantivy.Searcher | None = None
        self._links: TemporaryDirectory[str] | None = None
        self._pointer: tuple[tuple[int, int], _Place] | None = None

    @cached_property
    def analyzer(self) -> tantivy.TextAnalyzer:
        """Splits a query as the index splits texts."""
        return analyzer()

    @property
    def version(self) -> int:
        """The version of the index that the last searcher was made from."""
        return self._kind.version if self._seen is None else self._seen[0].version

    def searcher(self) -> tantivy.Searcher | None:
        """A snapshot with every commit up to now, the same one until the next commit; None before the first that can be
        read."""
        with self._lock:
            place = self._current()
            while True:
                try:
                    return self._snapshot(place)
                except (FileNotFoundError, IndexDamaged) as error:
                    # Another one may have been swapped in, and this one removed, just now.
                    before, place = place, self._current()
                    if place != before:
                        continue
                    if isinstance(error, FileNotFoundError):
                        return None
                    raise

    def _snapshot(self, place: _Place | None) -> tantivy.Searcher | None:
        if place is None or not self._kind.readable_from <= place.version <= self._kind.version:
            return None
        commit = os.stat(place.meta)  # noqa: PTH116 - called in every search
        seen = (place, commit.st_mtime_ns, commit.st_ino)
        if seen != self._seen:
            with explained():
                if self._index is None or self._links is not None or self._seen is None or self._seen[0] != place:
                    self._index = self._open(place.folder)
                self._index.reload()
                self._searcher = self._index.searcher()
            self._seen = seen
        return self._searcher

    def _open(self, folder: Path) -> tantivy.Index:
        self._links = None
        if os.access(folder, os.W_OK):
            return _open(folder)
        # Also to read, tantivy makes a lock file beside what it reads: where it may not, links stand in.
        from tempfile import TemporaryDirectory

        self._links = TemporaryDirectory(prefix="backstory-")
        for path in folder.iterdir():
            if path.suffix != ".lock":
                (Path(self._links.name) / path.name).symlink_to(path)
        return _open(Path(self._links.name))

    @property
    def schema(self) -> tantivy.Schema:
        """Of the index that the last searcher was made from."""
        assert self._index is not None
        return self._index.schema

    def highest(self, field: str, likely: int = 0) -> int:
        """The highest value of a field that was committed; 0 when there is none. `likely` is what it usually is."""
        import tantivy

        searcher = self.searcher()
        if searcher is None:
            return 0
        # Above a value are few documents, and they are found at once.
        above = tantivy.Query.range_query(self.schema, field, tantivy.FieldType.Unsigned, lower_bound=likely)
        for query in (above, tantivy.Query.all_query()):
            hits = searcher.search(query, 1, count=False, order_by_field=field).hits
            if hits:
                return int(searcher.fast_field_values(field, [hits[0][1]])[0] or 0)
        return 0

    @property
    def outdated(self) -> bool:
        """Written by another version of this code, or not there at all."""
        place = self._current()
        if place is None or place.version != self._kind.version:
            return True
        return not os.access(place.meta, os.F_OK)

    @property
    def damaged(self) -> bool:
        try:
            self.searcher()
        except IndexDamaged:
            return True
        return False

    def writer(self) -> IndexWriter:
        """For the holder of the writer lock. The index must not be outdated."""
        place = self._current()
        assert place is not None
        patience = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                return IndexWriter(_open(place.folder), self._kind)
            except ValueError as error:
                if "LockBusy" not in str(error):
                    raise
                if time.monotonic() > patience:
                    raise ArchiveBusy("another Backstory process is writing the search index") from None
                # A process that worked for a writer that was killed is about to notice.
                time.sleep(_LOCK_POLL_SECONDS)

    def build(self, feed: Callable[[IndexWriter], int]) -> int:
        """A new index beside the old one, swapped in when it is complete. Gives what `feed` gives."""
        import shutil

        import tantivy

        make_private_folder(self._folder)
        others = [path for path in self._folder.iterdir() if path.is_dir()]
        number = 1 + max(map(_number_of, others), default=0)
        folder = make_private_folder(self._folder / f"v{self._kind.version}-{number}")
        schema = tantivy.SchemaBuilder()
        self._kind.build_schema(schema)
        tantivy.Index(schema.build(), str(folder), reuse=False)
        writer = IndexWriter(_open(folder), self._kind)
        result = feed(writer)
        writer.commit()
        writer.close()
        pointer = self._folder / f"{_POINTER}.new"
        pointer.write_text(folder.name, "ascii")
        pointer.replace(self._folder / _POINTER)
        for other in others:
            shutil.rmtree(other, ignore_errors=True)
        return result

    def _current(self) -> _Place | None:
        """The folder in use. A swap makes a new pointer, so an unchanged one is not read again."""
        try:
            stat = os.stat(self._pointer_file)  # noqa: PTH116 - called several times in every search
            version = (stat.st_mtime_ns, stat.st_ino)
            if self._pointer is None or self._pointer[0] != version:
                folder = self._folder / Path(self._pointer_file).read_text("ascii")
                self._pointer = (version, _Place(folder, _version_of(folder), os.fspath(folder / "meta.json")))
            return self._pointer[1]
        except (FileNotFoundError, UnicodeDecodeError):
            return None


class IndexWriter:
    """Adds and removes documents. What was added is found after `commit`."""

    def __init__(self, index: tantivy.Index, kind: Kind) -> None:
        self._schema = index.schema
        threads = max(1, min(kind.threads, (os.cpu_count() or 1) - 1))
        self._writer = index.writer(threads * kind.heap_bytes, threads)
        # A writer that was killed before its commit left files behind, and this one is about to use their names again.
        with explained():
            self._writer.garbage_collect_files()
        self._queued_chars = 0

    def add(self, entry: tantivy.Document, chars: int) -> None:
        """Add a document; `chars` is about the length of its texts."""
        try:
            self._writer.add_document(entry)
        except ValueError:
            with explained():
                raise
        self._queued_chars += chars

    @property
    def is_full(self) -> bool:
        """True if so much was added since the last commit that there should be one."""
        return self._queued_chars > _MAX_QUEUED_CHARS

    def delete(self, field: str, values: Sequence[int]) -> None:
        import tantivy

        # By term it would look for signed numbers, and find none.
        self._writer.delete_documents_by_query(tantivy.Query.term_set_query(self._schema, field, values))

    def delete_within(self, group: str, members: Mapping[int, Sequence[int]], field: str) -> None:
        """Delete documents by a field that is not indexed, in groups that are: few documents are looked at."""
        import tantivy

        queries = []
        for number, values in members.items():
            either = [
                tantivy.Query.range_query(
                    self._schema, field, tantivy.FieldType.Unsigned, lower_bound=value, upper_bound=value
                )
                for value in values
            ]
            within = tantivy.Query.term_query(self._schema, group, number, "basic")
            one_of = tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in either])
            queries.append(tantivy.Query.boolean_query([(tantivy.Occur.Must, within), (tantivy.Occur.Must, one_of)]))
        self._writer.delete_documents_by_query(
            tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in queries])
        )

    def delete_above(self, field: str, value: int) -> None:
        import tantivy

        above = tantivy.Query.range_query(
            self._schema, field, tantivy.FieldType.Unsigned, lower_bound=value, include_lower=False
        )
        self._writer.delete_documents_by_query(above)

    def commit(self) -> None:
        with explained():
            self._writer.commit()
        self._queued_chars = 0

    def rollback(self) -> None:
        """Take back what was added and removed since the last commit."""
        self._queued_chars = 0
        with explained():
            self._writer.rollback()

    def close(self) -> None:
        """Let running merges finish; a merge cut short is only work lost."""
        with explained():
            self._writer.wait_merging_threads()


def stem_field(language: str) -> str:
    """The field, and the tokenizer, of the stems of a language."""
    return f"stem_{language}"


def _open(folder: Path) -> tantivy.Index:
    import tantivy

    index = tantivy.Index.open(str(folder))
    index.register_tokenizer(TOKENIZER, analyzer())
    for language in STEMMERS:
        index.register_tokenizer(stem_field(language), analyzer(language))
    index.config_reader("manual")
    return index


def _version_of(folder: Path) -> int:
    version = folder.name.removeprefix("v").partition("-")[0]
    return int(version) if version.isdigit() else 0


def _number_of(folder: Path) -> int:
    number = folder.name.rpartition("-")[2]
    return int(number) if number.isdigit() else 0
