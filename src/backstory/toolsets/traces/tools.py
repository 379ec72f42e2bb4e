"""The trace tools as they are offered to agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from msgspec import UNSET

from ...archive.base import Archive, ArchiveError
from ...config import Settings
from ..base import BadArgument, Failure, Frame, Tool, Toolset, output_schema
from .service import Traces
from .types import (
    ErrorBody,
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

Request = TypeVar("Request")

_SECONDS = 5.0
_INSTRUCTIONS = """\
Traces: what agents did, how long it took, what it cost; every turn is one. search_traces finds slow, failed or \
expensive work, get_trace shows its model and tool calls."""

_LIST_TRACES = """\
Recent traces (turns of agents, OpenTelemetry traces), newest first: status, latency (ms), cost (USD), tokens."""
_SEARCH_TRACES = """\
Find traces by attributes. Fields: id, name, status (success, error, pending), latency (ms), totalCost (USD), \
totalTokens, createdAt, updatedAt; of any span data.type, data.model, data.totalCost, data.metadata.<path> ..."""
_GET_TRACE = (
    "A trace with all its spans: model and tool calls with input, output and status. Tells why it was slow or failed."
)
_SEARCH_SPANS = """\
Find spans: model calls ("chat <model>"), tool calls (the tool's name), markers. Fields: id, traceId, parentId, name, \
startTime, endTime (Unix ms), status, data.type (GENERATION, SPAN, EVENT), data.model, data.inputTokens, \
data.outputTokens, data.totalCost, data.metadata.<path> (sessionId, project, exitCode, any custom one), \
data.attributes.<name>. Long values are excerpts; get_trace has all."""

# The input schemas, as the contract writes them.


def _filters(field: dict[str, str], operator: dict[str, str], value: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "field": {"type": "string", **field},
                "operator": {
                    "type": "string",
                    "enum": ["eq", "ne", "gt", "gte", "lt", "lte", "contains"],
                    **operator,
                },
                "value": {"oneOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}], **value},
            },
            "required": ["field", "operator", "value"],
        },
        "default": [],
        "description": "Filter criteria (combined with AND)",
    }


def _closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


def _limit(**description: str) -> dict[str, Any]:
    return {"type": "number", "minimum": 1, "maximum": 200, "default": 50, **description}


_ORDER = {"type": "string", "enum": ["asc", "desc"], "default": "desc"}

_LIST_TRACES_INPUT = _closed(
    {
        "limit": _limit(description="Maximum number of traces to return"),
        "sessionId": {"type": "string", "description": "Filter traces by session ID"},
        "datasetRunId": {"type": "string", "description": "Filter traces by dataset run ID"},
    }
)
_SEARCH_TRACES_INPUT = _closed(
    {
        "filters": _filters(
            {"description": "Attribute path to filter (e.g., 'status', 'data.model')"},
            {"description": "Comparison operator"},
            {"description": "Value to compare against"},
        ),
        "limit": _limit(description="Results per page"),
        "cursor": {"type": "string", "description": "Pagination cursor from previous response"},
        "sortBy": {"type": "string", "default": "createdAt", "description": "Field to sort by"},
        "sortOrder": {**_ORDER, "description": "Sort direction"},
    }
)
_GET_TRACE_INPUT = _closed(
    {"traceId": {"type": "string", "minLength": 1, "description": "The trace ID to retrieve"}}, "traceId"
)
_SEARCH_SPANS_INPUT = _closed(
    {
        "filters": _filters({}, {}, {}),
        "traceId": {"type": "string", "description": "Limit search to specific trace"},
        "limit": _limit(),
        "cursor": {"type": "string"},
        "sortBy": {"type": "string", "default": "startTime"},
        "sortOrder": _ORDER,
    }
)


def toolset(archive: Callable[[], Archive], settings: Settings, seconds: float = _SECONDS) -> Toolset:
    """`seconds` is the time limit of a search."""
    traces = Traces(archive, seconds)
    frame = Frame(
        refuse=_refuse,
        unexpected=lambda message: _failure(Refused("CONNECTION_FAILED", message)),
        mode=settings.redact,
        indent=2,
    )

    def tool(
        name: str,
        description: str,
        schema: dict[str, Any],
        request: type[Request],
        answer: type[Any],
        action: Callable[[Request], Any],
        offer: Literal["default", "named"] = "default",
    ) -> Tool:
        return Tool(
            name=name,
            description=description,
            input=lambda: schema,
            output=output_schema(answer, ErrorBody),
            handler=frame.handler(name, request, action),
            structured_errors=True,
            offer=offer,
            read_only=True,
            idempotent=True,
        )

    return Toolset(
        name="traces",
        instructions=_INSTRUCTIONS,
        tools=(
            tool("list_traces", _LIST_TRACES, _LIST_TRACES_INPUT, ListTraces, TraceList, traces.list_traces),
            tool("search_traces", _SEARCH_TRACES, _SEARCH_TRACES_INPUT, SearchTraces, TracePage, traces.search_traces),
            tool("get_trace", _GET_TRACE, _GET_TRACE_INPUT, GetTrace, TraceAnswer, traces.get_trace),
            tool(
                "search_spans",
                _SEARCH_SPANS,
                _SEARCH_SPANS_INPUT,
                SearchSpans,
                SpanPage,
                traces.search_spans,
                offer="named",
            ),
        ),
    )


def _refuse(error: Exception) -> Failure | None:
    if isinstance(error, Refused):
        return _failure(error)
    if isinstance(error, BadArgument):
        said = f"Invalid arguments: {error.message}"
        return _failure(Refused("INVALID_QUERY", said, field=error.field, **error.choice))
    if isinstance(error, ArchiveError):
        return _failure(Refused("CONNECTION_FAILED", f"Cannot reach the traces: {error}"))
    return None


def _failure(refused: Refused) -> Failure:
    body = ErrorBody(
        error=refused.message,
        code=refused.code,
        traceId=refused.details["traceId"] if refused.code == "NOT_FOUND" else UNSET,
        details=refused.details or UNSET,
    )
    return Failure(body)
