"""Tokens, cost and latencies, added up by the server."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

from ...spans import STATUSES, SpanStats, StatsGroup, UsageDetail, UsageTotal, Window
from ..server import Server
from .conditions import Values

_QUARTER_MS = 900_000
_DAY_SECONDS = 86_400
# Before that there was nothing to count.
_FIRST_DAY = 1_420_070_400
_ERROR = STATUSES.index("error")
# Telemetry that does not name its calls repeats the usage of a session that has a transcript.
_COUNTED = (
    "(t.projected OR s.call IS NOT NULL OR t.native IS NULL "
    "OR t.native NOT IN (SELECT assumeNotNull(native) FROM trace FINAL WHERE projected AND native IS NOT NULL))"
)
_REPORTS_USAGE = "(s.input IS NOT NULL OR s.output IS NOT NULL OR s.total IS NOT NULL OR s.cost IS NOT NULL)"
_SPANS = "FROM span s FINAL JOIN trace t FINAL ON t.uid = s.trace"
_USAGE = f"""
SELECT toString(toDate(intDiv(s.start, 1000) + {{offset}}, 'UTC')) AS day, min(s.start), max(s.start),
    {{session}} AS key, t.project, s.model, t.source, count(), sum(ifNull(coalesce(s.input, s.total), 0)),
    sum(ifNull(s.output, 0)), sum(ifNull(s.cache_read, 0)), sum(ifNull(s.cache_write, 0)), sum(ifNull(s.reasoning, 0)),
    sumOrNull(s.cost), countIf(s.cost IS NULL)
{_SPANS} WHERE s.counts AND s.twin IS NULL AND {_REPORTS_USAGE} AND {_COUNTED} AND {{window}}
GROUP BY day, t.project, s.model, t.source, key, {{quarter}} ORDER BY day DESC, min(s.start)
"""
# For each group: the name of a span's group, the condition of a span to be in one, and the duration of a span.
_STATS: dict[StatsGroup, tuple[str, str, str]] = {
    "name": ("s.name", "true", "s.end - s.start"),
    "model": ("s.model", "s.model IS NOT NULL", "s.end - s.start"),
    "tool": ("s.name", "s.cause IS NOT NULL", "s.end - s.start - ifNull(s.waiting, 0)"),
}
_OWN_USAGE = "s.input AS input, s.output AS output, s.cost AS cost, 1 AS sharers"
_CAUSE_USAGE = (
    "g.input AS input, g.output AS output, g.cost AS cost, count() OVER (PARTITION BY s.trace, s.cause) AS sharers"
)
_CAUSE = " LEFT JOIN span g FINAL ON g.uid = s.cause AND g.trace = s.trace"


def usage_totals(server: Server, window: Window, detail: UsageDetail) -> list[UsageTotal]:
    values = Values()
    sql = _USAGE.format(
        offset=_local_offset(window),
        session="CAST(NULL, 'Nullable(String)')" if detail == "day" else "t.session",
        quarter=f"intDiv(s.start, {_QUARTER_MS})" if detail == "quarter" else "1",
        window=_within(window, values),
    )
    return [UsageTotal(**dict(zip(_USAGE_FIELDS, row, strict=True))) for row in server.rows(sql, values)]


_USAGE_FIELDS = (
    "day", "start", "end", "session", "project", "model", "source", "calls", "input_tokens", "output_tokens",
    "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "cost", "unpriced",
)  # fmt: skip


def span_stats(server: Server, window: Window, by: StatsGroup) -> list[SpanStats]:
    key, which, took = _STATS[by]
    usage, joined = (_CAUSE_USAGE, _CAUSE) if by == "tool" else (_OWN_USAGE, "")
    values = Values()
    rows = server.rows(
        "SELECT key, count, errors, total, ordered[intDiv(length(ordered) + 1, 2)], "
        "ordered[intDiv(length(ordered) * 95 + 99, 100)], length(ordered), tokens, paid "
        f"FROM (SELECT key, count() AS count, countIf(status = {_ERROR}) AS errors, sum(ifNull(ms, 0)) AS total, "
        "arraySort(groupArrayIf(assumeNotNull(ms), ms IS NOT NULL)) AS ordered, "
        "sum((ifNull(input, 0) + ifNull(output, 0)) / sharers) AS tokens, sumOrNull(cost / sharers) AS paid "
        f"FROM (SELECT assumeNotNull({key}) AS key, s.status AS status, {took} AS ms, {usage} {_SPANS}{joined} "
        f"WHERE s.twin IS NULL AND {which} AND {_within(window, values)}) GROUP BY key) ORDER BY count DESC, key",
        values,
    )
    return [
        SpanStats(
            name=name,
            count=count,
            errors=errors,
            milliseconds=int(ms),
            p50=p50 if ended else None,
            p95=p95 if ended else None,
            tokens=round(tokens),
            cost=cost,
        )
        for name, count, errors, ms, p50, p95, ended, tokens, cost in rows
    ]


def _within(window: Window, values: Values) -> str:
    tests = ["true"]
    if window.since is not None:
        tests.append(f"s.start >= {values.bind(window.since)}")
    if window.until is not None:
        tests.append(f"s.start < {values.bind(window.until)}")
    if window.source is not None:
        tests.append(f"t.source = {values.bind(window.source)}")
    if window.project is not None:
        part = f"position(caseFoldUTF8(t.project), {values.bind(window.project.casefold())}) > 0"
        tests.append(f"({part} OR has({values.bind([*window.folders])}, ifNull(t.project, '')))")
    return " AND ".join(tests)


def _local_offset(window: Window) -> str:
    """The seconds from UTC to the local time of this machine, as an expression on the start of a span."""
    first = max((window.since or 0) // 1000, _FIRST_DAY)
    last = int(time.time()) + _DAY_SECONDS if window.until is None else window.until // 1000
    parts = [f"s.start < {until * 1000}, {offset}" for until, offset in _offsets(first, last)]
    final = _offset(last)
    return f"multiIf({', '.join(parts)}, {final})" if parts else str(final)


def _offsets(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The offsets of the times between two, each with the time at which it ends; without the last one."""
    now = _offset(first)
    for day in range(first, last, _DAY_SECONDS):
        if _offset(day + _DAY_SECONDS) == now:
            continue
        before, after = day, day + _DAY_SECONDS
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if _offset(middle) == now else (before, middle)
        yield after, now
        now = _offset(after)


def _offset(seconds: int) -> int:
    local = datetime.fromtimestamp(seconds, UTC).astimezone().utcoffset()
    return int(local.total_seconds()) if local is not None else 0
