"""The traces and the usage of this machine and of the team as one: for the scope `both`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from ..archive.base import Archive, SessionsRequest
from ..archive.spanfields import OF_TRACE
from ..archive.spans import (
    Found,
    Origin,
    Position,
    SpanRow,
    Spans,
    SpanStats,
    StatsGroup,
    TraceQuery,
    TraceRow,
    UsageDetail,
    UsageTotal,
    Window,
)
from .limited import by_day

T = TypeVar("T")
R = TypeVar("R")

_TRACE_FIELDS = {
    "sessionId": "session",
    "datasetRunId": "dataset_run",
    "totalCost": "cost",
    "totalTokens": "tokens",
    "createdAt": "start",
    "updatedAt": "updated",
}
_SPAN_FIELDS = {
    "traceId": "trace",
    "parentId": "parent",
    "startTime": "start",
    "endTime": "end",
    "data.type": "type",
    "data.model": "model",
    "data.inputTokens": "input_tokens",
    "data.outputTokens": "output_tokens",
    "data.totalCost": "cost",
    "data.metadata.cacheReadTokens": "cache_read_tokens",
    "data.metadata.cacheWriteTokens": "cache_write_tokens",
    "data.metadata.cacheWrite1hTokens": "cache_write_1h_tokens",
    "data.metadata.reasoningTokens": "reasoning_tokens",
    "data.metadata.exitCode": "exit_code",
    "data.metadata.waitingMs": "waiting",
    "data.metadata.totalTokens": "total_tokens",
    "data.metadata.stopReason": "stop_reason",
}


class AskTeam(Protocol):
    def __call__(self, question: Callable[[Archive], T]) -> T | None:
        """The answer of the team's archive; None if it cannot be asked."""


class UnionSpans(Spans):
    """Of a session that both have, the spans of this machine. Statistics are of this machine alone: percentiles cannot
    be added up."""

    def __init__(self, local: Archive, ask_team: AskTeam) -> None:
        self._local = local
        self._ask_team = ask_team

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        self._local.spans.put(spans, origins)

    def traces(self, query: TraceQuery) -> Found[TraceRow]:
        return self._merged(
            query, lambda spans, part: spans.traces(part), lambda row: (row.session, row.id), trace_value
        )

    def spans(self, query: TraceQuery, chars: int) -> Found[SpanRow]:
        return self._merged(
            query, lambda spans, part: spans.spans(part, chars), lambda row: (row.origin.session, row.trace), span_value
        )

    def trace(
        self, id: str, only: Collection[int] | None = None, *, texts: bool = True
    ) -> tuple[TraceRow, list[SpanRow]] | None:
        own = self._local.spans.trace(id, only, texts=texts)
        return own if own is not None else self._ask_team(lambda team: team.spans.trace(id, only, texts=texts))

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        by_session: UsageDetail = "session" if detail == "day" else detail
        others = self._ask_team(lambda team: team.spans.usage(window, by_session))
        if not others:
            return self._local.spans.usage(window, detail)
        known = self._known(line.session for line in others)
        lines = self._local.spans.usage(window, by_session) + [line for line in others if line.session not in known]
        return by_day(lines) if detail == "day" else lines

    def stats(self, window: Window, by: StatsGroup, *, latencies: bool = True) -> list[SpanStats]:
        return self._local.spans.stats(window, by, latencies=latencies)

    def check(self) -> None:
        self._local.spans.check()

    def _merged(
        self,
        query: TraceQuery,
        find: Callable[[Spans, TraceQuery], Found[R]],
        place: Callable[[R], tuple[str | None, str]],
        value: Callable[[R, str], Any],
    ) -> Found[R]:
        """A page of the rows of both. `place` gives the session and the trace of a row, `value` what it is sorted by.
        The position of a page is the number of rows before it: the numbers of one archive mean nothing to the other."""
        start = 0 if query.after is None else query.after.number
        end = start + query.limit
        part = msgspec.structs.replace(query, after=None, limit=end + 1)
        own = find(self._local.spans, part)
        others = self._others(part, find, place)
        rows = sorted([*own.rows, *others.rows], key=lambda row: _sorted_by(value(row, query.sort)))
        if query.descending:
            rows.reverse()
        rows.sort(key=lambda row: value(row, query.sort) is None)
        more = len(rows) > end or own.more or others.more
        return Found(
            rows=rows[start:end],
            more=more,
            total=None if own.more or others.more else len(rows),
            last=Position(None, end),
            complete=own.complete and others.complete,
        )

    def _others(
        self,
        query: TraceQuery,
        find: Callable[[Spans, TraceQuery], Found[R]],
        place: Callable[[R], tuple[str | None, str]],
    ) -> Found[R]:
        """The first rows of the team that this machine does not have."""
        rows: list[R] = []
        while True:
            found = self._ask_team(lambda team, part=query: find(team.spans, part))  # type: ignore[misc]
            if found is None:
                return Found(rows=rows)
            known = self._known(place(row)[0] for row in found.rows)
            rows += [row for row in found.rows if not self._has(*place(row), known)]
            if len(rows) >= query.limit or not found.more or found.last is None:
                return Found(rows=rows, more=found.more, complete=found.complete)
            query = msgspec.structs.replace(query, after=found.last)

    def _known(self, keys: Any) -> set[str | None]:
        """Those of the sessions that this machine has."""
        given = tuple({key for key in keys if key is not None})
        return {row.key for row in self._local.sessions(SessionsRequest(keys=given, empty=True))} if given else set()

    def _has(self, session: str | None, trace: str, known: set[str | None]) -> bool:
        return session in known if session is not None else self._local.spans.trace(trace, (), texts=False) is not None


def trace_value(row: TraceRow, field: str) -> Any:
    """The value of a trace that a field sorts by."""
    return getattr(row, _TRACE_FIELDS.get(field, field))


def span_value(row: SpanRow, field: str) -> Any:
    """The value of a span that a field sorts by: its own, or one of its metadata or attributes."""
    if field in OF_TRACE:
        return getattr(row.origin, OF_TRACE[field])
    found = getattr(row, _SPAN_FIELDS.get(field, field), None)
    if found is not None or not field.startswith("data."):
        return found
    prefix, _, path = field.removeprefix("data.").partition(".")
    return row.attributes.get(path) if prefix == "attributes" else row.metadata.get(path, row.attributes.get(path))


def _sorted_by(value: Any) -> tuple[str, Any]:
    """Values of one kind beside each other: metadata may have any."""
    kind = "number" if isinstance(value, int | float) else "text"
    return ("", "") if value is None else (kind, value if isinstance(value, int | float | str) else repr(value))
