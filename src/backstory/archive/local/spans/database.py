"""traces.db: its tables and indexes, and the attributes of spans by path.

Traces have a file of their own, so that any process can receive spans. One row has the values that many spans have at a
path: a filter reads the rows of its path alone, and the attributes of a new span go into rows that are written
anyway.
"""

from __future__ import annotations

import operator as compare
import sqlite3
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from ....sqlite import connect, transaction
from ....sqlite import prepare as prepare_database
from ...errors import DAMAGED_TRACES
from ...spans import MAX_VALUE_CHARS
from ...spantexts import MAX_DEPTH, flatten
from ..database import explained
from .conditions import bindable

QUARTER_MS = 900_000
# Rows of the table `usage`; the caller adds conditions and `USAGE_GROUPS`.
USAGE_OF_SPANS = f"""
SELECT s.trace, s.start / {QUARTER_MS} AS quarter, s.model, s.call IS NOT NULL AS named,
    min(s.start) AS first, max(s.start) AS last, count(*) AS calls,
    coalesce(sum(coalesce(s.input, s.total)), 0) AS input, coalesce(sum(s.output), 0) AS output,
    coalesce(sum(s.cache_read), 0) AS cache_read, coalesce(sum(s.cache_write), 0) AS cache_write,
    coalesce(sum(s.reasoning), 0) AS reasoning, sum(s.cost) AS cost, sum(s.cost IS NULL) AS unpriced
FROM span s WHERE s.counts AND s.twin IS NULL
    AND (s.input IS NOT NULL OR s.output IS NOT NULL OR s.total IS NOT NULL OR s.cost IS NOT NULL)
"""
USAGE_GROUPS = "GROUP BY 1, 2, 3, 4"

