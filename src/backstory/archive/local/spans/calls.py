"""The rules of `archive/calls.py`, applied to the tables.

The span of a turn shows a call. A received span that reports the same call keeps its place in its own trace, but is
neither found nor counted: `twin` is the number of the span that shows it.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from ....prices import Tokens, price
from ...calls import (
    NEAR_MS,
    CallFacts,
    CallReport,
    Node,
    UsageReport,
    above_usage,
    call_scope,
    merge_reports,
    pair_reports,
    repeated_reports,
)
from ...spans import SPAN_TYPES, STATUSES

REPORTS_USAGE = "(input IS NOT NULL OR output IS NOT NULL OR total IS NOT NULL OR cost IS NOT NULL)"

_ALWAYS = 1 << 62
_GENERATION = SPAN_TYPES.index("GENERATION")
_FACTS = CallFacts.__struct_fields__
_SELECT_FACTS = f"SELECT trace, uid, parent, {', '.join(_FACTS)} FROM span WHERE id = ?"
_UPDATE_FACTS = f"UPDATE span SET {', '.join(f'{name} = :{name}' for name in _FACTS)} WHERE id = :id"

_encode = msgspec.json.Encoder().encode


def listed(values: Iterable[object]) -> str:
    """Values as one parameter, for `IN (SELECT value FROM json_each(?))`."""
    return _encode(list(values)).decode()


class Twins(NamedTuple):
    """The received spans of each span that shows them, the best source first, and the traces that changed."""

    shown: dict[int, list[int]]
    touched: set[int]


def unite(db: sqlite3.Connection, traces: Collection[int], written: Collection[int] | None = None) -> Twins:
    """Find the twins among all spans that report the same calls as those of the traces. With `written` (numbers of
    received spans), only for those."""
    if db.execute("SELECT 1 FROM span WHERE session IS NULL AND call IS NOT NULL LIMIT 1").fetchone() is None:
        return Twins({}, set())
    news = None if written is None else _with_parents(db, written)
    _set_scopes(db, traces)
    names, scopes = _names(db, traces)
    reports, traces_of = _reports(db, names, scopes)
    pairs = pair_reports(reports, names)
    shown: dict[int, list[int]] = defaultdict(list)
    renewed: set[int] = set()
    touched: set[int] = set()
    changes: list[tuple[int | None, int]] = []
    for report in reports:
        twin = pairs.get(report.number)
        if twin is not None:
            shown[twin].append(report.number)
        if twin != report.twin and (twin is not None or report.name_by_tokens in names):
            changes.append((twin, report.number))
        elif news is not None and report.number not in news:
            continue
        touched.add(traces_of[report.number])
        if twin is not None:
            renewed.add(twin)
            touched.add(traces_of[twin])
    db.executemany("UPDATE span SET twin = ? WHERE id = ?", changes)
    return Twins({twin: shown[twin] for twin in renewed}, touched)


def _with_parents(db: sqlite3.Connection, numbers: Collection[int]) -> set[int]:
    """The spans, and the parents of those with waiting time, which is a fact of the call around it."""
    rows = db.execute(
        "SELECT p.id FROM span s JOIN span p ON p.trace = s.trace AND p.uid = s.parent "
        "WHERE s.waiting IS NOT NULL AND s.id IN (SELECT value FROM json_each(?))",
        (listed(numbers),),
    )
    return {*numbers, *(number for (number,) in rows)}


def _set_scopes(db: sqlite3.Connection, traces: Collection[int]) -> None:
    """Update the scopes of received spans: the session of a trace may be known only after some of its spans."""
    rows = db.execute(
        "SELECT id, native FROM trace WHERE id IN (SELECT value FROM json_each(?)) AND NOT projected",
        (listed(traces),),
    ).fetchall()
    db.executemany(
        "UPDATE span SET scope = ?1 WHERE trace = ?2 AND call IS NOT NULL AND scope IS NOT ?1",
        [(call_scope(native), trace) for trace, native in rows],
    )


def _names(db: sqlite3.Connection, traces: Collection[int]) -> tuple[set[str], set[int]]:
    """The names of the calls in the traces, and their scopes."""
    rows = db.execute(
        "SELECT call, alias, scope FROM span WHERE trace IN (SELECT value FROM json_each(?)) AND call IS NOT NULL "
        "AND scope IS NOT NULL",
        (listed(traces),),
    ).fetchall()
    return {name for *names, _ in rows for name in names if name is not None}, {scope for _, _, scope in rows}


def _reports(
    db: sqlite3.Connection, names: Collection[str], scopes: Collection[int]
) -> tuple[list[CallReport], dict[int, int]]:
    """The spans that report the calls, and those that may be their twins by another name; and their traces. Spans come
    before log records: they know more."""
    rows = db.execute(
        "WITH name AS (SELECT value FROM json_each(?)), scope AS (SELECT value FROM json_each(?)), "
        "one AS (SELECT call FROM span WHERE scope IN scope AND call IN name "
        "UNION SELECT call FROM span WHERE scope IN scope AND alias IN name) "
        "SELECT id, trace, call, alias, scope, session IS NOT NULL, type = ?, logged, start, twin FROM span "
        "WHERE scope IN scope AND call IN one ORDER BY logged, start, id",
        (listed(sorted(names)), listed(sorted(scopes)), _GENERATION),
    ).fetchall()
    reports = [
        CallReport(id, call, alias, scope, bool(projected), bool(of_model), bool(logged), start, twin)
        for id, _, call, alias, scope, projected, of_model, logged, start, twin in rows
    ]
    return reports, {id: trace for id, trace, *_ in rows}


class _Span(NamedTuple):
    trace: int
    uid: int
    parent: int | None
    facts: CallFacts


def enrich(db: sqlite3.Connection, shown: int, received: Iterable[int]) -> None:
    """Complete the span of a turn by the received spans that report the same call."""
    own = _span(db, shown)
    facts = merge_reports(own.facts, [_received_facts(db, number) for number in received])
    row = {**msgspec.structs.asdict(facts), "id": shown}
    row |= {"type": SPAN_TYPES.index(facts.type), "status": STATUSES.index(facts.status)}
    db.execute(_UPDATE_FACTS, row)
    if facts.waiting:
        db.execute(
            "UPDATE span SET waiting = max(coalesce(waiting, 0), (SELECT sum(waiting) FROM span "
            "WHERE trace = ?1 AND parent = ?2)) WHERE trace = ?1 AND uid = ?2",
            (own.trace, own.parent),
        )


def _span(db: sqlite3.Connection, number: int) -> _Span:
    trace, uid, parent, *values = db.execute(_SELECT_FACTS, (number,)).fetchone()
    row = dict(zip(_FACTS, values, strict=True))
    row |= {"type": SPAN_TYPES[row["type"]], "status": STATUSES[row["status"]]}
    return _Span(trace, uid, parent, CallFacts(**row))


def _received_facts(db: sqlite3.Connection, number: int) -> CallFacts:
    span = _span(db, number)
    (inside,) = db.execute(
        "SELECT sum(waiting) FROM span WHERE trace = ? AND parent = ? AND session IS NULL", (span.trace, span.uid)
    ).fetchone()
    if inside:
        span.facts.waiting = max(span.facts.waiting or 0, int(inside))
    return span.facts


def traces_of_calls(db: sqlite3.Connection, calls: Collection[str], starts: Collection[int] = ()) -> set[int]:
    """The traces with reports of these calls, of all times or near those at which they started."""
    if not calls:
        return set()
    first, last = (min(starts) - NEAR_MS, max(starts) + NEAR_MS) if starts else (0, _ALWAYS)
    rows = db.execute(
        "SELECT DISTINCT trace FROM span WHERE session IS NULL AND call IN (SELECT value FROM json_each(?)) "
        "AND start BETWEEN ? AND ?",
        (listed(sorted(calls)), first, last),
    )
    return {trace for (trace,) in rows}


def traces_beside(db: sqlite3.Connection, traces: Collection[int]) -> set[int]:
    """The traces with other reports of those calls that these traces report and a transcript shows."""
    rows = db.execute(
        "SELECT DISTINCT o.trace FROM span s JOIN span o ON o.call = s.call WHERE o.session IS NULL "
        "AND s.trace IN (SELECT value FROM json_each(?)) AND s.twin IS NOT NULL AND s.type = ? "
        "AND o.start BETWEEN s.start - ? AND s.start + ?",
        (listed(sorted(traces)), _GENERATION, NEAR_MS, NEAR_MS),
    )
    return {trace for (trace,) in rows}


class _Usage(NamedTuple):
    """A span of a trace, with what decides whether its usage counts."""

    number: int
    uid: int
    parent: int | None
    reports_usage: bool
    counts: bool
    call: str | None
    lacks_model: bool


def count_once(db: sqlite3.Connection, trace: int) -> None:
    """Mark the spans of a trace whose usage counts: none above a span with usage, none that repeats a report."""
    rows = db.execute(
        f"SELECT id, uid, parent, {REPORTS_USAGE}, counts, CASE WHEN session IS NULL THEN call END, "
        "session IS NULL AND model IS NULL AND type = ? AND coalesce(input, output) IS NOT NULL "
        "FROM span WHERE trace = ?",
        (_GENERATION, trace),
    )
    spans = [_Usage(*row) for row in rows]
    if lacking := [span.number for span in spans if span.lacks_model]:
        _inherit_models(db, trace, lacking)
    covered = above_usage([Node(span.uid, span.parent, bool(span.reports_usage)) for span in spans])
    calls = {span.call for span in spans if span.reports_usage and span.call is not None}
    repeated = _repeated(db, calls) if calls else set()
    counted = {span.number: span.uid not in covered and span.number not in repeated for span in spans}
    changes = [(counted[span.number], span.number) for span in spans if counted[span.number] != bool(span.counts)]
    db.executemany("UPDATE span SET counts = ? WHERE id = ?", changes)


def _inherit_models(db: sqlite3.Connection, trace: int, numbers: Collection[int]) -> None:
    """Model calls whose model only a span around them names: they get the name, and its price."""
    calls = db.execute(
        "SELECT id, parent, start, input, output, cache_read, cache_write, cache_write_1h FROM span "
        "WHERE id IN (SELECT value FROM json_each(?))",
        (listed(numbers),),
    ).fetchall()
    rows = db.execute("SELECT uid, parent, model FROM span WHERE trace = ?", (trace,))
    spans = {uid: (parent, model) for uid, parent, model in rows}
    for id, above, start, input, output, read, written, one_hour in calls:
        seen: set[int] = set()
        model = None
        while model is None and above in spans and above not in seen:
            seen.add(above)
            above, model = spans[above]
        if model is None:
            continue
        (name,) = db.execute("SELECT text FROM name WHERE id = ?", (model,)).fetchone()
        five_minutes = (written or 0) - (one_hour or 0)
        cost = price(name, Tokens(input or 0, output or 0, read or 0, five_minutes, one_hour or 0), start)
        db.execute("UPDATE span SET model = ?, cost = coalesce(cost, ?) WHERE id = ?", (model, cost, id))


def _repeated(db: sqlite3.Connection, calls: Collection[str]) -> set[int]:
    """The reports that do not count. A cost that only they report goes to the others."""
    rows = db.execute(
        "SELECT id, call, start, logged, twin IS NOT NULL, iif(cost_reported, cost, NULL) FROM span "
        f"WHERE session IS NULL AND {REPORTS_USAGE} AND call IN (SELECT value FROM json_each(?)) ORDER BY start, id",
        (listed(sorted(calls)),),
    ).fetchall()
    repeated = repeated_reports(
        UsageReport(id, call, start, bool(logged), bool(twin), cost) for id, call, start, logged, twin, cost in rows
    )
    db.executemany(
        "UPDATE span SET cost = ?, cost_reported = 1 WHERE id = ?", [(cost, number) for number, cost in repeated.costs]
    )
    return repeated.numbers
