"""The lines of a session file: how a mutation is written, and what a file says when it is read back.

A mutation is one write of one or more lines. The first line of several carries their number (`"records":3`), which
other readers ignore: a write that was cut short, by whatever and wherever, is recognised and taken back as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import BinaryIO, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .types import Millis, SessionMeta, Unsigned, decode_meta

__all__ = ["ROLES", "EntryLine", "Scan", "entry_line", "leaf_line", "meta_line", "scan", "write_lines"]

ROLES = ("user", "assistant", "function_result", "custom", "")
"""Roles by the code the index stores; the last stands for a custom entry, which has none."""
_CUSTOM_ENTRY = len(ROLES) - 1
_encode = msgspec.json.encode


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


class _Head(Struct):
    """What the index needs of an entry. The rest is not looked at, so that what newer writers add survives."""

    id: str
    kind: Literal["message", "custom"]
    timestamp: Millis
    parent_id: str | None = None
    revision: Unsigned | None = 0
    message: _Role | None = None


class _Record(Struct):
    type: Literal["meta", "entry", "leaf", "append", "commit"]
    records: int = 1
    meta: Raw | UnsetType = UNSET
    entry: Raw | UnsetType = UNSET
    entry_id: str | None = None


class EntryLine(Struct):
    """An entry as a file says it: where its JSON is, and what places it in the session."""

    id: str
    parent: str | None
    role: int
    revision: int
    offset: int
    length: int


class Scan(Struct):
    """What the lines of a file amount to, from some offset on: of each thing, the last one wins."""

    end: int
    """Up to here the file holds complete mutations; what follows is a write that was cut short."""
    entries: dict[str, EntryLine] = {}
    leaf: str | UnsetType | None = UNSET
    meta: SessionMeta | None = None
    bad_lines: int = 0
    unterminated: bool = False
    """The last line is whole but for its newline."""


_decode_record = msgspec.json.Decoder(_Record).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_decode_all = msgspec.json.Decoder().decode


def scan(file: BinaryIO, start: int = 0) -> Scan:
    """Read a session file from an offset at which a mutation starts."""
    found = Scan(end=start)
    group: list[tuple[_Record | None, int, bytes]] = []
    wanted = 0
    file.seek(start)
    end = start
    for line in file:
        offset, end = end, end + len(line)
        whole = line.endswith(b"\n")
        record = _parse(line)
        if record is None and not whole:
            break
        if not group:
            wanted = record.records if record and record.records > 1 else 1
        group.append((record, offset, line))
        if len(group) == wanted:
            for member in group:
                _apply(found, *member)
            group.clear()
            found.end = end
            found.unterminated = not whole
    return found


def _parse(line: bytes) -> _Record | None:
    try:
        return _decode_record(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _apply(found: Scan, record: _Record | None, offset: int, line: bytes) -> None:
    """A line that cannot be understood is counted and skipped; the rest of the session stands."""
    try:
        if record is None:
            if line.strip():
                found.bad_lines += 1
            return
        entry = _entry(record, offset, line) if record.type in ("entry", "append") else None
        meta = decode_meta(record.meta) if record.type in ("meta", "append") else None  # type: ignore[arg-type]
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        found.bad_lines += 1
        return
    if entry is not None:
        found.entries[entry.id] = entry
    if record.type == "append" and entry is not None:
        found.leaf = entry.id
    elif record.type == "leaf":
        found.leaf = record.entry_id
    if meta is not None:
        found.meta = meta


def _entry(record: _Record, offset: int, line: bytes) -> EntryLine:
    raw = bytes(record.entry)  # type: ignore[arg-type]
    head = _decode_head(raw)
    _decode_all(raw)  # an entry that cannot be read back is no entry
    if head.kind == "custom":
        role = _CUSTOM_ENTRY
    elif head.message is not None:
        role = ROLES.index(head.message.role)
    else:
        raise ValueError("a message entry without a message")
    return EntryLine(head.id, head.parent_id, role, head.revision or 0, offset + line.index(raw), len(raw))
