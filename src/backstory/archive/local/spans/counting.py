"""Usage counts once: not again for the spans around a call, and not again for a second report of the same call."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec

from ....money import Tokens, price
from ...spans import SPAN_TYPES

__all__ = ["REPORTS_USAGE", "count_once", "traces_beside", "traces_of_calls"]

REPORTS_USAGE = "(input IS NOT NULL OR output IS NOT NULL OR total IS NOT NULL OR cost IS NOT NULL)"

_NEAR_MS = 3_600_000
_ALWAYS = 1 << 62
_GENERATION = SPAN_TYPES.index("GENERATION")

_encode = msgspec.json.Encoder().encode


class _Report(NamedTuple):
    """A received span that reports the usage of a call."""

    id: int
    call: str
    start: int
    logged: bool
    twin: int | None
    cost: float | None
    """As it was reported, not computed."""


def count_once(db: sqlite3.Connection, trace: int) -> None:
    """Mark the spans of a trace whose usage counts.

    Usage does not count if a descendant reports usage. Of a call that both spans and log records report, the spans
    count, unless log records tell of more such calls.
    """
    rows = db.execute(
        f"SELECT id, uid, parent, {REPORTS_USAGE}, counts, CASE WHEN session IS NULL THEN call END, "
        "session IS NULL AND model IS NULL AND type = ? AND coalesce(input, output) IS NOT NULL "
        "FROM span WHERE trace = ?",
        (_GENERATION, trace),
    ).fetchall()
    nameless = [row[0] for row in rows if row[6]]
    if nameless:
        _inherit_models(db, trace, nameless)
    covered = _covered((uid, parent, bool(reports)) for _, uid, parent, reports, *_ in rows)
    calls = {call for _, _, _, reports, _, call, _ in rows if reports and call is not None}
    repeated = _repeated(db, calls) if calls else set()
    changes = []
    for id, uid, _, _, counts, *_ in rows:
        counted = uid not in covered and id not in repeated
        if counted != bool(counts):
            changes.append((counted, id))
    if changes:
        db.executemany("UPDATE span SET counts = ? WHERE id = ?", changes)


def traces_of_calls(db: sqlite3.Connection, calls: Collection[str], starts: Collection[int] = ()) -> set[int]:
    """The traces with reports of these calls, of all times or near those at which they started."""
    if not calls:
        return set()
    first, last = (min(starts) - _NEAR_MS, max(starts) + _NEAR_MS) if starts else (0, _ALWAYS)
    rows = db.execute(
        "SELECT DISTINCT trace FROM span WHERE session IS NULL AND call IN (SELECT value FROM json_each(?)) "
        "AND start BETWEEN ? AND ?",
        (_encode(sorted(calls)).decode(), first, last),
    )
    return {trace for (trace,) in rows}


def traces_beside(db: sqlite3.Connection, traces: Collection[int]) -> set[int]:
    """The traces with other reports of those calls that these traces report and a transcript shows."""
    rows = db.execute(
        "SELECT DISTINCT o.trace FROM span s JOIN span o ON o.call = s.call WHERE o.session IS NULL "
        "AND s.trace IN (SELECT value FROM json_each(?)) AND s.twin IS NOT NULL AND s.type = ? "
        "AND o.start BETWEEN s.start - ? AND s.start + ?",
        (_encode(sorted(traces)).decode(), _GENERATION, _NEAR_MS, _NEAR_MS),
    )
    return {trace for (trace,) in rows}


def _covered(spans: Iterable[tuple[int, int | None, bool]]) -> set[int]:
    """The spans that are above one with usage."""
    spans = list(spans)
    parents = {uid: parent for uid, parent, _ in spans}
    covered: set[int] = set()
    for uid, _, reports in spans:
        above = parents[uid] if reports else None
        while above is not None and above in parents and above not in covered:
            covered.add(above)
            above = parents[above]
    return covered


def _inherit_models(db: sqlite3.Connection, trace: int, nameless: Collection[int]) -> None:
    """Model calls whose model only a span around them names: they get the name, and its price."""
    calls = db.execute(
        "SELECT id, parent, start, input, output, cache_read, cache_write, cache_write_1h FROM span "
        "WHERE id IN (SELECT value FROM json_each(?))",
        (_encode(list(nameless)).decode(),),
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
    """The reports of calls that other reports have told. A cost that only they report goes to the others."""
    rows = db.execute(
        "SELECT id, call, start, logged, twin, iif(cost_reported, cost, NULL) FROM span "
        f"WHERE session IS NULL AND {REPORTS_USAGE} AND call IN (SELECT value FROM json_each(?)) ORDER BY start, id",
        (_encode(sorted(calls)).decode(),),
    )
    # Names that are made of token counts come again, hours later: then it is another call.
    groups: list[tuple[list[_Report], list[_Report]]] = []
    latest: dict[str, tuple[int, int]] = {}
    for row in rows:
        report = _Report(*row)
        before, group = latest.get(report.call, (-_ALWAYS, 0))
        if report.start - before > _NEAR_MS:
            group = len(groups)
            groups.append(([], []))
        latest[report.call] = report.start, group
        groups[group][bool(report.logged)].append(report)
    repeated: set[int] = set()
    for spans, records in groups:
        counted, others = (spans, records) if len(spans) >= len(records) else (records, spans)
        repeated.update(report.id for report in others)
        # A transcript may show a call by its log record alone: spans of Codex do not say whose they are.
        shown = sum(report.twin is not None for report in others)
        unshown = [report for report in counted if report.twin is None]
        elsewhere = shown - (len(counted) - len(unshown))
        repeated.update(report.id for report in unshown[: max(elsewhere, 0)])
        for report, other in zip(counted, others, strict=False):
            if report.cost is None and other.cost is not None:
                db.execute("UPDATE span SET cost = ?, cost_reported = 1 WHERE id = ?", (other.cost, report.id))
    return repeated
