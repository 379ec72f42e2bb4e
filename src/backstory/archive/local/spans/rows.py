"""Rows of the trace store as structs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ...spans import SPAN_TYPES, STATUSES, Origin, SpanRow, TraceRow

__all__ = ["MAX_DEPTH", "SPAN_SELECT", "TRACE_COLUMNS", "flatten", "read_span", "read_trace"]

TRACE_COLUMNS = (
    "uid", "name", "status", "start", "updated", "latency", "cost", "tokens", "session", "source", "project",
    "dataset_run",
)  # fmt: skip
SPAN_SELECT = (
    "SELECT s.id, t.uid, s.uid, s.parent, n.text, s.type, s.status, s.start, s.end, m.text, s.input, s.output, "
    "s.cache_read, s.cache_write, s.reasoning, s.cost, s.cost_reported, r.text, s.exit_code, "
    "s.session, s.turn, s.first, s.last, f.data, c.input, c.output, c.tool_calls, "
    "EXISTS (SELECT 1 FROM span p WHERE p.uid = s.parent AND p.trace = s.trace), "
    "t.session, t.source, t.project, t.dataset_run, s.cache_write_1h, s.total, s.call, s.logged, "
    "s.waiting, s.last_turn, s.twin "
    "FROM span s JOIN trace t ON t.id = s.trace JOIN name n ON n.id = s.name "
    "LEFT JOIN name m ON m.id = s.model LEFT JOIN name r ON r.id = s.stop_reason "
    "LEFT JOIN facts f ON f.span = s.id LEFT JOIN content c ON c.span = s.id "
)
# What is nested deeper is found as its JSON text only.
MAX_DEPTH = 128

_decode = msgspec.json.Decoder().decode


def read_trace(values: Sequence[Any]) -> TraceRow:
    uid, name, status, *rest = values
    row = TraceRow(id=uid, name=name, status=STATUSES[status])
    row.start, row.updated, row.latency, row.cost, row.tokens, row.session, row.source, row.project = rest[:-1]
    row.dataset_run = rest[-1]
    return row


def read_span(values: Sequence[Any]) -> SpanRow:
    """Without input and output, which lie elsewhere."""
    facts = _decode(values[23]) if values[23] else {}
    return SpanRow(
        trace=values[1],
        id=values[2],
        parent=values[3] if values[27] else None,
        name=values[4],
        type=SPAN_TYPES[values[5]],
        status=STATUSES[values[6]],
        start=values[7],
        end=values[8],
        model=values[9],
        input_tokens=values[10],
        output_tokens=values[11],
        total_tokens=values[33],
        cache_read_tokens=values[12],
        cache_write_tokens=values[13],
        cache_write_1h_tokens=values[32],
        reasoning_tokens=values[14],
        cost=values[15],
        cost_reported=bool(values[16]),
        stop_reason=values[17],
        exit_code=values[18],
        waiting=values[36],
        call=values[34],
        logged=bool(values[35]),
        metadata=facts.get("metadata", {}),
        attributes=facts.get("attributes", {}),
        origin=Origin(session=values[28], source=values[29], project=values[30], dataset_run=values[31]),
    )


def flatten(table: dict[str, Any], depth: int = MAX_DEPTH) -> list[tuple[str, Any]]:
    """The leaves below a mapping with their paths; a list or an empty mapping counts as its JSON text."""
    leaves: list[tuple[str, Any]] = []
    for name, item in table.items():
        if isinstance(item, str | int | float):
            leaves.append((name, item))
        elif isinstance(item, dict) and item and depth:
            leaves += [(f"{name}.{path}", leaf) for path, leaf in flatten(item, depth - 1)]
        elif item is not None:
            leaves.append((name, msgspec.json.encode(item).decode()))
    return leaves
