"""Finding rows by conditions, sorted, page by page, within a time limit.

The first statement takes matches in any order, up to the number that is counted. If these are all, they are sorted
here. If there are more, matches are frequent, and a second statement that walks in the order of the sort meets a page
of them soon.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping, Sequence
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
    """`place` decides among equals, as in every archive: the id of the trace, and for a span its own."""

    value: Any
    number: int
    place: tuple[Any, ...] = ()


# The columns of a place, and the table that they need beside that of the row.
_PLACES: Mapping[str, tuple[str, ...]] = {"t": ("t.uid",), "s": ("of.uid", "s.uid")}
_BESIDE = {"t": "", "s": " CROSS JOIN trace of ON of.id = s.trace"}


def find(db: sqlite3.Connection, table: str, row: str, query: TraceQuery, terms: Sequence[Term], sort: Sql) -> Matches:
    """Find rows of a table (`span s` or `trace t`); `row` is its alias."""
    now = time.monotonic()
    first_until = None if query.deadline is None else now + (query.deadline - now) * _COUNT_SHARE
    probes = [term.probing() for term in terms]
    some, finished = _look(db, _any_order(table, row, probes, sort), _any_order(table, row, terms, sort), first_until)
    if finished and len(some) <= COUNT_LIMIT:
        return _matches(_page(db, table, row, some, query), query.limit, len(some), True)
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
    last = Position(_plain(page[-1].value), *page[-1].place) if page else None
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
    after, places = query.after, _PLACES[row]
    place = [] if after is None else _place(after, row)
    marks = ", ".join("?" * len(places))
    statements: list[Sql] = []
    if after is None or after.value is not None:  # else the page before was among those without a value
        columns, given = (expression, f"{row}.id", *places), [*parameters]
        source = f"{table}{_BESIDE[row]} WHERE 1{tests}"
        if not expression.startswith(f"{row}."):
            # No index has it. The limit keeps SQLite from working it out once for each mention.
            names = ("value", "number", "trace", "span")[: len(columns)]
            named = ", ".join(f"{column} AS {name}" for column, name in zip(columns, names, strict=True))
            columns, given = names, [*sort_parameters, *parameters]
            source = f"(SELECT {named} FROM {source} LIMIT -1) WHERE 1"
        value, _, *ties = columns
        if after is not None and after.value is not None:
            source += f" AND ({', '.join((value, *ties))}) {beyond} (?, {marks})"
            given += [bindable(after.value), *place]
        ordered = ", ".join(f"{column} {order}" for column in (value, *ties))
        statement = f"SELECT {', '.join(columns)} FROM {source} AND {value} IS NOT NULL ORDER BY {ordered} LIMIT ?"
        statements.append((statement, given))
    condition, given = f"{expression} IS NULL", [*sort_parameters]
    if after is not None and after.value is None:
        condition += f" AND ({', '.join(places)}) {beyond} ({marks})"
        given += place
    ordered = ", ".join(f"{column} {order}" for column in places)
    columns = ("NULL", f"{row}.id", *places)
    statement = (
        f"SELECT {', '.join(columns)} FROM {table}{_BESIDE[row]} WHERE {condition}{tests} ORDER BY {ordered} LIMIT ?"
    )
    statements.append((statement, [*given, *parameters]))
    return statements


def _place(after: Position, row: str) -> list[Any]:
    return [after.trace, after.span][: len(_PLACES[row])]


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
        for value, number, *place in db.execute(statement, parameters):
            rows.append(_Row(value, number, tuple(place)))
    except sqlite3.OperationalError as error:
        if str(error) != "interrupted":
            raise
        return rows, False
    finally:
        db.set_progress_handler(None, 0)
    return rows, True


def _rank(value: Any, descending: bool) -> tuple[int, Any]:
    """As SQLite orders: numbers, texts, bytes; what has no value is last in either direction."""
    if value is None:
        return (-1, 0) if descending else (3, 0)
    if isinstance(value, int | float):
        return 0, value
    return (1, value.encode()) if isinstance(value, str) else (2, value)


def _page(db: sqlite3.Connection, table: str, row: str, rows: list[_Row], query: TraceQuery) -> list[_Row]:
    """All rows in their order, from where the page before ended. Places are read of those that may be on the page."""
    down, after = query.descending, query.after
    ranked = [(_rank(each.value, down), each) for each in rows]
    most = query.limit + 1
    if after is not None:
        end = _rank(None if after.value is None else bindable(after.value), down)
        ranked = [entry for entry in ranked if not _beyond(end, entry[0], down)]
        most += sum(rank == end for rank, _ in ranked)
    ranked.sort(key=lambda entry: entry[0], reverse=down)
    if len(ranked) > most:
        ranked = [entry for entry in ranked if not _beyond(entry[0], ranked[most - 1][0], down)]
    places = _places(db, table, row, [each.number for _, each in ranked])
    placed = [(rank, each._replace(place=places[each.number])) for rank, each in ranked if each.number in places]
    if after is not None:
        place = tuple(_place(after, row))
        placed = [entry for entry in placed if _beyond((entry[0], entry[1].place), (end, place), down)]
    placed.sort(key=lambda entry: (entry[0], entry[1].place), reverse=down)
    return [each for _, each in placed][: query.limit + 1]


def _beyond(here: Any, there: Any, descending: bool) -> bool:
    return bool(here < there if descending else here > there)


def _places(db: sqlite3.Connection, table: str, row: str, numbers: Sequence[int]) -> dict[int, tuple[Any, ...]]:
    """The places of rows, by their numbers."""
    columns = ", ".join((f"{row}.id", *_PLACES[row]))
    source = f"json_each(?) j CROSS JOIN {table} ON {row}.id = j.value{_BESIDE[row]}"
    found = db.execute(f"SELECT {columns} FROM {source}", (json.dumps(numbers),))
    return {number: tuple(place) for number, *place in found}
