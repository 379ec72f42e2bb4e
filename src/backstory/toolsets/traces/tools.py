"""The trace tools as they are offered to agents."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from ...archive.base import Archive, ArchiveError
from ...config import Settings
from ...redact import Mode, egress_value
from ..base import Arguments, BadArgument, Reply, Tool, Toolset, decode_arguments
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

log = logging.getLogger(__name__)

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
exitCode, or any custom attribute), data.attributes.<name>. Long inputs and outputs come as excerpts."""


def toolset(archive: Archive, settings: Settings, seconds: float = _SECONDS) -> Toolset:
    """`seconds` is how long a search may take."""
    traces = Traces(archive.spans, seconds)
    redact = settings.redact
    return Toolset(
        name="traces",
        instructions=_INSTRUCTIONS,
        tools=(
            _tool("list_traces", _LIST, LIST_TRACES, ListTraces, TraceList, traces.list_traces, redact),
            _tool(
                "search_traces", _SEARCH_TRACES, SEARCH_TRACES, SearchTraces, TracePage, traces.search_traces, redact
            ),
            _tool("get_trace", _GET, GET_TRACE, GetTrace, TraceAnswer, traces.get_trace, redact),
            _tool("search_spans", _SEARCH_SPANS, SEARCH_SPANS, SearchSpans, SpanPage, traces.search_spans, redact),
        ),
    )


def _tool(
    name: str,
    description: str,
    schema: dict[str, Any],
    request: type[Request],
    answer: type[Any],
    handle: Callable[[Request], Any],
    redact: Mode,
) -> Tool:
    def handler(arguments: Arguments) -> Reply:
        try:
            data = msgspec.to_builtins(handle(decode_arguments(request, arguments)))
            return Reply.of(as_it_may_leave(data, redact), indent=2)
        except Refused as refused:
            return _error(refused)
        except BadArgument as bad:
            return _error(Refused("INVALID_QUERY", f"Invalid arguments: {bad.message}", field=bad.field))
        except ArchiveError as error:
            return _error(Refused("CONNECTION_FAILED", f"Cannot reach the traces: {error}"))
        except Exception:
            log.exception("%s failed", name)
            return _error(Refused("CONNECTION_FAILED", f"{name} failed unexpectedly; `backstory doctor` may tell why"))

    return Tool(
        name=name,
        description=description,
        input_schema=schema,
        output_schema=_output_schema(answer),
        handler=handler,
        read_only=True,
        idempotent=True,
    )


def _error(refused: Refused) -> Reply:
    body = ErrorBody(
        error=refused.message,
        code=refused.code,
        traceId=refused.details["traceId"] if refused.code == "NOT_FOUND" else UNSET,
        details=refused.details or UNSET,
    )
    # What the caller gave comes back in it, and need not be something JSON can say.
    plain = msgspec.json.decode(msgspec.json.encode(body, enc_hook=str))
    return Reply.of(egress_value(plain), is_error=True, indent=2)


def _output_schema(answer: type[Any]) -> dict[str, Any]:
    """The answer or an error. Clients want an object at the top, so the two are alternatives of one."""
    roots, definitions = msgspec.json.schema_components((answer, ErrorBody), ref_template="#/$defs/{name}")
    return {"type": "object", "anyOf": list(roots), "$defs": definitions}
