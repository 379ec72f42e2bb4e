"""Finding rows by conditions, sorted, page by page, within a time limit.

The first statement takes matches in any order, up to the number that is counted. If these are all, they are sorted
here. If there are more, matches are frequent, and a second statement that walks in the order of the sort meets a page
of them soon.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...spans import COUNT_LIMIT, Position, TraceQuery
from .conditions import Sql, Term, bindable

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
