"""One pass over one changed transcript: its records, its items, and the row that says how far it was read.

JSONL is read while it is being written: whole lines only, torn tails wait, a broken line costs only itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, BinaryIO

import msgspec

from ..archive.base import FileRow
from ..model import digest
from ..sources.base import About, Event, Item, Lookup, Parser, Stored, Usage
from ..sources.decoding import UNDECODABLE, decode_fast, decode_prefix
from .families import Standing
from .scan import MISREAD, Changed, in_utf8, open_transcript
from .unknown import Kinds, PlainRecords
from .walk import stored_path

_ITEMS_PER_STEP = 1_000
# Rows may be committed a moment after the time that they bear.
_OVERLAP_MS = 2_000
_MARKS = "records"
_MARK_CHARS = 12
_DIGEST_BYTES = 4_096


class Reading:
    """Gives the items in steps. After each step `checkpoint()` is the file's row that covers exactly these items."""

    def __init__(self, change: Changed, lookup: Lookup, plain: PlainRecords) -> None:
        self.change = change
        self.errors = 0
        self.from_start = True
        """The first step begins with the first record of the file."""
        self.known_until = 0
        """The offset up to which the file was read before, if it is read from its start once more."""
        before, _ = Standing.split(change.before.state if change.before else None)
        self.had = before.had if before else None
        """As in `Standing`; None when the file has it all again."""
        self._lookup = lookup
        self._unknown = Kinds(change.source.name, plain)
        self._parser: Parser | None = None
        self._incremental = False
        self.interrupted = False
        """Reading stopped for a reason that may pass: what is left is read when it has."""
        self._marks: list[str] = []
        """A short digest of each record of a transcript that is rewritten."""
        self._compressed = change.path.suffix == ".zst"
        self._is_utf8 = stored_path(change.path) == str(change.path)
        self.standing = Standing.of(change.transcript)
        """Kept with the state of the parser."""
        self._row = FileRow(
            path=stored_path(change.path),
            source=change.source.name,
            session=change.transcript.session,
            inode=change.inode,
            size=change.size,
            mtime_ns=change.mtime_ns,
        )

    @property
    def offset(self) -> int:
        return self._row.offset

    def steps(self) -> Iterator[list[Item]]:
        """Never raises for what the file holds: problems are counted and the rest goes on."""
        try:
            records = self._records()
            self._incremental = records is None
            for items in self._appended_lines() if records is None else self._all_records(records):
                yield items if self._is_utf8 else [in_utf8(item) for item in items]
        except (OSError, EOFError, *MISREAD) as error:
            self.interrupted = isinstance(error, OSError)
            self._problem(f"cannot be read: {error}")

    def _records(self) -> Iterable[Any] | None:
        """The records of a transcript that is rewritten, or those of a session in a store that changed since it was
        read to its end; None for JSONL."""
        change, before = self.change, self.change.before
        if change.store is None:
            return change.source.records(change.path)
        since = None
        # A version that went back is that of a backup.
        if before is not None and 0 <= before.size <= change.size and before.state is not None:
            self.from_start = False
            updated = before.mtime_ns // 1_000_000 - _OVERLAP_MS
            since = Stored(session=change.transcript.session, updated=updated, version=before.size)
            standing, kept = Standing.split(before.state)
            self.standing = standing or self.standing
            self._unknown.restore(kept)
            self._row.errors, self._row.last_error = before.errors, before.last_error
        return change.source.changes(change.store, change.transcript.session, since)

    def checkpoint(self, *, finished: bool = False) -> FileRow:
        """The row of the file. Until reading is finished its size is -1: after a crash the next sync reads on."""
        row = msgspec.structs.replace(self._row)
        if self._parser is not None:
            state = self._parser.state() if self._incremental else None
            row.state = self._unknown.keep(self.standing.join(state))
            if self._marks and not self.errors:
                row.state[_MARKS] = "".join(self._marks)
        if not self._compressed and row.offset:
            try:
                with open_transcript(self.change.path) as stream:
                    row.prefix = _prefix_digest(stream, row.offset)
            except OSError:  # gone while it was read: if it comes back, it is read from its start
                row.offset, row.state = 0, None
        if not finished or self.interrupted or self.standing.again:
            row.size = -1
        return row if self._is_utf8 else in_utf8(row)

    def _appended_lines(self) -> Iterator[list[Item]]:
        change, row = self.change, self._row
        parser: Parser | None = None
        with open_transcript(change.path) as stream:
            # A compressed stream cannot be entered in the middle: it is read again, and what is known is passed over.
            if not self._compressed:
                before = change.before
                if before is not None and before.offset:
                    if _is_append(before, stream, change.size):
                        parser = self._go_on(before)
                    elif before.prefix and (self.had is None or before.offset > self.had[0]):
                        self.had = (before.offset, before.prefix)  # an upgrade takes the prefix away
                    if self.had is not None and self.had[0] <= change.size:
                        offset, prefix = self.had
                        self.had = None if _prefix_digest(stream, offset) == prefix else self.had
                stream.seek(row.offset)
            if parser is None:
                parser = change.source.parser(change.transcript, None, self._lookup)
                self.known_until = change.before.offset if change.before else 0
            self._parser = parser
            step: list[Item] = []
            skips = change.source.skips
            for offset, line in lines(stream, row.offset):
                if offset - row.offset > len(line) + 1:  # what is inside of it must not be taken for records
                    self._problem(f"a line is too long: more than {MAX_LINE_BYTES >> 20} MB")
                elif not skips(line):
                    try:
                        step += self._parse(parser, decode_fast(line))
                    except UNDECODABLE:
                        for record in self._decode(line):
                            step += self._parse(parser, record)
                row.offset = offset
                if len(step) >= _ITEMS_PER_STEP or offset == self.known_until:
                    yield step
                    step = []
            step += parser.finish()
            yield step

    def _go_on(self, before: FileRow) -> Parser | None:
        """The parser as it was left, or None if it does not take its old state: one of another version starts over."""
        standing, state = Standing.split(before.state)
        self._unknown.restore(state)
        try:
            parser = self.change.source.parser(self.change.transcript, state, self._lookup)
        except ValueError:
            return None
        self.standing, self.from_start = standing or self.standing, False
        self._row.offset, self._row.errors, self._row.last_error = before.offset, before.errors, before.last_error
        return parser

    def _all_records(self, records: Iterable[Any]) -> Iterator[list[Item]]:
        """The items of all records. Of a record that is as it was when it was last read, the events are left out, but
        for the prompt, which shows the turn that the next ones belong to."""
        parser = self._parser = self.change.source.parser(self.change.transcript, None, self._lookup)
        known, marks = self._known_marks(), list[str]()
        step: list[Item] = []
        for number, record in enumerate(records):
            if record is None:
                self._problem("a record is damaged")
                continue
            items = self._parse(parser, record)
            if self.change.store is None:
                marks.append(digest(str(number), msgspec.json.encode(record).decode()).hex()[:_MARK_CHARS])
            step += filter(_needed_again, items) if marks and marks[-1] in known else items
            if len(step) >= _ITEMS_PER_STEP:
                yield step
                step = []
        self._marks = marks
        step += parser.finish()
        yield step

    def _known_marks(self) -> frozenset[str]:
        kept = ((self.change.before.state if self.change.before else None) or {}).get(_MARKS, "")
        return frozenset(kept[start : start + _MARK_CHARS] for start in range(0, len(kept), _MARK_CHARS))

    def _decode(self, line: bytes) -> list[Any]:
        """The records of a line that is not one JSON value."""
        try:
            return decode_leniently(line)
        except BrokenLine as broken:
            self._problem(f"a line is not JSON: {broken}")
            return broken.records

    def _parse(self, parser: Parser, record: Any) -> Iterable[Item]:
        try:
            items = parser.parse(record)
            if type(items) is not list:
                items = list(items)
            self._unknown.count(record, items)
            return items
        except MISREAD as error:
            self._problem(f"a record is not understood: {type(error).__name__}: {error}")
            return ()

    def _problem(self, message: str) -> None:
        self.errors += 1
        self._row.errors += 1
        self._row.last_error = message[:500]


