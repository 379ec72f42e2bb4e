"""Attributes by path. One row has the values that many spans have at a path: a filter reads the rows of its path alone,
and the attributes of a new span go into rows that are written anyway."""

from __future__ import annotations

import operator as compare
import sqlite3
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import msgspec

from ...spans import MAX_VALUE_CHARS
from ...spantexts import MAX_DEPTH, flatten
from .conditions import bindable

_MAX_VALUES = 512
# A row that has so many is not added to: the larger it is, the more has to be written again for each value.
_ENOUGH_VALUES = 128
_MAX_INTEGER = 1 << 63
_PREFIXES = ("metadata", "attributes")
_NUMBERS = (int, float)
_SCALARS = (str, int, float, bool)
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": compare.eq,
    "gt": compare.gt,
    "gte": compare.ge,
    "lt": compare.lt,
    "lte": compare.le,
}

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class AttributeValues:
    """The attributes of the spans of one write, by path."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, dict[int, Any]]] = {prefix: {} for prefix in _PREFIXES}
        # A span may have a path twice: {"a.b": 1, "a": {"b": 2}}.
        self._more: list[tuple[str, int, Any]] = []

    def add(self, number: int, data: dict[str, dict[str, Any]]) -> None:
        for prefix, table in data.items():
            self._add(number, prefix, table.items())

    def _add(self, number: int, prefix: str, items: Iterable[tuple[str, Any]]) -> None:
        columns = self._tables[prefix]
        for name, value in items:
            kind = type(value)
            if kind is str:
                value = value if len(value) <= MAX_VALUE_CHARS else value[:MAX_VALUE_CHARS]
            elif kind is int:
                value = value if -_MAX_INTEGER < value < _MAX_INTEGER else bindable(value)
            elif kind is not float and kind is not bool:
                self._add(number, prefix, flatten({name: value}))
                continue
            column = columns.get(name)
            if column is None:
                column = columns[name] = {}
            if number in column:
                self._more.append((f"{prefix}.{name}", number, value))
            else:
                column[number] = value

    def write(self, db: sqlite3.Connection, number_of: Callable[[str], int]) -> None:
        """`number_of` gives the numbers of paths."""
        for prefix, columns in self._tables.items():
            for name, column in columns.items():
                path = number_of(f"{prefix}.{name}")
                spans, values = list(column), list(column.values())
                for start in range(0, len(spans), _MAX_VALUES):
                    end = start + _MAX_VALUES
                    _append(db, path, spans[start:end], values[start:end])
        for name, number, value in self._more:
            _append(db, number_of(name), [number], [value])


def _append(db: sqlite3.Connection, path: int, spans: list[int], values: list[Any]) -> None:
    texts = ",".join(map(str, spans)), _encode(values)[1:-1].decode()
    if len(spans) < _ENOUGH_VALUES:
        last = db.execute("SELECT id, count FROM part WHERE path = ? ORDER BY id DESC LIMIT 1", (path,)).fetchone()
        if last is not None and last[1] + len(spans) <= _ENOUGH_VALUES:
            db.execute(
                "UPDATE part SET count = count + ?, spans = spans || ',' || ?, data = data || ',' || ? WHERE id = ?",
                (len(spans), *texts, last[0]),
            )
            return
    db.execute("INSERT INTO part (path, count, spans, data) VALUES (?, ?, ?, ?)", (path, len(spans), *texts))


def add_functions(db: sqlite3.Connection) -> None:
    """Add the SQL functions that conditions on attributes use."""
    db.create_function("matching", 4, _matching, deterministic=True)
    db.create_function("has_value", 4, _has_value, deterministic=True)
    db.create_function("fact", 2, _fact, deterministic=True)


def _matching(spans: str, data: str, operator: str, value: Any) -> str | None:
    """The spans of a part whose values match, as a JSON list."""
    hint, test = _test(operator, value)
    if hint is not None and hint not in (data.casefold() if operator == "contains" else data):
        return None
    places = [place for place, found in enumerate(_decode(f"[{data}]")) if test(found)]
    if not places:
        return None
    numbers = spans.split(",")
    return f"[{','.join([numbers[place] for place in places])}]"


def _has_value(facts: str, path: str, operator: str, value: Any) -> bool:
    """True if the attributes of one span match."""
    _, test = _test(operator, value)
    return any(test(found) for found in _values_at(facts, path))


def _fact(facts: str, path: str) -> Any:
    found = _values_at(facts, path)
    return bindable(found[0]) if found else None


def _values_at(facts: str, path: str) -> list[Any]:
    """`metadata.x` also finds a plain attribute `x`: senders put metadata in either place."""
    data = _decode(facts)
    prefix, _, rest = path.partition(".")
    found = _leaves(data[prefix], rest, MAX_DEPTH)
    return found + _leaves(data["attributes"], rest, MAX_DEPTH) if prefix == "metadata" else found


def _leaves(table: dict[str, Any], path: str, depth: int) -> list[Any]:
    """The values at a path. A dot may separate names or be a part of one."""
    found = []
    value = table.get(path)
    if type(value) in _SCALARS:
        found.append(value)
    elif value is not None:
        found += [leaf for name, leaf in flatten({path: value}, depth) if name == path]
    dot = path.find(".")
    while dot >= 0 and depth:
        inner = table.get(path[:dot])
        if isinstance(inner, dict):
            found += _leaves(inner, path[dot + 1 :], depth - 1)
        dot = path.find(".", dot + 1)
    return [leaf[:MAX_VALUE_CHARS] if type(leaf) is str else leaf for leaf in found]


@lru_cache(maxsize=256)
def _test(operator: str, value: Any) -> tuple[str | None, Callable[[Any], bool]]:
    """The test of a value, and a text that the JSON of all matching values contains."""
    if isinstance(value, bytes):
        expected = value == b"\1"
        return None, lambda found: found is expected
    if operator == "contains":
        return _encode(value)[1:-1].decode(), lambda found: isinstance(found, str) and value in found.casefold()
    if isinstance(value, str):
        return _encode(value).decode(), lambda found: bool(found == value)
    holds = _COMPARISONS[operator]
    return None, lambda found: type(found) in _NUMBERS and holds(found, value)
