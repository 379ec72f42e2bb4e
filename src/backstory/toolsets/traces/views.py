"""Rows of the store in the shapes of the contract."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from ...archive.spans import SpanRow, TraceRow
from ...model import event_id, rfc3339, session_id
from .types import Span, SpanData, Trace, TraceItem


def trace_item(row: TraceRow) -> TraceItem:
    return TraceItem(**_trace_fields(row))


def trace_view(row: TraceRow, spans: list[SpanRow]) -> Trace:
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