def _needed_again(item: Item) -> bool:
    return isinstance(item, About | Usage) or (isinstance(item, Event) and item.starts_turn)


def _prefix_digest(stream: BinaryIO, offset: int) -> bytes:
    """A digest of the first bytes and of those just before `offset`: an append changes neither."""
    hasher = blake2b(digest_size=16)
    stream.seek(0)
    hasher.update(stream.read(min(_DIGEST_BYTES, offset)))
    stream.seek(max(0, offset - _DIGEST_BYTES))
    hasher.update(stream.read(min(_DIGEST_BYTES, offset)))
    return hasher.digest()


def _is_append(before: FileRow, stream: BinaryIO, size: int) -> bool:
    """True if the file only grew since it was read; otherwise it is read again from its start."""
    return before.offset <= size and before.prefix == _prefix_digest(stream, before.offset)


# Lines


_CHUNK_BYTES = 1 << 20
# A line is held in memory, several times over while it is decoded.
MAX_LINE_BYTES = 64 << 20
# Where an object may begin after a broken one on the same line; trying more places than this is not worth it.
_MAX_RESUMES = 64


class BrokenLine(ValueError):
    """A line that is not JSON as a whole; `records` are the JSON objects found in it."""

    def __init__(self, message: str, records: list[Any]) -> None:
        super().__init__(message)
        self.records = records


