"""The rules of the four tools, and their cursors."""

from __future__ import annotations

import base64
import binascii
import time
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from ...archive.spans import Condition, Found, Position, Spans, TraceQuery
from ...model import digest
from .filters import check_sort, span_condition, trace_condition
from .types import (
    GetTrace,
    ListTraces,
    Refused,
    SearchSpans,
    SearchTraces,
    SpanPage,
    TraceAnswer,
    TraceList,
    TracePage,
)
from .views import span_view, trace_item, trace_view

_MAX_LIMIT = 200
_MAX_FILTERS = 50
# Enough to see what a span was about; get_trace has everything.
_EXCERPT_CHARS = 1_000
_MAX_CURSOR_CHARS = 16_384
_Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class Traces:
    """The four tools. A search that takes longer than `seconds` answers with the rows so far."""

    def __init__(self, spans: Spans, seconds: float) -> None:
        self._spans = spans
        self._seconds = seconds

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
        items = [trace_item(row) for row in found.rows]
        return TraceList(traces=items, count=len(items), warnings=self._warnings(found))

    def search_traces(self, request: SearchTraces) -> TracePage:
        check_sort(request.sortBy, of_spans=False)
        conditions = [trace_condition(given) for given in _filters(request)]
        query, offset, question = self._query("search_traces", request, conditions)
        found = self._spans.traces(query)
        page = self._page(found, offset, question)
        return TracePage(items=[trace_item(row) for row in found.rows], **page)

    def search_spans(self, request: SearchSpans) -> SpanPage:
        check_sort(request.sortBy, of_spans=True)
        conditions = [span_condition(given) for given in _filters(request)]
        if request.traceId is not UNSET:
            conditions.append(Condition("traceId", "eq", request.traceId.encode("utf-8", "replace").decode()))
        query, offset, question = self._query("search_spans", request, conditions)
        found = self._spans.spans(query, _EXCERPT_CHARS)
        page = self._page(found, offset, question)
        return SpanPage(items=[span_view(row) for row in found.rows], **page)

    def get_trace(self, request: GetTrace) -> TraceAnswer:
        if not request.traceId:
            raise Refused("INVALID_QUERY", "traceId must not be empty", field="traceId")
        id = request.traceId.encode("utf-8", "replace").decode()
        found = self._spans.trace(id) or self._spans.trace(id.lower())
        if found is None:
            raise Refused("NOT_FOUND", "Trace not found", traceId=id)
        return TraceAnswer(trace_view(*found))

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
    if not 1 <= value <= _MAX_LIMIT or value != int(value):
        raise Refused(
            "INVALID_QUERY", f"limit must be a whole number from 1 to {_MAX_LIMIT}", field="limit", value=value
        )
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
