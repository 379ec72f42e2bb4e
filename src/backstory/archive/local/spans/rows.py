"""Rows of the tables as the structs of `archive/spans.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from ...spans import SPAN_TYPES, STATUSES, EventRange, Origin, SpanRow, TraceRow
from ...spantexts import EventsOf

_decode = msgspec.json.Decoder().decode


class StoredTrace(NamedTuple):
    """A row of `TRACE_SELECT`."""

    number: int
    id: str
    name: str | None
    status: int
    start: int
    updated: int
    latency: int | None
    cost: float | None
    tokens: int | None
    session: str | None
    source: str | None
    project: str | None
    dataset_run: str | None

    def row(self) -> TraceRow:
        fields = {name: getattr(self, name) for name in TraceRow.__struct_fields__}
        return TraceRow(**{**fields, "status": STATUSES[self.status]})


class StoredSpan(NamedTuple):
    """A row of `SPAN_SELECT`. Names, facts and texts are joined to it."""

    number: int
    trace: str
    id: int
    parent: int | None
    name: str
    type: int
    status: int
    start: int
    end: int | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    cache_write_1h_tokens: int | None
    reasoning_tokens: int | None
    cost: float | None
    cost_reported: int
    stop_reason: str | None
    exit_code: int | None
    waiting: int | None
    call: str | None
    alias: str | None
    logged: int
    cause: int | None
    session: int | None
    turn: int | None
    first: int | None
    last: int | None
    last_turn: int | None
    twin: int | None
    facts: str | None
    input: str | bytes | None
    output: str | bytes | None
    tool_calls: str | bytes | None
    trace_session: str | None
    source: str | None
    project: str | None
    dataset_run: str | None

    @property
    def events_of(self) -> EventsOf[int] | None:
        """None for a span that was received."""
        if self.session is None or self.turn is None:
            return None
        return EventsOf(self.session, self.turn, self.first, self.last, self.last_turn)

    def row(self, unpack: Callable[[Any], str]) -> SpanRow:
        """Without the texts of its events."""
        facts = _decode(self.facts) if self.facts else {}
        input, output, tool_calls = (
            _decode(unpack(text)) if text else None for text in (self.input, self.output, self.tool_calls)
        )
        fields = {name: getattr(self, name) for name in _SAME_FIELDS}
        return SpanRow(
            **fields,
            type=SPAN_TYPES[self.type],
            status=STATUSES[self.status],
            cost_reported=bool(self.cost_reported),
            logged=bool(self.logged),
            events=None if self.session is None else EventRange(self.first, self.last, self.last_turn),
            metadata=facts.get("metadata", {}),
            attributes=facts.get("attributes", {}),
            input=input,
            output=output,
            tool_calls=tool_calls or [],
            origin=Origin(
                session=self.trace_session, source=self.source, project=self.project, dataset_run=self.dataset_run
            ),
        )


# Fields of SpanRow that are stored as they are.
_SAME_FIELDS = (
    "trace", "id", "parent", "name", "start", "end", "model", "input_tokens", "output_tokens", "total_tokens",
    "cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens", "reasoning_tokens", "cost", "stop_reason",
    "exit_code", "waiting", "call", "alias", "cause",
)  # fmt: skip
# Fields of the stored rows that are not a column of the same name.
_TRACE_COLUMNS = {"number": "t.id", "id": "t.uid"}
_SPAN_COLUMNS = {
    "number": "s.id",
    "trace": "t.uid",
    "id": "s.uid",
    # An unknown parent makes a root.
    "parent": "(SELECT p.uid FROM span p WHERE p.uid = s.parent AND p.trace = s.trace)",
    "name": "n.text",
    "model": "m.text",
    "stop_reason": "r.text",
    "input_tokens": "s.input",
    "output_tokens": "s.output",
    "total_tokens": "s.total",
    "cache_read_tokens": "s.cache_read",
    "cache_write_tokens": "s.cache_write",
    "cache_write_1h_tokens": "s.cache_write_1h",
    "reasoning_tokens": "s.reasoning",
    "facts": "f.data",
    "input": "c.input",
    "output": "c.output",
    "tool_calls": "c.tool_calls",
    "trace_session": "t.session",
    "source": "t.source",
    "project": "t.project",
    "dataset_run": "t.dataset_run",
}
TRACE_SELECT = (
    f"SELECT {', '.join(_TRACE_COLUMNS.get(field, f't.{field}') for field in StoredTrace._fields)} FROM trace t "
)
SPAN_SELECT = (
    f"SELECT {', '.join(_SPAN_COLUMNS.get(field, f's.{field}') for field in StoredSpan._fields)} "
    "FROM span s JOIN trace t ON t.id = s.trace JOIN name n ON n.id = s.name "
    "LEFT JOIN name m ON m.id = s.model LEFT JOIN name r ON r.id = s.stop_reason "
    "LEFT JOIN facts f ON f.span = s.id LEFT JOIN content c ON c.span = s.id "
)


class OutlinedSpan(NamedTuple):
    """A row of `OUTLINE_SELECT`: what a drawing of a trace shows of a span."""

    number: int
    id: int
    parent: int | None
    name: str
    type: int
    status: int
    start: int
    end: int | None
    model: str | None
    input_tokens: int | None
    output_tokens: int | None
    total_tokens: int | None
    cost: float | None
    twin: int | None

    def row(self, trace: str) -> SpanRow:
        return SpanRow(
            trace=trace,
            id=self.id,
            parent=self.parent,
            name=self.name,
            type=SPAN_TYPES[self.type],
            status=STATUSES[self.status],
            start=self.start,
            end=self.end,
            model=self.model,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            total_tokens=self.total_tokens,
            cost=self.cost,
        )


OUTLINE_SELECT = (
    f"SELECT {', '.join(_SPAN_COLUMNS.get(field, f's.{field}') for field in OutlinedSpan._fields)} "
    "FROM span s JOIN name n ON n.id = s.name LEFT JOIN name m ON m.id = s.model "
)
