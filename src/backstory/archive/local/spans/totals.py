"""Tokens, cost and latencies, added up."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...spans import SPAN_TYPES, STATUSES, SpanStats, StatsGroup, UsageDetail, UsageTotal, Window
from .calls import REPORTS_USAGE, count_once, listed
from .database import QUARTER_MS, USAGE_GROUPS, USAGE_OF_SPANS

_ERROR, _PENDING, _SUCCESS = (STATUSES.index(status) for status in ("error", "pending", "success"))
_SPAN, _GENERATION = SPAN_TYPES.index("SPAN"), SPAN_TYPES.index("GENERATION")

# Telemetry that does not name its calls repeats the usage of a session that has a transcript.
_COUNTED = """
(t.projected OR u.named OR t.native IS NULL
 OR t.native NOT IN (SELECT o.native FROM trace o WHERE o.projected AND o.native IS NOT NULL))
"""
# The columns that separate groups beside project, model and source. A quarter hour has its day, which is then computed
# for each group, not for each row.
_DETAILS: dict[UsageDetail, str] = {"day": "day", "session": "day, t.session", "quarter": "u.quarter, t.session"}
# For each group: the name of a span's group, the condition of a span to be in one, and the duration of a span.
_STATS: dict[StatsGroup, tuple[str, str, str]] = {
    "name": ("s.name", "1", "s.end - s.start"),
    "model": ("s.model", "s.model IS NOT NULL", "s.end - s.start"),
    "tool": ("s.name", "s.cause IS NOT NULL", "s.end - s.start - coalesce(s.waiting, 0)"),
}
_OWN_USAGE = "s.input, s.output, s.cost, 1 AS sharers"
_CAUSE_USAGE = "g.input, g.output, g.cost, count(*) OVER (PARTITION BY s.trace, s.cause) AS sharers"
# The calls of a tool that a model call asked for are added up before the model call is looked up, and nothing is sorted
# by duration: half the work of `span_stats`.
_TOOL_SUMS = """
WITH called AS MATERIALIZED (
    SELECT s.trace, s.cause, s.name, count(*) AS calls, sum(s.status = 0) AS errors, total({took}) AS ms
    FROM span s JOIN trace t ON t.id = s.trace WHERE s.twin IS NULL AND {which} AND {where} GROUP BY 1, 2, 3
), shared AS (SELECT *, 1.0 * calls / sum(calls) OVER (PARTITION BY trace, cause) AS share FROM called)
SELECT n.text, sum(c.calls), sum(c.errors), total(c.ms), NULL, NULL,
    total(c.share * (coalesce(g.input, 0) + coalesce(g.output, 0))), sum(c.share * g.cost)