# Indexes on what comes in no order (ids, tokens, costs) lie in blocks of 8192 rows, so that a batch changes pages of
# the latest block only. SQLite searches them block by block (skip-scan), once ANALYZE has measured the blocks.
#
# `name` numbers what repeats: names of spans, models, stop reasons.
# `span.uid` is unique within its trace only. `total` is a sum of tokens that came alone. `waiting` is how long the
# agent waited for a person, in milliseconds.
# `span.call` is the id of the call that a span reports: several reports of one call count once. `alias` is another name
# of the call, by its tokens, where one of two reports lacks its id. Both are looked for within a `scope`, which the
# calls of a session have in common with its telemetry: the same tokens are in many sessions. `twin` is the projected
# span that shows what a received one reports.
# Projected spans point at the events they were made from: `session` and `turn` as in archive.db, `first` and `last` are
# ordinals, `last_turn` is the turn of `last`, where that is another one. `cause` is the model call that asked for a
# tool.
# `part` has the values of many spans at a path, as JSON lists without their brackets, so that they can be added to.
# Values of a span that was sent again stay there: for the spans in `resent`, `facts` decides.
# `turn` has the place of each projected turn: its trace, and the uid of the span of the whole turn, whose parent is not
# of the same turn.
# `usage` adds up the model calls of a trace by quarter hour and model, so that a report over a year reads a row for a
# turn, not for a call. `named`: the calls are reported by name. It is written whenever a trace is added up.
# `forgotten` has digests of sessions that were forgotten, and of their traces that were received, as in archive.db.
_TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
CREATE TABLE name (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE path (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE trace (
    id INTEGER PRIMARY KEY,
    uid TEXT NOT NULL UNIQUE,
    name TEXT, named INTEGER NOT NULL, status INTEGER NOT NULL, start INTEGER NOT NULL, updated INTEGER NOT NULL,
    latency INTEGER, cost REAL, tokens INTEGER,
    session TEXT, native TEXT, source TEXT, project TEXT, dataset_run TEXT,
    projected INTEGER NOT NULL
) STRICT;
CREATE INDEX trace_start ON trace (start);
CREATE INDEX trace_updated ON trace (updated);
CREATE INDEX trace_status ON trace (status, start);
CREATE INDEX trace_name ON trace (name) WHERE name IS NOT NULL;
CREATE INDEX trace_latency ON trace (id >> 13, latency) WHERE latency IS NOT NULL;
CREATE INDEX trace_cost ON trace (id >> 13, cost) WHERE cost IS NOT NULL;
CREATE INDEX trace_tokens ON trace (id >> 13, tokens) WHERE tokens IS NOT NULL;
CREATE INDEX trace_session ON trace (session, start) WHERE session IS NOT NULL;
CREATE INDEX trace_native ON trace (native, start) WHERE native IS NOT NULL;
CREATE INDEX trace_dataset_run ON trace (dataset_run, start) WHERE dataset_run IS NOT NULL;

CREATE TABLE span (
    id INTEGER PRIMARY KEY,
    trace INTEGER NOT NULL, uid INTEGER NOT NULL, parent INTEGER,
    name INTEGER NOT NULL, type INTEGER NOT NULL, status INTEGER NOT NULL,
    start INTEGER NOT NULL, end INTEGER, model INTEGER,
    input INTEGER, output INTEGER, total INTEGER, cache_read INTEGER, cache_write INTEGER, cache_write_1h INTEGER,
    reasoning INTEGER,
    cost REAL, cost_reported INTEGER NOT NULL, counts INTEGER NOT NULL,
    stop_reason INTEGER, exit_code INTEGER, waiting INTEGER,
    call TEXT, alias TEXT, scope INTEGER, logged INTEGER NOT NULL DEFAULT 0, twin INTEGER,
    session INTEGER, turn INTEGER, first INTEGER, last INTEGER, last_turn INTEGER, cause INTEGER,
    UNIQUE (trace, uid)
) STRICT;
CREATE INDEX span_start ON span (start);
CREATE INDEX span_name ON span (name, start);
CREATE INDEX span_status ON span (status, start);
CREATE INDEX span_type ON span (type, start);
CREATE INDEX span_end ON span (end) WHERE end IS NOT NULL;
CREATE INDEX span_model ON span (model, start) WHERE model IS NOT NULL;
CREATE INDEX span_uid ON span (id >> 13, uid);
CREATE INDEX span_input ON span (id >> 13, input) WHERE input IS NOT NULL;
CREATE INDEX span_output ON span (id >> 13, output) WHERE output IS NOT NULL;
CREATE INDEX span_cost ON span (id >> 13, cost) WHERE cost IS NOT NULL;
CREATE INDEX span_twin ON span (twin) WHERE twin IS NOT NULL;
CREATE INDEX span_received_call ON span (call) WHERE session IS NULL AND call IS NOT NULL;
CREATE INDEX span_alias ON span (scope, alias) WHERE alias IS NOT NULL;
CREATE INDEX span_scoped_call ON span (scope, call) WHERE call IS NOT NULL;

CREATE TABLE facts (span INTEGER PRIMARY KEY, data TEXT NOT NULL) STRICT;
CREATE TABLE content (span INTEGER PRIMARY KEY, input ANY, output ANY, tool_calls ANY) STRICT;
CREATE TABLE part (
    id INTEGER PRIMARY KEY,
    path INTEGER NOT NULL, count INTEGER NOT NULL, spans TEXT NOT NULL, data TEXT NOT NULL
) STRICT;
CREATE INDEX part_path ON part (path);
CREATE TABLE resent (span INTEGER PRIMARY KEY) STRICT;

CREATE TABLE turn (
    session INTEGER NOT NULL, turn INTEGER NOT NULL, trace INTEGER NOT NULL, root INTEGER NOT NULL,
    PRIMARY KEY (session, turn)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage (
    trace INTEGER NOT NULL, quarter INTEGER NOT NULL, model INTEGER, named INTEGER NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, calls INTEGER NOT NULL,
    input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
    reasoning INTEGER NOT NULL, cost REAL, unpriced INTEGER NOT NULL
) STRICT;
CREATE INDEX usage_trace ON usage (trace);
CREATE INDEX usage_quarter ON usage (quarter);
CREATE TRIGGER usage_of_deleted AFTER DELETE ON trace BEGIN DELETE FROM usage WHERE trace = old.id; END;

CREATE TABLE forgotten (mark INTEGER PRIMARY KEY) STRICT;
PRAGMA analysis_limit=1000;
ANALYZE;
"""
# One entry per version from the first on. Append only.
MIGRATIONS = (_TABLES,)
FIRST_VERSION = 11

# Of no use to the load itself, or without any row of it.
_DEFERRED = """
SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL AND tbl_name IN ('span', 'trace', 'usage')
AND name NOT IN ('span_received_call', 'span_twin', 'trace_dataset_run', 'usage_trace')
"""
_INDEXES = "indexes"
"""The name in `meta` of the statements that create the indexes which a load has put off."""


def prepare(path: Path) -> None:
    with explained(path, DAMAGED_TRACES):
        # Another process may be at it, and a million spans take half a minute.
        prepare_database(path, MIGRATIONS, first=FIRST_VERSION, busy_seconds=120)


def open_database(path: Path, *, writable: bool) -> sqlite3.Connection:
    connection = connect(path, writable=writable)
    add_functions(connection)
    connection.create_function("holds", 2, _holds, deterministic=True)
    return connection


def put_off_indexes(db: sqlite3.Connection) -> bool:
    """Drop the indexes that a first load of many spans would bring up to date for every one of them, at five times the
    price of creating them at its end. False if there are spans already."""
    with transaction(db):
        if db.execute("SELECT 1 FROM span LIMIT 1").fetchone() or lacks_indexes(db):
            return False
        found = db.execute(_DEFERRED).fetchall()
        statements = msgspec.json.encode([sql for _, sql in found]).decode()
        db.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (_INDEXES, statements))
        for name, _ in found:
            db.execute(f"DROP INDEX {name}")
    return True


def create_indexes(db: sqlite3.Connection) -> None:
    """Create the indexes that were put off, by this process or by one that was killed. Each has a transaction of its
    own, so that no other process waits long."""
    while lacks_indexes(db):
        with transaction(db):
            (statements,) = db.execute("SELECT value FROM meta WHERE name = ?", (_INDEXES,)).fetchone()
            first, *rest = msgspec.json.decode(statements)
            db.execute(first)
            if rest:
                db.execute("UPDATE meta SET value = ? WHERE name = ?", (msgspec.json.encode(rest).decode(), _INDEXES))
            else:
                db.execute("DELETE FROM meta WHERE name = ?", (_INDEXES,))


def lacks_indexes(db: sqlite3.Connection) -> bool:
    """True from the beginning of a load until its indexes are created."""
    return db.execute("SELECT 1 FROM meta WHERE name = ?", (_INDEXES,)).fetchone() is not None


def _holds(text: object, part: str) -> bool:
    """Substring in any case, in any script: SQLite folds ASCII only."""
    return isinstance(text, str) and part in text.casefold()


# Attributes

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
