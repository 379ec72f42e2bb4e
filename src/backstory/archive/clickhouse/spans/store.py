"""The traces on a ClickHouse server."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from ...errors import DeadlineExceeded
from ...rows import EventRow
from ...spans import (
    COUNT_LIMIT,
    Found,
    Origin,
    Position,
    SpanRow,
    SpanStats,
    StatsGroup,
    TraceQuery,
    TraceRow,
    UsageDetail,
    UsageTotal,
    Window,
)
from ...spantexts import Ordinals, cut, fill_from_events, parents_first, show_elsewhere
from ..server import Server
from .conditions import Sort, Values, span_sort, span_test, trace_sort, trace_test
from .rows import StoredSpan, known_keys, read_spans, read_spans_at, read_traces
from .totals import span_stats, usage_totals
from .writer import SpanWriter

_COUNT_SHARE = 0.6
T = TypeVar("T")
ReadRanges = Callable[[Sequence[Ordinals[str]]], Iterable[list[EventRow]]]


class _Table(NamedTuple):
    """A table to search: its name with an alias, the columns of a key, and the number that decides among equals."""

    source: str
    key: str
    number: str


_TRACES = _Table("trace t FINAL", "t.uid", "reinterpretAsInt64(sipHash64(t.uid))")
_SPANS = _Table("span s FINAL", "s.trace, s.uid", "reinterpretAsInt64(sipHash64(s.trace, s.uid))")
_SPANS_WITH_TRACES = _SPANS._replace(source="span s FINAL JOIN trace t FINAL ON t.uid = s.trace")


class ClickHouseSpans:
    """Any number of threads and processes may read and put."""

    def __init__(self, server: Server, read_events: ReadRanges) -> None:
        self._server = server
        self._read_events = read_events
        self.writer = SpanWriter(server)

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        self.writer.put(spans, origins)

    def check(self) -> None:
        self._server.row("SELECT count() FROM trace")

    # Searching

    def traces(self, query: TraceQuery) -> Found[TraceRow]:
        values = Values()
        tests = [trace_test(condition, values) for condition in query.conditions]
        found = self._find(_TRACES, query, tests, trace_sort(query.sort), values)
        rows = read_traces(self._server, [uid for (uid,) in found.rows])
        return _with_rows(found, [rows[uid].row() for (uid,) in found.rows if uid in rows])

    def spans(self, query: TraceQuery, chars: int) -> Found[SpanRow]:
        values = Values()
        tests = ["s.twin IS NULL", *(span_test(condition, values) for condition in query.conditions)]
        sort = span_sort(query.sort, values)
        table = _SPANS_WITH_TRACES if any("t." in key for key in sort.keys) else _SPANS
        found = self._find(table, query, tests, sort, values)
        stored = read_spans_at(self._server, [(trace, uid) for trace, uid in found.rows])
        spans = self._with_texts([stored[key] for key in map(tuple, found.rows) if key in stored])
        for span in spans:
            cut(span, chars)
        return _with_rows(found, spans)

    def _find(
        self, table: _Table, query: TraceQuery, tests: Sequence[str], sort: Sort, values: Values
    ) -> Found[Sequence[Any]]:
        """The keys of a page of matching rows."""
        where = " AND ".join(tests) or "true"
        number, order, beyond = table.number, *(("DESC", "<") if query.descending else ("ASC", ">"))
        total = None
        try:
            total = self._count(table, where, query, values)
            after = _after(query.after, sort, number, beyond, values)
            ordered = ", ".join(f"{key} {order}" for key in (*sort.keys, number))
            rows = self._server.rows(
                f"SELECT {sort.present}, {number}, {', '.join(sort.keys)}, {table.key} FROM {table.source} "
                f"WHERE {where}{after} ORDER BY {sort.present} DESC, {ordered} LIMIT {query.limit + 1}",
                values,
                query.deadline,
            )
        except DeadlineExceeded:
            return Found(rows=[], more=True, complete=False)
        page = rows[: query.limit]
        last = None
        if page:
            present, place, *rest = page[-1]
            last = Position(sort.value(rest[: len(sort.keys)]) if present else None, place)
        keys = [row[2 + len(sort.keys) :] for row in page]
        return Found(rows=keys, more=len(rows) > query.limit, total=total, last=last)

    def _count(self, table: _Table, where: str, query: TraceQuery, values: Values) -> int | None:
        """The number of matches, up to the limit of counting and within a part of the time."""
        now = time.monotonic()
        until = None if query.deadline is None else now + (query.deadline - now) * _COUNT_SHARE
        sql = f"SELECT count() FROM (SELECT 1 FROM {table.source} WHERE {where} LIMIT {COUNT_LIMIT + 1})"
        try:
            (count,) = self._server.row(sql, values, until)
        except DeadlineExceeded:
            return None
        return int(count) if count <= COUNT_LIMIT else None

    # Reading

    def trace(
        self, id: str, only: Collection[int] | None = None, *, texts: bool = True
    ) -> tuple[TraceRow, list[SpanRow]] | None:
        trace = read_traces(self._server, [id]).get(id)
        if trace is None:
            return None
        if only is None:
            stored = read_spans(self._server, [id], texts=texts)
        else:
            stored = list(read_spans_at(self._server, [(id, uid) for uid in only]).values())
        stored.sort(key=lambda span: (span.start, span.uid))
        known = {span.key: span for span in stored}
        spans = self._with_texts(stored) if texts else [span.row(known, trace) for span in stored]
        twins = {span.uid: (span.twin_trace or "", span.twin) for span in stored if span.twin is not None}
        for span in spans:
            if span.id in twins:
                show_elsewhere(span, twins[span.id])
        return trace.row(), parents_first(spans)

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        return usage_totals(self._server, window, detail)

    def stats(self, window: Window, by: StatsGroup, *, latencies: bool = True) -> list[SpanStats]:
        return span_stats(self._server, window, by)

    def _with_texts(self, stored: Sequence[StoredSpan]) -> list[SpanRow]:
        """Received spans have their texts beside them, those of turns in their events."""
        keys = {span.key for span in stored}
        parents = {(span.trace, span.parent) for span in stored if span.parent is not None}
        keys |= known_keys(self._server, parents - keys)
        traces = read_traces(self._server, {span.trace for span in stored})
        known = dict.fromkeys(keys)
        spans = [(span.events_of, span.row(known, traces[span.trace])) for span in stored if span.trace in traces]
        fill_from_events([(events, span) for events, span in spans if events], self._read_events)
        return [span for _, span in spans]


def _after(after: Position | None, sort: Sort, number: str, beyond: str, values: Values) -> str:
    """The condition that a row comes after the page before; rows without a value are last."""
    if after is None:
        return ""
    place = values.bind(after.number)
    if after.value is None:
        return f" AND NOT {sort.present} AND {number} {beyond} {place}"
    bound = ", ".join(values.bind(value) for value in sort.bound(after.value))
    keys = ", ".join(f"assumeNotNull({key})" for key in sort.keys)
    return f" AND (NOT {sort.present} OR ({keys}, {number}) {beyond} ({bound}, {place}))"


def _with_rows(found: Found[Any], rows: list[T]) -> Found[T]:
    return Found(rows=rows, more=found.more, total=found.total, last=found.last, complete=found.complete)
