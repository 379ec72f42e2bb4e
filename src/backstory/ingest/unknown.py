"""Records and fields that no parser knows: counted by name while a transcript is read, kept with its row, added up on
demand. They show that an agent has changed its format.

An unknown record is an event of the type `unknown`. Fields are compared with those that the agents' records had when
the sources were checked (`sources/known_fields.json`), in a sample of the records: the first ones, then every 16th, of
a transcript as of all records of a version that have the same fields. Parts of a message that a store has as rows of
their own are sampled by their kinds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from ..archive.base import Archive
from ..model import EventType
from ..sources.base import Event, Item

_STATE = "unknown"
_UNKNOWN = EventType.UNKNOWN
_MOST_KINDS = 20
_SAMPLE_CHARS = 800
_HEAD_CHARS = 4_000
_FIRST_RECORDS = 32
_EVERY_RECORD = 16
_KIND = re.compile(r'"(?:type|kind|role)"\s*:\s*(?:"([^"\\]{1,80})"|(\d{1,9}))')
_NAMES = ("type", "kind", "role")
# The mappings in records, one within another, whose fields are the format's own. Others hold the arguments of tools
# and the like. Those that count tokens have more of them inside.
_PARTS = frozenset(("payload", "message", "data", "item", "event"))
_COUNTS = frozenset(("usage", "tokens", "usageMetadata", "token_usage", "info", "metrics"))
_INNER = _PARTS | _COUNTS
_INNER_OF_ROWS = _INNER | {"state"}
_DEEPEST_PART = 3
ROWS = "parts"
# Values that name a kind of thing; names of fields. Other names, such as paths, are data.
_WORD = re.compile(r"[\w.:/-]{1,40}")
_FIELD = re.compile(r"[\w$-]{1,40}")
_ODD = re.compile(r"[^\w.:/$-]")
_DEEPEST = 3
_WIDEST = 20


_MOST_PLAIN, _WIDEST_PLAIN = 4_096, 100
Parts = list[tuple[str, dict[str, Any]]]
PartsOf = Callable[[dict[str, Any]], Parts]
PlainRecords = dict[tuple[str, ...], int]
"""The number of records so far, of all transcripts, that have the same fields and no unknown ones, by source, version
and fields. After the first of them only every 16th is looked at."""


class Kind(Struct, omit_defaults=True):
    """The number of records of a kind or with a field in a transcript, and the shape of the first one of them."""

    count: int = 0
    sample: str = ""


class Unknown(Struct, kw_only=True):
    """A kind of record, or a field (`kind.field`), that no parser knows, as one version of one agent writes it."""

    source: str
    version: str | None
    kind: str
    count: int
    """Of fields, in the records that were sampled."""
    sample: str
    """The names and types of the fields of one of them. It has no text of the transcript."""
    is_field: bool = False


class Kinds:
    """The unknown kinds and fields of one transcript."""

    def __init__(self, source: str, plain: PlainRecords) -> None:
        self._source = source
        self._plain = plain
        self._known = _known_fields().get(source, {})
        self._kinds: dict[str, Kind] = {}
        self._records = 0
        # The number of rows so far, of each kind that has known fields.
        self._rows = dict.fromkeys(self._known, 0)

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on with the counts that are kept in the state of a row; they are taken out of it."""
        kept = state.pop(_STATE, None) if state else None
        if kept:
            self._kinds = msgspec.convert(kept, dict[str, Kind])

    def count(self, record: Any, items: Iterable[Item]) -> None:
        """Count what is unknown of a record, given its items."""
        for item in items:
            if type(item) is Event and item.type is _UNKNOWN:
                found = _KIND.search(item.text, 0, _HEAD_CHARS)
                name = _ODD.sub("?", found[1] or found[2]) if found else "without a type"
                self._add(name, item.text)
        self._records += 1
        if type(record) is not dict:
            return
        if _is_sampled(self._records):
            version = record.get("version")
            names = (self._source, version if type(version) is str else "", *record)
            self._count_fields(record, names, parts_of)
        for row in rows_of(record) if ROWS in record else ():
            number = self._rows.get(kind := kind_of_row(row))
            if number is not None:
                self._rows[kind] = number + 1
                if _is_sampled(number + 1):
                    self._count_fields(row, (self._source, kind, *row), parts_of_row)

    def _count_fields(self, record: dict[str, Any], names: tuple[str, ...], parts_of: PartsOf) -> None:
        plain = self._plain
        number = plain.get(names, 0)
        if number >= _FIRST_RECORDS and number % _EVERY_RECORD:
            plain[names] = number + 1
            return
        is_plain = True
        for kind, part in parts_of(record):
            fields = self._known.get(kind)
            if fields is not None and not part.keys() <= fields:
                is_plain = False
                for name in sorted(part.keys() - fields):
                    self._add(_ODD.sub("?", f"{kind}.{name}"), {name: part[name]}, is_field=True)
        if not is_plain:
            plain.pop(names, None)
        elif number or (len(plain) < _MOST_PLAIN and len(names) <= _WIDEST_PLAIN):
            plain[names] = number + 1

    def _add(self, name: str, value: Any, *, is_field: bool = False) -> None:
        name = f"{'.' if is_field else ''}{name[:120]}"
        if name in self._kinds or len(self._kinds) < _MOST_KINDS:
            if name not in self._kinds:
                self._kinds[name] = Kind(sample=shape_of(value))
            self._kinds[name].count += 1

    def keep(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state with the counts in it, if there are any."""
        return {**state, _STATE: msgspec.to_builtins(self._kinds)} if self._kinds else state


def _is_sampled(number: int) -> bool:
    return number <= _FIRST_RECORDS or number % _EVERY_RECORD == 0


def rows_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of a message that are rows of their own: pairs of an id and what the row has."""
    rows = record.get(ROWS)
    if type(rows) is not list:
        return []
    return [row[1] for row in rows if type(row) is tuple and type(row[1]) is dict]


def kind_of_row(row: dict[str, Any]) -> str:
    return f"{ROWS}:{row.get('type')}"


def parts_of(record: dict[str, Any]) -> Parts:
    """A record and the parts of it whose fields belong to the format, each with the name of its kind."""
    kind = _kind_of(record)
    found = [(kind, record)]
    _add_parts(kind, record, found, _DEEPEST_PART, _INNER)
    return found


def parts_of_row(row: dict[str, Any]) -> Parts:
    kind = kind_of_row(row)
    found = [(kind, row)]
    _add_parts(kind, row, found, _DEEPEST_PART, _INNER_OF_ROWS)
    return found


def _add_parts(kind: str, part: dict[str, Any], found: Parts, depth: int, inner_names: frozenset[str]) -> None:
    for name in inner_names.intersection(part):
        value = part[name]
        if type(value) is dict:
            inner = name in _PARTS and _kind_of(value)
            below = f"{kind}.{name}:{inner}" if inner else f"{kind}.{name}"
            found.append((below, value))
            if name in _COUNTS:
                found += [(f"{below}.{each}", count) for each, count in value.items() if type(count) is dict]
            elif depth > 1:
                _add_parts(below, value, found, depth - 1, inner_names)


def _kind_of(record: dict[str, Any]) -> str:
    for name in _NAMES:
        value = record.get(name)
        if type(value) is str:
            return value
    return ""


def shape_of(value: Any) -> str:
    """JSON with the names of fields, and types in place of values. Only words that name a kind of thing are kept."""
    if isinstance(value, str):
        with suppress(ValueError, RecursionError):
            value = msgspec.json.decode(value)
    return msgspec.json.encode(_shape(value, "", _DEEPEST)).decode()[:_SAMPLE_CHARS]


def _shape(value: Any, name: str, depth: int) -> Any:
    match value:
        case dict() if depth:
            return {
                key: _shape(each, key, depth - 1)
                for key, each in list(value.items())[:_WIDEST]
                if isinstance(key, str) and _FIELD.fullmatch(key)
            }
        case list() if depth:
            return [_shape(each, name, depth - 1) for each in value[:2]]
        case str() if name in _NAMES and _WORD.fullmatch(value):
            return value
        case str():
            return f"<{len(value)} characters>"
        case bool() | None:
            return value
        case int() | float():
            return "<number>"
        case _:
            return "<...>"


@cache
def _known_fields() -> dict[str, dict[str, frozenset[str]]]:
    from importlib.resources import files  # it imports much, and a sync with nothing new does not need it

    stored = files("backstory.sources").joinpath("known_fields.json").read_bytes()
    return msgspec.json.decode(stored, type=dict[str, dict[str, frozenset[str]]])


def unknown_records(archive: Archive) -> list[Unknown]:
    """Every unknown kind and field, by agent and version, the most frequent first."""
    found: dict[tuple[str, str | None, str], Unknown] = {}
    for row in archive.files():
        kept = (row.state or {}).get(_STATE)
        if not kept:
            continue
        session = archive.session(f"{row.source}/{row.session}")
        version = session.version if session else None
        for name, kind in msgspec.convert(kept, dict[str, Kind]).items():
            key = (row.source, version, name)
            unknown = found.get(key)
            if unknown is None:
                unknown = found[key] = Unknown(
                    source=row.source,
                    version=version,
                    kind=name.removeprefix("."),
                    count=0,
                    sample=kind.sample,
                    is_field=name.startswith("."),
                )
            unknown.count += kind.count
    return sorted(found.values(), key=lambda unknown: (-unknown.count, unknown.source, unknown.kind))
