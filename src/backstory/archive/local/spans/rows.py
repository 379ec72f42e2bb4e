"""Rows of traces and spans: found by conditions, page by page, and read as the structs of `archive/spans.py`."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...spans import COUNT_LIMIT, SPAN_TYPES, STATUSES, EventRange, Origin, Position, SpanRow, TraceQuery, TraceRow
from ...spantexts import EventsOf
from .conditions import Sql, Term, bindable

_decode = msgspec.json.Decoder().decode


class StoredTrace(NamedTuple):
    """A row of `TRACE_SELECT`."""

    number: int
    id: str
    name: str | None
    status: int
    start: int
    updated: int
    latency: int | None
    cost: float | None
    tokens: int | None
    session: str | None
    source: str | None
    project: str | None
    dataset_run: str | None

    def row(self) -> TraceRow:
        fields = {name: getattr(self, name) for name in TraceRow.__struct_fields__}
        return TraceRow(**{**fields, "status": STATUSES[self.status]})


class StoredSpan(NamedTuple):
    """A row of `SPAN_SELECT`. Names, facts and texts are joined to it."""

    number: int
    trace: str
    id: int
    parent: int | None
    name: str
    type: int
    status: int
    start: int
    end: int | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cache_write_1h_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None
    cost_reported: int
    stop_reason: str | None
    exit_code: int | None
    waiting: int | None
    call: str | None
    alias: str | None
    logged: int
    cause: int | None
    session: int | None
    turn: int | None
    first: int | None
    last: int | None
    last_turn: int | None
    twin: int | None
    facts: str | None
    input: str | bytes | None
    output: str | bytes | None
    tool_calls: str | bytes | None
    trace_session: str | None
    source: str | None
    project: str | None
    dataset_run: str | None

    @property
    def events_of(self) -> EventsOf[int] | None:
        """None for a span that was received."""
        if self.session is None or self.turn is None:
            return None
        return EventsOf(self.session, self.turn, self.first, self.last, self.last_turn)

    def row(self, unpack: Callable[[Any], str]) -> SpanRow:
        """Without the texts of its events."""
        facts = _decode(self.facts) if self.facts else {}
        input, output, tool_calls = (
            _decode(unpack(text)) if text else None for text in (self.input, self.output, self.tool_calls)
        )
        fields = {name: getattr(self, name) for name in _SAME_FIELDS}
        return SpanRow(
            **fields,
            type=SPAN_TYPES[self.type],
            status=STATUSES[self.status],
            cost_reported=bool(self.cost_reported),
            logged=bool(self.logged),
            events=None if self.session is None else EventRange(self.first, self.last, self.last_turn),
            metadata=facts.get("metadata", {}),
            attributes=facts.get("attributes", {}),
            input=input,
            output=output,
            tool_calls=tool_calls or [],
            origin=Origin(
                session=self.trace_session, source=self.source, project=self.project, dataset_run=self.dataset_run
            ),
        )


# Fields of SpanRow that are stored as they are.
_SAME_FIELDS = (
    "trace", "id", "parent", "name", "start", "end", "model", "input_tokens", "output_tokens", "total_tokens",
    "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens", "cost", "stop_reason",
    "exit_code", "waiting", "call", "alias", "cause",
)  # fmt: skip
# Fields of the stored rows that are not a column of the same name.
_TRACE_COLUMNS = {"number": "t.id", "id": "t.uid"}
_SPAN_COLUMNS = {
    "number": "s.id",
    "trace": "t.uid",
    "id": "s.uid",
    # An unknown parent makes a root.
    "parent": "(SELECT p.uid FROM span p WHERE p.uid = s.parent AND p.trace = s.trace)",
    "name": "n.text",
    "model": "m.text",
    "stop_reason": "r.text",
    "input_tokens": "s.input",
    "output_tokens": "s.output",
    "total_tokens": "s.total",
    "cache_read_tokens": "s.cache_read",
    "cache_write_tokens": "s.cache_write",
    "cache_write_1h_tokens": "s.cache_write_1h",
    "reasoning_tokens": "s.reasoning",
    "facts": "f.data",
    "input": "c.input",
    "output": "c.output",
    "tool_calls": "c.tool_calls",
    "trace_session": "t.session",
    "source": "t.source",
    "project": "t.project",
    "dataset_run": "t.dataset_run",
}
TRACE_SELECT = (
    f"SELECT {', '.join(_TRACE_COLUMNS.get(field, f't.{field}') for field in StoredTrace._fields)} FROM trace t "
)
SPAN_SELECT = (
    f"SELECT {', '.join(_SPAN_COLUMNS.get(field, f's.{field}') for field in StoredSpan._fields)} "
    "FROM span s JOIN trace t ON t.id = s.trace JOIN name n ON n.id = s.name "
    "LEFT JOIN name m ON m.id = s.model LEFT JOIN name r ON r.id = s.stop_reason "
    "LEFT JOIN facts f ON f.span = s.id LEFT JOIN content c ON c.span = s.id "
)


class OutlinedSpan(NamedTuple):
    """A row of `OUTLINE_SELECT`: what a drawing of a trace shows of a span."""

    number: int
    id: int
    parent: int | None
    name: str
    type: int
    status: int
    start: int
    end: int | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    cost: float | None
    twin: int | None

    def row(self, trace: str) -> SpanRow:
        return SpanRow(
            trace=trace,
            id=self.id,
            parent=self.parent,
            name=self.name,
            type=SPAN_TYPES[self.type],
            status=STATUSES[self.status],
            start=self.start,
            end=self.end,
            model=self.model,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            total_tokens=self.total_tokens,
            cost=self.cost,
        )


OUTLINE_SELECT = (
    f"SELECT {', '.join(_SPAN_COLUMNS.get(field, f's.{field}') for field in OutlinedSpan._fields)} "
    "FROM span s JOIN name n ON n.id = s.name LEFT JOIN name m ON m.id = s.model "
)

# Finding rows by conditions, sorted, page by page, within a time limit.
#
# The first statement takes matches in any order, up to the number that is counted. If these are all, they are sorted
# here. If there are more, matches are frequent, and a second statement that walks in the order of the sort meets a page
# of them soon.

_STEPS = 2_000
# What counting may take of the time; the rest is for the page itself.
_COUNT_SHARE = 0.6
_PROBE_SECONDS = 0.15
_PROBE_STEPS = 100  # each may decode all attributes of a span


class Matches(NamedTuple):
    numbers: list[int]
    more: bool
    total: int | None
    last: Position | None
    complete: bool


class _Row(NamedTuple):
    value: Any
    number: int


def find(db: sqlite3.Connection, table: str, row: str, query: TraceQuery, terms: Sequence[Term], sort: Sql) -> Matches:
    """Find rows of a table (`span s` or `trace t`); `row` is its alias."""
    now = time.monotonic()
    first_until = None if query.deadline is None else now + (query.deadline - now) * _COUNT_SHARE
    probes = [term.probing() for term in terms]
    some, finished = _look(db, _any_order(table, row, probes, sort), _any_order(table, row, terms, sort), first_until)
    if finished and len(some) <= COUNT_LIMIT:
        return _matches(_page(some, query), query.limit, len(some), True)
    rows: list[_Row] = []
    complete = True
    for probing, sure in zip(
        _in_order(table, row, query, probes, sort), _in_order(table, row, query, terms, sort), strict=True
    ):
        limit = query.limit + 1 - len(rows)
        more, finished = _look(db, (probing[0], [*probing[1], limit]), (sure[0], [*sure[1], limit]), query.deadline)
        rows += more
        complete &= finished
        if len(rows) > query.limit or not finished:
            break
    # Where there was no time to count, a first page that is also the last one has them all.
    is_all = complete and query.after is None and len(rows) <= query.limit
    return _matches(rows, query.limit, len(rows) if is_all else None, complete)


def _matches(rows: list[_Row], limit: int, total: int | None, complete: bool) -> Matches:
    page = rows[:limit]
    more = len(rows) > limit or not complete
    last = Position(_plain(page[-1].value), page[-1].number) if page else None
    return Matches([entry.number for entry in page], more, total, last, complete)


def _plain(value: Any) -> Any:
    """The value that `bindable` was given."""
    return value == b"\1" if isinstance(value, bytes) else value


def _any_order(table: str, row: str, terms: Sequence[Term], sort: Sql) -> Sql:
    driver = next((term for term in terms if term.driver), None)
    tests = [term for term in terms if term is not driver]
    where = " AND ".join(term.test for term in tests) or "1"
    source, distinct, parameters = table, "", list(sort[1])
    if driver is not None:
        source, distinct = driver.driver or "", "DISTINCT "
        parameters += driver.driver_parameters
    parameters += [value for term in tests for value in term.parameters]
    return f"SELECT {distinct}{sort[0]}, {row}.id FROM {source} WHERE {where} LIMIT {COUNT_LIMIT + 1}", parameters


def _in_order(table: str, row: str, query: TraceQuery, terms: Sequence[Term], sort: Sql) -> list[Sql]:
    """Rows with a value in its order, then rows without one. `IS TRUE` keeps SQLite from starting at a filter."""
    expression, sort_parameters = sort
    tests = "".join(f" AND ({term.test}) IS TRUE" for term in terms)
    parameters = [value for term in terms for value in term.parameters]
    order, beyond = ("DESC", "<") if query.descending else ("ASC", ">")
    after = query.after
    statements: list[Sql] = []
    if after is None or after.value is not None:  # else the page before was among those without a value
        source, value, number = f"{table} WHERE 1{tests}", expression, f"{row}.id"
        given = [*parameters]
        if not expression.startswith(f"{row}."):
            # No index has it. The limit keeps SQLite from working it out once for each mention.
            source = f"(SELECT {expression} AS value, {number} AS number FROM {source} LIMIT -1) WHERE 1"
            value, number = "value", "number"
            given = [*sort_parameters, *parameters]
        if after is not None and after.value is not None:
            source += f" AND ({value}, {number}) {beyond} (?, ?)"
            given += [bindable(after.value), after.number]
        statement = (
            f"SELECT {value}, {number} FROM {source} AND {value} IS NOT NULL "
            f"ORDER BY {value} {order}, {number} {order} LIMIT ?"
        )
        statements.append((statement, given))
    condition, given = f"{expression} IS NULL", [*sort_parameters]
    if after is not None and after.value is None:
        condition += f" AND {row}.id {beyond} ?"
        given.append(after.number)
    statements.append(
        (
            f"SELECT NULL, {row}.id FROM {table} WHERE {condition}{tests} ORDER BY {row}.id {order} LIMIT ?",
            [*given, *parameters],
        )
    )
    return statements


def _look(db: sqlite3.Connection, probing: Sql, sure: Sql, until: float | None) -> tuple[list[_Row], bool]:
    """Run the probing statement for a short time, which is enough where matches are frequent; else the sure one."""
    if probing != sure:
        soon = time.monotonic() + _PROBE_SECONDS
        rows, finished = _run(db, *probing, soon if until is None else min(soon, until), _PROBE_STEPS)
        if finished:
            return rows, True
    return _run(db, *sure, until)


def _run(
    db: sqlite3.Connection, statement: str, parameters: list[Any], until: float | None, steps: int | None = None
) -> tuple[list[_Row], bool]:
    """The rows up to the time limit, and True if these are all. The time is checked every `steps` steps of SQLite."""
    rows: list[_Row] = []
    if until is not None:
        db.set_progress_handler(lambda: time.monotonic() > until, steps or _STEPS)
    try:
        for value, number in db.execute(statement, parameters):
            rows.append(_Row(value, number))
    except sqlite3.OperationalError as error:
        if str(error) != "interrupted":
            raise
        return rows, False
    finally:
        db.set_progress_handler(None, 0)
    return rows, True


def _rank(value: Any) -> tuple[int, Any]:
    """As SQLite orders: numbers, texts, bytes."""
    if isinstance(value, int | float):
        return 0, value
    return (1, value.encode()) if isinstance(value, str) else (2, value)


def _page(rows: list[_Row], query: TraceQuery) -> list[_Row]:
    """All rows in their order, those without a value last, from where the page before ended."""
    present = [(*_rank(row.value), row.number, row) for row in rows if row.value is not None]
    missing = [row for row in rows if row.value is None]
    if (after := query.after) is not None:
        if after.value is None:
            present = []
            missing = [row for row in missing if _beyond(row.number, after.number, query.descending)]
        else:
            place = (*_rank(bindable(after.value)), after.number)
            present = [entry for entry in present if _beyond(entry[:3], place, query.descending)]
    present.sort(key=lambda entry: entry[:3], reverse=query.descending)
    missing.sort(key=lambda row: row.number, reverse=query.descending)
    return [*(entry[3] for entry in present), *missing][: query.limit + 1]


def _beyond(here: Any, there: Any, descending: bool) -> bool:
    return bool(here < there if descending else here > there)
