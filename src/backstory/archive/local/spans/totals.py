"""Tokens and money added up."""

from __future__ import annotations

import sqlite3
from typing import Any

from ...spans import SpanStats, StatsGroup, ToolUse, UsageDetail, UsageTotal, Window

__all__ = ["span_stats", "tool_uses", "usage_totals"]

# Telemetry that does not name its calls tells of a session with a transcript the same usage once more.
_COUNTED = """
s.counts AND s.twin IS NULL
AND (s.input IS NOT NULL OR s.output IS NOT NULL OR s.total IS NOT NULL OR s.cost IS NOT NULL)
AND (t.projected OR s.call IS NOT NULL OR t.native IS NULL
     OR NOT EXISTS (SELECT 1 FROM trace o WHERE o.native = t.native AND o.projected))
"""


# What tells groups apart beside day, project, model and source.
_DETAILS: dict[UsageDetail, str] = {"day": "NULL", "session": "t.session", "quarter": "s.start / 900000"}
# Spans by what: the name of a group, and which spans are in it.
_STATS: dict[StatsGroup, tuple[str, str]] = {
    "name": ("s.name", "1"),
    "model": ("s.model", "s.model IS NOT NULL"),
    "tool": ("s.name", "s.cause IS NOT NULL"),
}


def usage_totals(db: sqlite3.Connection, window: Window, detail: UsageDetail) -> list[UsageTotal]:
    where, parameters = _where(window)
    rows = db.execute(
        "SELECT date(s.start / 1000, 'unixepoch', 'localtime') AS day, min(s.start), max(s.start), t.project, m.text, "
        "t.source, count(*), total(coalesce(s.input, s.total)), total(s.output), total(s.cache_read), "
        "total(s.cache_write), total(s.reasoning), sum(s.cost), sum(s.cost IS NULL), "
        f"{'t.session' if detail == 'session' else 'NULL'} "
        "FROM span s JOIN trace t ON t.id = s.trace LEFT JOIN name m ON m.id = s.model "
        f"WHERE {_COUNTED} AND {where} GROUP BY day, t.project, s.model, t.source, {_DETAILS[detail]} "
        "ORDER BY day DESC",
        parameters,
    )
    return [
        UsageTotal(
            day=day,
            start=start,
            end=end,
            project=project,
            model=model,
            source=source,
            calls=calls,
            input_tokens=int(input),
            output_tokens=int(output),
            cache_read_tokens=int(cache_read),
            cache_write_tokens=int(cache_write),
            reasoning_tokens=int(reasoning),
            cost=cost,
            unpriced=unpriced,
            session=session,
        )
        for (
            day, start, end, project, model, source, calls, input, output, cache_read, cache_write, reasoning, cost,
            unpriced, session,
        ) in rows
    ]  # fmt: skip


def span_stats(db: sqlite3.Connection, window: Window, by: StatsGroup) -> list[SpanStats]:
    key, which = _STATS[by]
    took = "s.end - s.start" if by != "tool" else "s.end - s.start - coalesce(s.waiting, 0)"
    where, parameters = _where(window)
    rows = db.execute(
        f"WITH one AS (SELECT {key} AS key, s.status, {took} AS ms, s.input, s.output, s.cost, "
        f"row_number() OVER (PARTITION BY {key} ORDER BY s.end IS NULL, {took}) AS place, "
        f"count(s.end) OVER (PARTITION BY {key}) AS ended "
        f"FROM span s JOIN trace t ON t.id = s.trace WHERE s.twin IS NULL AND {which} AND {where}) "
        "SELECT n.text, count(*), sum(one.status = 0), "
        "max(CASE WHEN place = (ended + 1) / 2 THEN ms END), "
        "max(CASE WHEN place = (ended * 95 + 99) / 100 THEN ms END), "
        "total(coalesce(input, 0) + coalesce(output, 0)), sum(cost) "
        "FROM one JOIN name n ON n.id = one.key GROUP BY one.key ORDER BY count(*) DESC, n.text",
        parameters,
    )
    return [
        SpanStats(name=name, count=count, errors=errors, p50=p50, p95=p95, tokens=int(tokens), cost=cost)
        for name, count, errors, p50, p95, tokens, cost in rows
    ]


def tool_uses(db: sqlite3.Connection, window: Window) -> list[ToolUse]:
    """Of transcripts, where it is known which model call asked for which tools."""
    where, parameters = _where(window)
    rows = db.execute(
        "WITH call AS (SELECT s.name, s.status, s.start, s.end, s.waiting, s.trace, s.cause, "
        "count(*) OVER (PARTITION BY s.trace, s.cause) AS sharers "
        f"FROM span s JOIN trace t ON t.id = s.trace WHERE s.cause IS NOT NULL AND {where}) "
        "SELECT n.text, count(*), sum(c.status = 0), total(c.end - c.start - coalesce(c.waiting, 0)), "
        "total(1.0 * (coalesce(g.input, 0) + coalesce(g.output, 0)) / c.sharers), sum(g.cost / c.sharers) "
        "FROM call c JOIN name n ON n.id = c.name LEFT JOIN span g ON g.uid = c.cause AND g.trace = c.trace "
        "GROUP BY c.name ORDER BY count(*) DESC",
        parameters,
    )
    return [
        ToolUse(tool=tool, calls=calls, errors=errors, milliseconds=int(ms), tokens=round(tokens), cost=cost)
        for tool, calls, errors, ms, tokens, cost in rows
    ]


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
        conditions.append("holds(t.project, ?)")
        parameters.append(window.project.casefold())
    return " AND ".join(conditions), parameters
