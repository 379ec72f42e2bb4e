"""Rows of the tables as the structs of `archive/spans.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from ....model import EventType
from ...base import EventRow
from ...spans import SPAN_TYPES, STATUSES, EventRange, Origin, SpanOutline, SpanRow, TraceRow

# What is nested deeper is found as its JSON text only.
MAX_DEPTH = 128
# Events that lie at most so far apart are read together.
_GAP = 64

ReadEvents = Callable[[int, int, int, int], list[EventRow]]
"""The events of a session (by its number) and turn from one ordinal to another."""

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

# Narrow: a trace may have ten thousand spans. Tokens and cost of a span with a twin are those of the twin.
OUTLINE_SELECT = (
    "SELECT s.uid, s.parent, n.text, s.type, s.status, s.start, s.end, m.text, "
    "iif(s.twin IS NULL, iif(s.input IS NULL AND s.output IS NULL, s.total, "
    "coalesce(s.input, 0) + coalesce(s.output, 0)), NULL), iif(s.twin IS NULL, s.cost, NULL) "
    "FROM span s JOIN name n ON n.id = s.name LEFT JOIN name m ON m.id = s.model WHERE s.trace = ? ORDER BY s.id"
)


def span_outline(
    id: int,
    parent: int | None,
    name: str,
    type: int,
    status: int,
    start: int,
    end: int | None,
    model: str | None,
    tokens: int | None,
    cost: float | None,
) -> SpanOutline:
    """A row of `OUTLINE_SELECT`."""
    return SpanOutline(
        id=id,
        parent=parent,
        name=name,
        type=SPAN_TYPES[type],
        status=STATUSES[status],
        start=start,
        end=end,
        model=model,
        tokens=tokens,
        cost=cost,
    )


class _Pointer(NamedTuple):
    """A span, and the events of one turn that hold its texts."""

    span: SpanRow
    first: int | None
    last: int | None

    def ordinals(self) -> list[int]:
        if self.span.type == "GENERATION" and self.first is not None and self.last is not None:
            return list(range(self.first, self.last + 1))
        return [ordinal for ordinal in (self.first, self.last) if ordinal is not None]


def fill_from_events(spans: Iterable[tuple[StoredSpan, SpanRow]], read: ReadEvents) -> None:
    """Read inputs and outputs of the spans of turns from their events. What no event has stays as it was received."""
    by_turn: dict[tuple[int, int], list[_Pointer]] = defaultdict(list)
    received = []
    for stored, span in spans:
        if stored.session is None or stored.turn is None:
            continue
        received.append((span, span.input, span.output, span.tool_calls))
        span.input, span.output, span.tool_calls = None, None, []
        if stored.last_turn is None:
            by_turn[stored.session, stored.turn].append(_Pointer(span, stored.first, stored.last))
        else:  # the response of a tool stands in another turn than the call
            by_turn[stored.session, stored.turn].append(_Pointer(span, stored.first, None))
            by_turn[stored.session, stored.last_turn].append(_Pointer(span, None, stored.last))
    for (session, turn), pointers in by_turn.items():
        events = _read_ranges(pointers, partial(read, session, turn))
        for pointer in pointers:
            _fill(pointer, events)
    for span, input, output, tool_calls in received:
        span.input = input if span.input is None else span.input
        span.output = output if span.output is None else span.output
        span.tool_calls = span.tool_calls or tool_calls


def _read_ranges(pointers: list[_Pointer], read: Callable[[int, int], list[EventRow]]) -> dict[int, EventRow]:
    events: dict[int, EventRow] = {}
    ordinals = sorted({ordinal for pointer in pointers for ordinal in pointer.ordinals()})
    start = 0
    for index, ordinal in enumerate(ordinals):
        following = ordinals[index + 1] if index + 1 < len(ordinals) else None
        if following is None or following - ordinal > _GAP:
            events.update((event.ordinal, event) for event in read(ordinals[start], ordinal))
            start = index + 1
    return events


def _fill(pointer: _Pointer, events: dict[int, EventRow]) -> None:
    span, first, last = pointer
    begin = events.get(first) if first is not None else None
    end = events.get(last) if last is not None else None
    if span.type == "GENERATION":
        if begin is not None:
            own = (events[ordinal] for ordinal in pointer.ordinals() if ordinal in events)
            _fill_generation(span, [event for event in own if event.usage_key == begin.usage_key])
        return
    if span.type == "EVENT":
        span.output = begin.text if begin is not None else None
    else:
        if begin is not None:
            span.input = begin.arguments if begin.type is EventType.TOOL_CALL else begin.text
        if end is not None:
            span.output = end.text
    if begin is not None:
        span.event = begin.uid
    elif end is not None and span.event is None:
        span.event = end.uid


def _fill_generation(span: SpanRow, events: list[EventRow]) -> None:
    answers = [event.text for event in events if event.type is EventType.ASSISTANT_RESPONSE]
    span.output = "\n".join(answers) or None
    span.tool_calls = [_call(event) for event in events if event.type is EventType.TOOL_CALL]
    span.event = events[0].uid if events else None


def _call(event: EventRow) -> dict[str, Any]:
    call: dict[str, Any] = {"name": event.tool, "arguments": event.arguments}
    return {"id": event.call_id, **call} if event.call_id else call


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
