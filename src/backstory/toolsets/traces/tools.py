"""The trace tools as they are offered to agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from ...archive.base import Archive, ArchiveError
from ...config import Settings
from ..base import BadArgument, Failure, Frame, Tool, Toolset, output_schema
from .errors import Refused
from .outgoing import as_it_may_leave
from .schemas import GET_TRACE, LIST_TRACES, SEARCH_SPANS, SEARCH_TRACES
from .service import Traces
from .types import (
    ErrorBody,
    GetTrace,
    ListTraces,
    SearchSpans,
    SearchTraces,
    SpanPage,
    TraceAnswer,
    TraceList,
    TracePage,
)

__all__ = ["toolset"]

Request = TypeVar("Request")

_SECONDS = 5.0
_INSTRUCTIONS = """\
Traces: what agents did, how long it took, what it cost; every turn is one. list_traces: the latest. search_traces: by \
status, latency, totalCost, data.model ... search_spans: model and tool calls, e.g. failed ones (status eq error). \
get_trace(traceId): all of one."""

_LIST = """\
List recent traces, newest first, optionally only those of a session or of a dataset run. A trace is one turn of an \
agent's session, or one OpenTelemetry trace: status, latency in ms, cost in USD, tokens."""
_SEARCH_TRACES = """\
Search for traces by attributes; all filters must match. Fields: id, name, status (success, error, pending), latency \
(ms), totalCost (USD), totalTokens, createdAt, updatedAt, and data.* for any span of the trace (data.type, data.model, \
data.inputTokens, data.outputTokens, data.totalCost, data.metadata.<path>). gt, gte, lt, lte compare numbers and \
times; contains finds a part of a text in any case."""
_GET = """\
Retrieve a trace with all its spans: model calls, tool calls with input, output and status, subagents and markers, \
linked by parentId."""
_SEARCH_SPANS = """\
Search for spans in all traces or in one; all filters must match. Fields: id, traceId, parentId, name (a tool's name, \
or "chat <model>"), startTime and endTime (Unix ms), status, data.type (GENERATION, SPAN, EVENT), data.model, \
data.inputTokens, data.outputTokens, data.totalCost, data.metadata.<path> (sessionId, project, source, stopReason, \
exitCode, or any custom attribute), data.attributes.<name>. Long inputs, outputs and attributes come as \
excerpts (data.metadata.truncated); get_trace has all of them."""


def toolset(archive: Archive, settings: Settings, seconds: float = _SECONDS) -> Toolset:
    """`seconds` is how long a search may take."""
    traces = Traces(archive.spans, seconds)
    frame = Frame(
        refuse=_refuse,
        unexpected=lambda message: _failure(Refused("CONNECTION_FAILED", message)),
        outgoing=lambda answer: as_it_may_leave(msgspec.to_builtins(answer), settings.redact),
        indent=2,
    )

    def tool(
        name: str,
        description: str,
        schema: dict[str, Any],
        request: type[Request],
        answer: type[Any],
        action: Callable[[Request], Any],
    ) -> Tool:
        return Tool(
            name=name,
            description=description,
            input_schema=schema,
            output_schema=output_schema(answer, ErrorBody),
            handler=frame.handler(name, request, action),
            structured_errors=True,
            read_only=True,
            idempotent=True,
        )

    return Toolset(
        name="traces",
        instructions=_INSTRUCTIONS,
        tools=(
            tool("list_traces", _LIST, LIST_TRACES, ListTraces, TraceList, traces.list_traces),
            tool("search_traces", _SEARCH_TRACES, SEARCH_TRACES, SearchTraces, TracePage, traces.search_traces),
            tool("get_trace", _GET, GET_TRACE, GetTrace, TraceAnswer, traces.get_trace),
            tool("search_spans", _SEARCH_SPANS, SEARCH_SPANS, SearchSpans, SpanPage, traces.search_spans),
        ),
    )


def _refuse(error: Exception) -> Failure | None:
    if isinstance(error, Refused):
        return _failure(error)
    if isinstance(error, BadArgument):
        return _failure(Refused("INVALID_QUERY", f"Invalid arguments: {error.message}", field=error.field))
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