def lines(stream: BinaryIO, offset: int) -> Iterator[tuple[int, bytes]]:
    """(end offset, line) of every complete line of a stream that stands at `offset`.

    A last line without a newline counts when it is a whole JSON object: nothing that follows could change it.
    A line longer than MAX_LINE_BYTES comes as its first bytes, which no decoder will take for JSON.
    """
    parts: list[bytes] = []
    held = 0
    while chunk := stream.read(_CHUNK_BYTES):
        start = 0
        # Several times as fast as `split`, which looks at byte after byte.
        while (end := chunk.find(b"\n", start)) >= 0:
            line, start = chunk[start:end], end + 1
            if parts:
                offset += held + len(line) + 1
                line = b"".join(parts)[:MAX_LINE_BYTES] + line if held <= MAX_LINE_BYTES else parts[0]
                parts, held = [], 0
            else:
                offset += len(line) + 1
            yield offset, line
        if rest := chunk[start:]:
            held += len(rest)
            if held <= MAX_LINE_BYTES or not parts:
                parts.append(rest)
    if parts and held <= MAX_LINE_BYTES:
        tail = b"".join(parts)
        if _is_whole_object(tail):
            yield offset + held, tail


def _is_whole_object(data: bytes) -> bool:
    data = data.strip()
    if not (data.startswith(b"{") and data.endswith(b"}")):
        return False
    try:
        decode_line(data)
    except BrokenLine:
        return False
    return True


def decode_line(line: bytes) -> list[Any]:
    """The JSON values on a line: one, none on a blank line, several when a writer forgot the newline.

    Raises BrokenLine when something on it is not JSON. Lone surrogates become U+FFFD.
    """
    try:
        return [decode_fast(line)]
    except UNDECODABLE:
        return decode_leniently(line)


def decode_leniently(line: bytes) -> list[Any]:
    """As `decode_line`, for a line that is known not to be one JSON value."""
    # NUL bytes are what a file system leaves behind after a crash.
    text = line.replace(b"\0", b"").decode("utf-8-sig", "replace").strip()
    records: list[Any] = []
    problem = ""
    position = resumes = 0
    while position < len(text):
        try:
            value, position = decode_prefix(text, position)
            problem_here = ""
            records.append(value)
        except (ValueError, RecursionError) as error:
            problem_here = str(error)[:200]
        if problem_here:
            problem = problem or problem_here
            resumes += 1
            position = text.find('{"', position + 1) if resumes <= _MAX_RESUMES else -1
            if position < 0:
                break
        else:
            while position < len(text) and text[position].isspace():
                position += 1
    if problem:
        raise BrokenLine(problem, [record for record in records if isinstance(record, dict)])
    return records
