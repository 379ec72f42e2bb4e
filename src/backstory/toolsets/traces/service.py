"""The rules of the four tools, their cursors, and the shapes of their answers."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...archive.base import Archive
from ...archive.spans import Condition, Found, Position, SpanRow, Spans, TraceQuery, TraceRow
from ...model import digest, event_id, rfc3339, session_id
from .types import (
    GetTrace,
    ListTraces,
    Refused,
    SearchSpans,
    SearchTraces,
    Span,
    SpanData,
    SpanPage,
    Trace,
    TraceAnswer,
    TraceItem,
    TraceList,
    TracePage,
    check_sort,
    span_condition,
    stored_trace_id,
    trace_condition,
)

_MAX_LIMIT = 200
_MAX_FILTERS = 50
# Enough to see what a span was about; get_trace has everything.
_EXCERPT_CHARS = 1_000
_MAX_CURSOR_CHARS = 16_384
_Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Traces:
    """The four tools. A search that takes longer than `seconds` answers with the rows so far."""

    def __init__(self, archive: Callable[[], Archive], seconds: float) -> None:
        self._archive = archive
        self._seconds = seconds

    @property
    def _spans(self) -> Spans:
        return self._archive().spans

    def list_traces(self, request: ListTraces) -> TraceList:
        conditions = [
            Condition(name, "eq", value.encode("utf-8", "replace").decode())
            for name, value in (("sessionId", request.sessionId), ("datasetRunId", request.datasetRunId))
            if value is not UNSET
        ]
        query = TraceQuery(
            conditions=tuple(conditions), sort="createdAt", limit=_limit(request.limit), deadline=self._deadline()
        )
        found = self._spans.traces(query)
        items = [_trace_item(row) for row in found.rows]
        return TraceList(traces=items, count=len(items), warnings=self._warnings(found))

    def search_traces(self, request: SearchTraces) -> TracePage:
        check_sort(request.sortBy, of_spans=False)
        conditions = [trace_condition(given) for given in _filters(request)]
        query, offset, question = self._query("search_traces", request, conditions)
        found = self._spans.traces(query)
        page = self._page(found, offset, question)
        return TracePage(items=[_trace_item(row) for row in found.rows], **page)

    def search_spans(self, request: SearchSpans) -> SpanPage:
        check_sort(request.sortBy, of_spans=True)
        conditions = [span_condition(given) for given in _filters(request)]
        if request.traceId is not UNSET:
            conditions.append(Condition("traceId", "eq", stored_trace_id(request.traceId)))
        query, offset, question = self._query("search_spans", request, conditions)
        found = self._spans.spans(query, _EXCERPT_CHARS)
        page = self._page(found, offset, question)
        return SpanPage(items=[span_view(row) for row in found.rows], **page)

    def get_trace(self, request: GetTrace) -> TraceAnswer:
        if not request.traceId:
            raise Refused("INVALID_QUERY", "traceId must not be empty", field="traceId")
        found = self._spans.trace(stored_trace_id(request.traceId))
        if found is None:
            raise Refused("NOT_FOUND", "Trace not found", traceId=request.traceId.encode("utf-8", "replace").decode())
        return TraceAnswer(_trace_view(*found))

    def _query(
        self, tool: str, request: SearchTraces | SearchSpans, conditions: list[Condition]
    ) -> tuple[TraceQuery, int, tuple[Any, ...]]:
        """The query, the number of rows before its page, and the values that its cursor is bound to."""
        question = (tool, conditions, request.sortBy, request.sortOrder)
        offset, after = 0, None
        if not isinstance(request.cursor, UnsetType):
            offset, after = _read_cursor(request.cursor, *question)
        query = TraceQuery(
            conditions=tuple(conditions),
            sort=request.sortBy,
            descending=request.sortOrder == "desc",
            limit=_limit(request.limit),
            after=after,
            deadline=self._deadline(),
        )
        return query, offset, question

    def _page(self, found: Found[Any], offset: int, question: tuple[Any, ...]) -> dict[str, Any]:
        cursor: str | UnsetType = UNSET
        if found.more and found.last is not None:
            cursor = _make_cursor(offset + len(found.rows), found.last, *question)
        return {
            "total": UNSET if found.total is None else found.total,
            "cursor": cursor,
            "hasMore": found.more,
            "warnings": self._warnings(found),
        }

    def _warnings(self, found: Found[Any]) -> list[str] | UnsetType:
        if found.complete:
            return UNSET
        if not found.rows:
            raise Refused(
                "TIMEOUT",
                f"the search did not finish within {self._seconds:g} seconds; narrow it with another filter",
                seconds=self._seconds,
            )
        return [f"PARTIAL_FAILURE: after {self._seconds:g} seconds these are the matches so far; go on with the cursor"]

    def _deadline(self) -> float:
        return time.monotonic() + self._seconds


def _filters(request: SearchTraces | SearchSpans) -> list[Any]:
    if len(request.filters) > _MAX_FILTERS:
        raise Refused("INVALID_QUERY", f"at most {_MAX_FILTERS} filters, not {len(request.filters)}", field="filters")
    return request.filters


def _limit(value: float) -> int:
    """The limit, rounded down: the contract takes any number."""
    if not 1 <= value <= _MAX_LIMIT:
        raise Refused("INVALID_QUERY", f"limit must be a number from 1 to {_MAX_LIMIT}", field="limit", value=value)
    return int(value)


class _Cursor(Struct, frozen=True, forbid_unknown_fields=True):
    offset: _Integer
    value: _Integer | float | str | bool | None
    number: _Integer
    query: str


_decode_cursor = msgspec.json.Decoder(_Cursor).decode


def _make_cursor(offset: int, last: Position, *question: Any) -> str:
    cursor = _Cursor(offset, last.value, last.number, _fingerprint(question))
    return base64.b64encode(msgspec.json.encode(cursor)).decode("ascii")


def _read_cursor(text: str, *question: Any) -> tuple[int, Position]:
    """The number of rows before the page, and the position they end at. Raises Refused for a foreign cursor."""
    try:
        if len(text) > _MAX_CURSOR_CHARS:
            raise ValueError
        cursor = _decode_cursor(base64.b64decode(text, validate=True))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise Refused(
            "INVALID_QUERY", "Invalid cursor: pass the cursor of the page before exactly as it came", field="cursor"
        ) from None
    if cursor.query != _fingerprint(question):
        raise Refused(
            "INVALID_QUERY", "Invalid cursor: it belongs to another query; only limit may change", field="cursor"
        )
    return cursor.offset, Position(cursor.value, cursor.number)


def _fingerprint(question: tuple[Any, ...]) -> str:
    return digest(*map(repr, question)).hex()


# Rows of the archive in the shapes of the contract


def _trace_item(row: TraceRow) -> TraceItem:
    return TraceItem(**_trace_fields(row))


def _trace_view(row: TraceRow, spans: list[SpanRow]) -> Trace:
    # The facts of the whole trace stand once, at its root.
    views = [span_view(span, with_origin=span.parent is None) for span in spans]
    return Trace(**_trace_fields(row), spans=views)


def span_view(row: SpanRow, *, with_origin: bool = True) -> Span:
    metadata = _metadata(row, with_origin)
    return Span(
        id=_hex(row.id),
        traceId=row.trace,
        parentId=None if row.parent is None else _hex(row.parent),
        name=row.name,
        startTime=row.start,
        endTime=_given(row.end),
        status=row.status,
        data=SpanData(
            type=row.type,
            model=_given(row.model),
            inputTokens=_given(row.input_tokens),
            outputTokens=_given(row.output_tokens),
            totalCost=_given(row.cost),
            input=_given(row.input),
            output=_given(row.output),
            metadata=metadata or UNSET,
            attributes=row.attributes or UNSET,
            toolCalls=row.tool_calls or UNSET,
        ),
    )


def _trace_fields(row: TraceRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "name": _given(row.name),
        "status": row.status,
        "latency": _given(row.latency),
        "totalCost": _given(row.cost),
        "totalTokens": _given(row.tokens),
        "createdAt": rfc3339(row.start),
        "updatedAt": rfc3339(row.updated),
    }


def _metadata(row: SpanRow, with_origin: bool) -> dict[str, Any]:
    """Facts that the contract has no field for, and the metadata that was sent, which may have any name."""
    facts: dict[str, Any] = {
        "stopReason": row.stop_reason,
        "exitCode": row.exit_code,
        "waitingMs": row.waiting,
        "totalTokens": row.total_tokens,
        "cacheReadTokens": row.cache_read_tokens,
        "cacheWriteTokens": row.cache_write_tokens,
        "cacheWrite1hTokens": row.cache_write_1h_tokens,
        "reasoningTokens": row.reasoning_tokens,
        "costSource": None if row.cost is None else "reported" if row.cost_reported else "computed",
        "eventId": None if row.event is None else event_id(row.event),
        "truncated": row.cut or None,
        "shownBy": None if row.twin is None else {"traceId": row.twin[0], "spanId": _hex(row.twin[1])},
    }
    if with_origin:
        facts |= {
            "sessionId": None if row.origin.session is None else session_id(row.origin.session),
            "source": row.origin.source,
            "project": row.origin.project,
            "datasetRunId": row.origin.dataset_run,
        }
    return {**{name: value for name, value in facts.items() if value is not None}, **row.metadata}


def _hex(number: int) -> str:
    return f"{number & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def _given(value: Any) -> Any | UnsetType:
    return UNSET if value is None else value