FROM shared c LEFT JOIN span g ON g.trace = c.trace AND g.uid = c.cause JOIN name n ON n.id = c.name
GROUP BY c.name ORDER BY sum(c.calls) DESC, n.text
"""
_CAUSE = "LEFT JOIN span g ON g.uid = s.cause AND g.trace = s.trace"


def usage_totals(db: sqlite3.Connection, window: Window, detail: UsageDetail) -> list[UsageTotal]:
    usage, times = _usage_in(window)
    where, parameters = _where(Window(project=window.project, source=window.source, folders=window.folders))
    rows = db.execute(
        "SELECT date(u.quarter * 900, 'unixepoch', 'localtime') AS day, min(u.first) AS start, max(u.last) AS 'end', "
        "t.project AS project, m.text AS model, t.source AS source, sum(u.calls) AS calls, "
        "sum(u.input) AS input_tokens, sum(u.output) AS output_tokens, sum(u.cache_read) AS cache_read_tokens, "
        "sum(u.cache_write) AS cache_write_tokens, sum(u.reasoning) AS reasoning_tokens, sum(u.cost) AS cost, "
        f"sum(u.unpriced) AS unpriced, {'NULL' if detail == 'day' else 't.session'} AS session "
        f"FROM ({usage}) u JOIN trace t ON t.id = u.trace LEFT JOIN name m ON m.id = u.model "
        f"WHERE {_COUNTED} AND {where} GROUP BY {_DETAILS[detail]}, t.project, u.model, t.source "
        "ORDER BY day DESC",
        [*times, *parameters],
    )
    names = [name for name, *_ in rows.description]
    return [UsageTotal(**dict(zip(names, row, strict=True))) for row in rows]


def _usage_in(window: Window) -> tuple[str, list[int]]:
    """The rows of usage in a time. Those of whole quarter hours are stored; others are added up from the spans."""
    limits = [(sign, time) for sign, time in ((">=", window.since), ("<", window.until)) if time is not None]
    if all(time % QUARTER_MS == 0 for _, time in limits):
        conditions = " AND ".join(["1", *(f"quarter {sign} ?" for sign, _ in limits)])
        return f"SELECT * FROM usage WHERE {conditions}", [time // QUARTER_MS for _, time in limits]
    conditions = " AND ".join(f"s.start {sign} ?" for sign, _ in limits)
    return f"{USAGE_OF_SPANS} AND {conditions} {USAGE_GROUPS}", [time for _, time in limits]


def span_stats(db: sqlite3.Connection, window: Window, by: StatsGroup) -> list[SpanStats]:
    key, which, took = _STATS[by]
    usage, joined = (_CAUSE_USAGE, _CAUSE) if by == "tool" else (_OWN_USAGE, "")
    where, parameters = _where(window)
    rows = db.execute(
        f"WITH one AS (SELECT {key} AS key, s.status, {took} AS ms, {usage}, "
        f"row_number() OVER (PARTITION BY {key} ORDER BY s.end IS NULL, {took}) AS place, "
        f"count(s.end) OVER (PARTITION BY {key}) AS ended "
        f"FROM span s JOIN trace t ON t.id = s.trace {joined} WHERE s.twin IS NULL AND {which} AND {where}) "
        "SELECT n.text, count(*), sum(one.status = 0), total(ms), "
        "max(CASE WHEN place = (ended + 1) / 2 THEN ms END), "
        "max(CASE WHEN place = (ended * 95 + 99) / 100 THEN ms END), "
        "total(1.0 * (coalesce(input, 0) + coalesce(output, 0)) / sharers), sum(cost / sharers) "
        "FROM one JOIN name n ON n.id = one.key GROUP BY one.key ORDER BY count(*) DESC, n.text",
        parameters,
    )
    return _read_stats(rows)


def tool_sums(db: sqlite3.Connection, window: Window) -> list[SpanStats]:
    """The stats of tools without `p50` and `p95`."""
    _, which, took = _STATS["tool"]
    where, parameters = _where(window)
    return _read_stats(db.execute(_TOOL_SUMS.format(took=took, which=which, where=where), parameters))


def _read_stats(rows: Iterable[Any]) -> list[SpanStats]:
    return [
        SpanStats(
            name=name,
            count=count,
            errors=errors,
            milliseconds=int(ms),
            p50=p50,
            p95=p95,
            tokens=round(tokens),
            cost=cost,
        )
        for name, count, errors, ms, p50, p95, tokens, cost in rows
    ]


class _Sums(NamedTuple):
    """The spans of a trace, added up."""

    trace: int
    start: int
    latest: int
    errors: int
    reports: int
    received: int
    named: int
    tokens: int | None
    cost: float | None


class _Root(NamedTuple):
    """A span without a parent in its trace."""

    trace: int
    name: str
    end: int | None
    start: int
    of_turn: bool


_AMONG = "IN (SELECT value FROM json_each(?))"
_COUNTS = f"counts AND twin IS NULL AND {REPORTS_USAGE}"
_SUMS = (
    f"SELECT trace, min(start), max(coalesce(end, start)), sum(status = {_ERROR}), sum({REPORTS_USAGE}), "
    f"sum(session IS NULL), sum(call IS NOT NULL AND {REPORTS_USAGE}), "
    f"sum(CASE WHEN {_COUNTS} THEN coalesce(input, 0) + coalesce(output, 0) + coalesce(total, 0) END), "
    f"sum(CASE WHEN {_COUNTS} THEN cost END) FROM span WHERE trace {_AMONG} GROUP BY trace"
)
_ROOTS = (
    "SELECT s.trace, name.text, s.end, s.start, s.session IS NOT NULL FROM span s JOIN name ON name.id = s.name "
    f"WHERE s.trace {_AMONG} AND (s.parent IS NULL OR NOT EXISTS "
    "(SELECT 1 FROM span p WHERE p.trace = s.trace AND p.uid = s.parent)) ORDER BY s.trace, s.start, s.id"
)
# The time of the last thing that the agent did in a turn. Markers and calls without events may be later.
_TURN_ENDS = (
    f"SELECT trace, max(coalesce(end, start)) FROM span WHERE trace {_AMONG} AND session IS NOT NULL "
    f"AND (type = {_SPAN} OR (type = {_GENERATION} AND first IS NOT NULL)) GROUP BY trace"
)
_UPDATE_TRACE = (
    "UPDATE trace SET name = iif(named, name, ?), status = ?, start = ?, updated = ?, latency = ?, cost = ?, "
    "tokens = ? WHERE id = ?"
)


def refresh_traces(db: sqlite3.Connection, traces: Collection[int]) -> None:
    """Add up traces from their spans. One without any is deleted."""
    if not traces:
        return
    given = (listed(sorted(traces)),)
    sums = {row.trace: row for row in map(_Sums._make, db.execute(_SUMS, given))}
    db.executemany("DELETE FROM trace WHERE id = ?", [(trace,) for trace in traces if trace not in sums])
    mixed = [row.trace for row in sums.values() if row.received and (row.reports > 1 or row.named)]
    for trace in mixed:
        count_once(db, trace)
    if mixed:
        sums |= {row.trace: row for row in map(_Sums._make, db.execute(_SUMS, (listed(mixed),)))}
    roots: dict[int, list[_Root]] = {trace: [] for trace in sums}
    for root in map(_Root._make, db.execute(_ROOTS, given)):
        roots[root.trace].append(root)
    db.execute(f"DELETE FROM usage WHERE trace {_AMONG}", given)
    db.execute(f"INSERT INTO usage {USAGE_OF_SPANS} AND s.trace {_AMONG} {USAGE_GROUPS}", given)
    going_on = [trace for trace, found in roots.items() if any(root.of_turn and root.end is None for root in found)]
    ends = dict(db.execute(_TURN_ENDS, (listed(going_on),)).fetchall()) if going_on else {}
    db.executemany(_UPDATE_TRACE, [_totals(row, roots[row.trace], ends.get(row.trace)) for row in sums.values()])


def _totals(sums: _Sums, roots: Sequence[_Root], turn_end: int | None) -> tuple[Any, ...]:
    """The values of `_UPDATE_TRACE`. `turn_end` is the end so far of a turn that goes on."""
    pending = any(root.end is None for root in roots)
    start, latency = sums.start, None if pending else sums.latest - sums.start
    turn = next((root for root in roots if root.of_turn), None)
    if turn is not None:
        end = turn.end if turn.end is not None else turn_end
        start, latency = turn.start, None if end is None else end - turn.start
    status = _ERROR if sums.errors else _PENDING if pending else _SUCCESS
    name = roots[0].name if roots else None
    return name, status, start, sums.latest, latency, sums.cost, sums.tokens, sums.trace


def _where(window: Window) -> tuple[str, list[Any]]:
    conditions, parameters = ["1"], list[Any]()
    if window.since is not None:
        conditions.append("s.start >= ?")
        parameters.append(window.since)
    if window.until is not None:
        conditions.append("s.start < ?")
        parameters.append(window.until)
    if window.source is not None:
        conditions.append("t.source = ?")
        parameters.append(window.source)
    if window.project is not None:
        conditions.append("(holds(t.project, ?) OR t.project IN (SELECT value FROM json_each(?)))")
        parameters += [window.project.casefold(), msgspec.json.encode(window.folders).decode()]
    return " AND ".join(conditions), parameters
