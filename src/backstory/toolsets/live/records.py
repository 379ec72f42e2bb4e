"""The lines of a session file, and the tree that its entries form.

A mutation is one write of one or more lines. The first line of several carries their number (`"records":3`), which
other readers ignore: a write that was cut short anywhere is recognised and taken back as a whole. A damaged line is
different: the readable lines around it count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from io import BytesIO
from typing import Any, BinaryIO, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .types import Millis, SessionMeta, Unsigned, check_numbers, decode_meta

ROLES = ("user", "assistant", "function_result", "custom", "")
"""Roles by the code the index stores; the last stands for a custom entry, which has none."""
CUSTOM_ENTRY = len(ROLES) - 1
_encode = msgspec.json.encode
_RECORD_START = re.compile(rb'\{"type":"(?:meta|entry|leaf|append|commit)"')
_MAX_ATTEMPTS = 100


def chain(digest: bytes, lines: Iterable[bytes]) -> bytes:
    """The digest of a file from that of its beginning and the lines that follow. The digest of nothing is empty."""
    for line in lines:
        state = blake2b(digest, digest_size=16)
        state.update(line)
        digest = state.digest()
    return digest


def chain_data(digest: bytes, data: bytes) -> bytes:
    """`chain` for lines in one piece."""
    return chain(digest, BytesIO(data))


def write_lines(entries: Iterable[bytes], leaf: str | UnsetType | None, meta: bytes | None) -> tuple[bytes, list[int]]:
    """The bytes of one mutation, and where in them each entry's JSON starts."""
    kinds: list[tuple[bytes, bytes, bytes]] = [(b'"entry"', b'"entry"', entry) for entry in entries]
    if leaf is not UNSET:
        kinds.append((b'"leaf"', b'"entry_id"', _encode(leaf)))
    if meta is not None:
        kinds.append((b'"meta"', b'"meta"', meta))
    parts: list[bytes] = []
    starts: list[int] = []
    size = 0
    mark = b',"records":%d' % len(kinds) if len(kinds) > 1 else b""
    for kind, name, value in kinds:
        head = b'{"type":%b%b,%b:' % (kind, mark, name)
        mark = b""
        if kind == b'"entry"':
            starts.append(size + len(head))
        parts += (head, value, b"}\n")
        size += len(head) + len(value) + 2
    return b"".join(parts), starts


def meta_line(meta: bytes) -> bytes:
    return write_lines((), UNSET, meta)[0]


def entry_line(entry: bytes) -> bytes:
    return write_lines((entry,), UNSET, None)[0]


def leaf_line(leaf: str | None) -> bytes:
    return write_lines((), leaf, None)[0]


class _Role(Struct):
    role: Literal["user", "assistant", "function_result", "custom"]
    content: list[Raw]


class _Head(Struct):
    """The fields of an entry that the index needs. The others stay as they are, also those of newer writers."""

    id: str
    kind: Literal["message", "custom"]
    timestamp: Millis
    parent_id: str | None = None
    revision: Unsigned | None = 0
    message: _Role | None = None

    def __post_init__(self) -> None:
        check_numbers(self)


class _Record(Struct):
    type: Literal["meta", "entry", "leaf", "append", "commit"]
    records: int = 1
    meta: Raw | UnsetType = UNSET
    entry: Raw | UnsetType = UNSET
    entry_id: str | None = None


class EntryLine(Struct):
    """An entry of a file: the location of its JSON, and the fields that place it in the session."""

    id: str
    parent: str | None
    role: int
    revision: int
    offset: int
    length: int


class Scan(Struct):
    """The content of a file from an offset on. The last record of each thing wins."""

    end: int
    """The end of the complete mutations; after it is a write that was cut short."""
    digest: bytes = b""
    """The `chain` up to `end`, with the last newline even if it is missing."""
    entries: dict[str, EntryLine] = {}
    leaf: str | UnsetType | None = UNSET
    meta: SessionMeta | None = None
    bad_lines: int = 0
    unterminated: bool = False
    """The last line has no newline."""
    last: str | None = None
    """The latest entry."""
    damage_after: str | None = None
    """The latest entry before the last unreadable line."""
    behind_damage: dict[str, str] = {}
    """Entries after such a line, with the entry before it."""


_decode_record = msgspec.json.Decoder(_Record).decode
head_of = msgspec.json.Decoder(_Head).decode
_decode_all = msgspec.json.Decoder().decode
_Line = tuple[_Record | None, int, bytes]


def scan(file: BinaryIO, start: int = 0, digest: bytes = b"", acknowledged: int = 0) -> Scan:
    """Read a session file from an offset at which a mutation starts; `digest` is that of what is before it.

    The file once held complete mutations up to `acknowledged`: an incomplete one there is damaged, not cut short.
    """
    found = Scan(end=start, digest=digest)
    group: list[_Line] = []
    expected = 0
    file.seek(start)
    end = start
    for line in file:
        record = _parse(line)
        if record is not None and record.records > 1 and group:
            _take(found, group)  # another mutation begins: the one before it has lost some of its lines
        if not group:
            expected = record.records if record and record.records > 1 else 1
        group.append((record, end, line))
        end += len(line)
        if len(group) == expected and (record is not None or line.endswith(b"\n")):
            _take(found, group)
    if group and (group[0][1] < acknowledged or not _is_cut_short(group[-1][2])):
        _take(found, group)
    return found


