"""The shapes of the contract: requests, answers and errors of the four tools."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from ...archive.spans import Operator, SpanType, Status

ErrorCode = Literal["CONNECTION_FAILED", "INVALID_QUERY", "NOT_FOUND", "TIMEOUT", "PARTIAL_FAILURE"]
Number = int | float


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
