"""The shapes of the contract: requests, answers and errors of the four tools; the fields of filters and sort orders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from ...archive.spans import Condition, Operator, SpanType, Status, Value
from ..base import cut_text

ErrorCode = Literal["CONNECTION_FAILED", "INVALID_QUERY", "NOT_FOUND", "TIMEOUT", "PARTIAL_FAILURE"]
Number = int | float
Kind = Literal["text", "number", "time", "moment", "any"]
"""A time is a number to callers, a moment is an ISO text; both are compared with either."""

TRACE_FIELDS: Mapping[str, Kind] = {
    "id": "text",
    "name": "text",
    "status": "text",
    "latency": "number",
    "totalCost": "number",
    "totalTokens": "number",
    "createdAt": "moment",
    "updatedAt": "moment",
}
SPAN_FIELDS: Mapping[str, Kind] = {
    "id": "text",
    "traceId": "text",
    "parentId": "text",
    "name": "text",
    "startTime": "time",
    "endTime": "time",
    "status": "text",
    "data.type": "text",
    "data.model": "text",
    "data.inputTokens": "number",
    "data.outputTokens": "number",
    "data.totalCost": "number",
}
_OPEN = ("data.metadata.", "data.attributes.")
_MAX_PARTS = 500
# Span ids are numbers to the archive, so `id` of a span may be written in either case anyway.
_TRACE_IDS = ("id", "traceId")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS = ("gt", "gte", "lt", "lte")
_WORDS: Mapping[Kind, str] = {
    "text": "a text",
    "number": "a number",
    "time": "a time: milliseconds or an ISO 8601 text",
    "moment": "a time: milliseconds or an ISO 8601 text",
    "any": "a text, a number or a boolean",
}


# Requests. The service checks limits, with better messages than a decoder has.


class Filter(Struct, frozen=True):
    field: str
    operator: Operator
    value: str | int | float | bool


class ListTraces(Struct, frozen=True, forbid_unknown_fields=True):
    limit: Number = 50
    sessionId: str | UnsetType = UNSET
    datasetRunId: str | UnsetType = UNSET


class SearchTraces(Struct, frozen=True, forbid_unknown_fields=True):
    filters: list[Filter] = []
    limit: Number = 50
    cursor: str | UnsetType = UNSET
    sortBy: str = "createdAt"
    sortOrder: Literal["asc", "desc"] = "desc"


class GetTrace(Struct, frozen=True, forbid_unknown_fields=True):
    traceId: str


class SearchSpans(Struct, frozen=True, forbid_unknown_fields=True):
    filters: list[Filter] = []
    traceId: str | UnsetType = UNSET
    limit: Number = 50
    cursor: str | UnsetType = UNSET
    sortBy: str = "startTime"
    sortOrder: Literal["asc", "desc"] = "desc"


# Answers.


class TraceItem(Struct, frozen=True, kw_only=True):
    id: str
    name: str | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    latency: Number | UnsetType = UNSET
    totalCost: Number | UnsetType = UNSET
    totalTokens: int | UnsetType = UNSET
    createdAt: str | UnsetType = UNSET
    updatedAt: str | UnsetType = UNSET


class SpanData(Struct, frozen=True, kw_only=True):
    type: SpanType | UnsetType = UNSET
    model: str | UnsetType = UNSET
    inputTokens: int | UnsetType = UNSET
    outputTokens: int | UnsetType = UNSET
    totalCost: Number | UnsetType = UNSET
    input: Any | UnsetType = UNSET
    output: Any | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    attributes: dict[str, Any] | UnsetType = UNSET
    toolCalls: list[dict[str, Any]] | UnsetType = UNSET


class Span(Struct, frozen=True, kw_only=True):
    id: str
    traceId: str
    parentId: str | None
    name: str
    startTime: int
    endTime: int | UnsetType = UNSET
    status: Status | UnsetType = UNSET
    data: SpanData


class Trace(TraceItem, frozen=True, kw_only=True):
    spans: list[Span]


class TraceList(Struct, frozen=True, kw_only=True):
    traces: list[TraceItem]
    count: int
    warnings: list[str] | UnsetType = UNSET


class TracePage(Struct, frozen=True, kw_only=True):
    items: list[TraceItem]
    total: int | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    hasMore: bool
    warnings: list[str] | UnsetType = UNSET


class SpanPage(Struct, frozen=True, kw_only=True):
    items: list[Span]
    total: int | UnsetType = UNSET
    cursor: str | UnsetType = UNSET
    hasMore: bool
    warnings: list[str] | UnsetType = UNSET


class TraceAnswer(Struct, frozen=True):
    trace: Trace


class ErrorBody(Struct, frozen=True, kw_only=True):
    error: str
    code: ErrorCode
    traceId: str | UnsetType = UNSET
    details: dict[str, Any] | UnsetType = UNSET


class Refused(Exception):
    """The contract's code, what was wrong, and what the caller needs to get it right."""

    def __init__(self, code: ErrorCode, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.details = details


def trace_condition(given: Filter) -> Condition:
    """A condition on a trace; `data.*` is about any of its spans."""
    kind = TRACE_FIELDS.get(given.field)
    if kind is None and given.field.startswith("data."):
        kind = _span_kind(given.field)
    if kind is None:
        raise _unknown("filter", given.field, [*TRACE_FIELDS, "data.*"])
    return _condition(given, kind)


def span_condition(given: Filter) -> Condition:
    kind = _span_kind(given.field)
    if kind is None:
        raise _unknown("filter", given.field, _span_names())
    return _condition(given, kind)


def check_sort(field: str, *, of_spans: bool) -> None:
    if of_spans:
        if _span_kind(field) is None:
            raise _unknown("sortBy", field, _span_names())
    elif field not in TRACE_FIELDS:
        raise _unknown("sortBy", field, list(TRACE_FIELDS))


def _span_names() -> list[str]:
    return [*SPAN_FIELDS, *(f"{prefix}*" for prefix in _OPEN)]


def _span_kind(field: str) -> Kind | None:
    if field in SPAN_FIELDS:
        return SPAN_FIELDS[field]
    if field.count(".") >= _MAX_PARTS:
        raise Refused("INVALID_QUERY", f"Invalid path: at most {_MAX_PARTS} parts", field=cut_text(field, 100))
    return "any" if any(field.startswith(prefix) and field != prefix for prefix in _OPEN) else None


def _unknown(where: str, field: str, valid: list[str]) -> Refused:
    of_spans = [name for name in SPAN_FIELDS if name.startswith("data.") and "data.*" in valid]
    known = {name.lower(): name for name in [*valid, *of_spans] if not name.endswith("*")}
    near = get_close_matches(field.lower()[:80], known, 1, 0.5)
    nearest = {"nearest": known[near[0]]} if near else {}
    return Refused(
        "INVALID_QUERY", f"Invalid {where}: unknown field '{field}'", field=field, validFields=valid, **nearest
    )


def _condition(given: Filter, kind: Kind) -> Condition:
    operator, value = given.operator, given.value
    if operator == "contains":
        if kind not in ("text", "moment", "any"):
            raise _clash(given, f"'contains' needs a text field, and '{given.field}' is {_WORDS[kind]}")
        if not isinstance(value, str):
            raise _clash(given, "'contains' needs a text to look for")
        return Condition(given.field, operator, _storable(value))
    if operator in _COMPARISONS and (kind == "text" or (kind == "any" and not _is_number(value))):
        wants = f"'{given.field}' is a text" if kind == "text" else "the value is not a number"
        raise _clash(given, f"'{operator}' compares numbers, and {wants}")
    if kind in ("time", "moment"):
        return Condition(given.field, operator, _milliseconds(given))
    if (kind == "text" and not isinstance(value, str)) or (kind == "number" and not _is_number(value)):
        raise _clash(given, f"'{given.field}' is {_WORDS[kind]}")
    if isinstance(value, str):
        value = stored_trace_id(value) if given.field in _TRACE_IDS else _storable(value)
    return Condition(given.field, operator, value)


def stored_trace_id(given: str) -> str:
    """The id of a trace as it is stored: those of OpenTelemetry in lower case, the ids of turns as they are."""
    return given.lower() if _HEX.fullmatch(given) else _storable(given)


def _milliseconds(given: Filter) -> Value:
    value = given.value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            problem = f"'{given.field}' is {_WORDS['time']}, and '{cut_text(value, 80)}' is neither"
            raise _clash(given, problem) from None
        # Any year, to the microsecond: it is compared, not stored.
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
        whole, rest = divmod(since, timedelta(milliseconds=1))
        return whole + rest / timedelta(milliseconds=1) if rest else whole
    if not _is_number(value):
        raise _clash(given, f"'{given.field}' is {_WORDS['time']}")
    return value


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _storable(text: str) -> str:
    """The text without lone surrogates, which no stored text has."""
    return text.encode("utf-8", "replace").decode()


def _clash(given: Filter, problem: str) -> Refused:
    return Refused(
        "INVALID_QUERY",
        f"Invalid filter: {problem}",
        field=given.field,
        operator=given.operator,
        value=_storable(given.value) if isinstance(given.value, str) else given.value,
    )
