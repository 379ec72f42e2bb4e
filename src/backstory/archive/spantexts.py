"""The texts of spans: read from the events of their turns, and cut to excerpts. The same for every engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from ..model import EventType
from .rows import EventRow
from .spans import SpanRow

# What is nested deeper is found as its JSON text only.
MAX_DEPTH = 128
# Events that lie at most so far apart are read together.
_GAP = 64
# So many excerpts' worth of attributes, and of metadata, and so many tool calls.
_MOST_EXCERPTS = 20

K = TypeVar("K", int, str)


class EventsOf(NamedTuple, Generic[K]):
    """The events of a span of a turn. `session` is what the engine knows a session by; `first` and `last` are
    ordinals; `last_turn` is the turn of `last`, where that is another one."""

    session: K
    turn: int
    first: int | None
    last: int | None
    last_turn: int | None


class Ordinals(NamedTuple, Generic[K]):
    """The events of a turn from one ordinal to another."""

    session: K
    turn: int
    first: int
    last: int


ReadEvents = Callable[[Sequence[Ordinals[K]]], Iterable[list[EventRow]]]
"""The events of each range."""


class _Pointer(NamedTuple):
    """A span, and the events of one turn that hold its texts."""

    span: SpanRow
    first: int | None
    last: int | None

    def ordinals(self) -> list[int]:
        if self.span.type == "GENERATION" and self.first is not None and self.last is not None:
            return list(range(self.first, self.last + 1))
        return [ordinal for ordinal in (self.first, self.last) if ordinal is not None]


def fill_from_events(spans: Iterable[tuple[EventsOf[K], SpanRow]], read: ReadEvents[K]) -> None:
    """Read inputs and outputs of the spans of turns from their events. What no event has stays as it was received."""
    by_turn: dict[tuple[K, int], list[_Pointer]] = defaultdict(list)
    received = []
    for (session, turn, first, last, last_turn), span in spans:
        received.append((span, span.input, span.output, span.tool_calls))
        span.input, span.output, span.tool_calls = None, None, []
        if last_turn is None:
            by_turn[session, turn].append(_Pointer(span, first, last))
        else:  # the response of a tool stands in another turn than the call
            by_turn[session, turn].append(_Pointer(span, first, None))
            by_turn[session, last_turn].append(_Pointer(span, None, last))
    ranges = [
        Ordinals(session, turn, first, last)
        for (session, turn), pointers in by_turn.items()
        for first, last in _ranges(pointers)
    ]
    events: dict[tuple[K, int], dict[int, EventRow]] = defaultdict(dict)
    for (session, turn, _, _), found in zip(ranges, read(ranges), strict=True):
        events[session, turn].update((event.ordinal, event) for event in found)
    for place, pointers in by_turn.items():
        for pointer in pointers:
            _fill(pointer, events[place])
    for span, input, output, tool_calls in received:
        span.input = input if span.input is None else span.input
        span.output = output if span.output is None else span.output
        span.tool_calls = span.tool_calls or tool_calls


def _ranges(pointers: list[_Pointer]) -> list[tuple[int, int]]:
    """The first and the last ordinals of the events that are read together."""
    ranges: list[tuple[int, int]] = []
    for ordinal in sorted({ordinal for pointer in pointers for ordinal in pointer.ordinals()}):
        if ranges and ordinal - ranges[-1][1] <= _GAP:
            ranges[-1] = ranges[-1][0], ordinal
        else:
            ranges.append((ordinal, ordinal))
    return ranges


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


def parents_first(spans: list[SpanRow]) -> list[SpanRow]:
    """By their start; of those that start in the same millisecond the outer one first."""
    parents = {span.id: span.parent for span in spans}
    depths: dict[int | None, int] = {None: 0}
    for span in spans:
        path: list[int] = []
        above: int | None = span.id
        while above not in depths and above not in path and above is not None:
            path.append(above)
            above = parents.get(above)
        depth = depths.get(above, 0)
        for number, id in enumerate(reversed(path), 1):
            depths[id] = depth + number
    return sorted(spans, key=lambda span: (span.start, depths[span.id]))


def show_elsewhere(span: SpanRow, twin: tuple[str, int] | None) -> None:
    """Take texts, tokens and cost out of a span whose call another one shows, and name that one."""
    span.twin = twin
    span.input = span.output = span.cost = span.total_tokens = span.input_tokens = span.output_tokens = None
    span.cache_read_tokens = span.cache_write_tokens = span.cache_write_1h_tokens = span.reasoning_tokens = None
    span.tool_calls = []


def cut(span: SpanRow, chars: int) -> None:
    """Excerpts where texts are long; data that is long as text becomes one."""
    whole = (span.input, span.output, span.metadata, span.attributes, span.tool_calls)
    span.input, span.output = _excerpt(span.input, chars), _excerpt(span.output, chars)
    span.metadata, span.attributes = _excerpts(span.metadata, chars), _excerpts(span.attributes, chars)
    span.tool_calls = [_excerpts(call, chars) for call in span.tool_calls[:_MOST_EXCERPTS]]
    span.cut = whole != (span.input, span.output, span.metadata, span.attributes, span.tool_calls)


def _excerpts(table: dict[str, Any], chars: int) -> dict[str, Any]:
    """A table with excerpts of its long values, as far as there is room for them."""
    room = _MOST_EXCERPTS * chars
    excerpts = {}
    for name, value in table.items():
        excerpts[name] = short = _excerpt(value, chars)
        room -= len(name) + (len(short) if isinstance(short, str) else chars if isinstance(short, dict | list) else 1)
        if room < 0:
            del excerpts[name]
            break
    return excerpts


def _excerpt(value: Any, chars: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:chars] + "…" if len(text) > chars else value