def _is_cut_short(line: bytes) -> bool:
    """True if the last line of a file may be the beginning of an unfinished write."""
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return error.end == len(line) and error.reason == "unexpected end of data" and b"\0" not in line
    return b"\0" not in line


def _take(found: Scan, group: list[_Line]) -> None:
    for record, offset, line in group:
        found.unterminated = not line.endswith(b"\n")
        found.digest = chain(found.digest, [line + b"\n" if found.unterminated else line])
        found.end = offset + len(line)
        _apply(found, record, offset, line)
    group.clear()


def _parse(line: bytes) -> _Record | None:
    try:
        return _decode_record(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _apply(found: Scan, record: _Record | None, offset: int, line: bytes) -> None:
    """Add a line to the scan. An unreadable one is counted and skipped."""
    if record is None:
        if line.strip():
            _damaged(found)
            for start, whole, piece in _salvage(line):
                _apply(found, whole, offset + start, piece)
        return
    try:
        entry = _entry(record, offset, line) if record.type in ("entry", "append") else None
        meta = decode_meta(record.meta) if record.type in ("meta", "append") else None  # type: ignore[arg-type]
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        _damaged(found)
        return
    if entry is not None:
        found.entries[entry.id] = entry
        found.last = entry.id
        if found.damage_after is not None:
            found.behind_damage.setdefault(entry.id, found.damage_after)
    if record.type == "append" and entry is not None:
        found.leaf = entry.id
    elif record.type == "leaf":
        found.leaf = record.entry_id
    if meta is not None:
        found.meta = meta


def _damaged(found: Scan) -> None:
    found.bad_lines += 1
    found.damage_after = found.last


def _salvage(line: bytes) -> Iterator[tuple[int, _Record, bytes]]:
    """Whole records at the beginning and at the end of a line whose middle, or newline, was overwritten.

    A nested object is never taken for a record: more of its record follows it.
    """
    first = 0
    with suppress(ValueError, RecursionError):
        _, first = json.JSONDecoder().raw_decode(line.decode("latin-1"))
    if first and (record := _parse(line[:first])) is not None:
        yield 0, record, line[:first]
    for attempt, match in enumerate(_RECORD_START.finditer(line, max(first, 1))):
        if (record := _parse(line[match.start() :])) is not None:
            yield match.start(), record, line[match.start() :]
            return
        if attempt == _MAX_ATTEMPTS:
            return


def _entry(record: _Record, offset: int, line: bytes) -> EntryLine:
    raw = bytes(record.entry)  # type: ignore[arg-type]
    head = head_of(raw)
    _decode_all(raw)  # an entry that cannot be decoded is damaged
    if head.kind == "custom":
        role = CUSTOM_ENTRY
    elif head.message is not None:
        role = ROLES.index(head.message.role)
    else:
        raise ValueError("a message entry without a message")
    return EntryLine(head.id, head.parent_id, role, head.revision or 0, offset + line.index(raw), len(raw))


class Place(EntryLine):
    """An entry and where in its session it is."""

    branch: int = 0
    depth: int = 0


class Branch(Struct, frozen=True):
    """A branch, and the entry it starts from by branch and depth; None for a root."""

    number: int
    parent: int | None
    depth: int | None


class Layout(Struct):
    places: list[Place]
    branches: list[Branch]
    orphans: int = 0
    """Entries whose parent is not there; they are roots."""


def lay_out(entries: Mapping[str, EntryLine]) -> Layout:
    """Place all entries of a session, in any order. A parent comes before its children."""
    layout = Layout([], [])
    placed: dict[str, Place] = {}
    continued: set[str] = set()
    for entry_id in entries:
        for line in reversed(_ancestry(entry_id, entries, placed)):
            parent = placed.get(line.parent) if line.parent is not None else None
            if parent is not None and parent.id not in continued:
                continued.add(parent.id)
                branch, depth = parent.branch, parent.depth + 1
            else:
                branch, depth = len(layout.branches), parent.depth + 1 if parent else 0
                layout.branches.append(Branch(branch, *((parent.branch, parent.depth) if parent else (None, None))))
                layout.orphans += parent is None and line.parent is not None
            place = Place(line.id, line.parent, line.role, line.revision, line.offset, line.length, branch, depth)
            placed[line.id] = place
            layout.places.append(place)
    return layout


def _ancestry(entry_id: str, entries: Mapping[str, EntryLine], placed: Mapping[str, Place]) -> list[EntryLine]:
    """The entry and its ancestors that have no place yet; a cycle is cut."""
    chain: dict[str, EntryLine] = {}
    current: str | None = entry_id
    while current is not None and current not in placed and current not in chain and current in entries:
        chain[current] = entries[current]
        current = entries[current].parent
    return list(chain.values())


def read_place(row: Sequence[Any]) -> Place:
    """A place from its row in the index."""
    place = Place(*row)
    place.revision %= 2**64
    return place


def signed(number: int) -> int:
    """An unsigned 64-bit number as a signed one, for SQLite."""
    return number - 2**64 if number >= 2**63 else number
