"""Inputs and outputs of projected spans, read from the events they were made from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from ....model import EventType
from ...base import EventRow
from ...spans import SpanRow

__all__ = ["fill_from_events"]

# A turn that is asked for in many places is read in one go.
_GAP = 64

Pointed = tuple[SpanRow, int, int, int | None, int | None]


def fill_from_events(spans: Iterable[Pointed], read: Callable[[int, int, int, int], list[EventRow]]) -> None:
    by_turn: dict[tuple[int, int], list[Pointed]] = defaultdict(list)
    for entry in spans:
        if entry[3] is not None or entry[4] is not None:
            by_turn[entry[1], entry[2]].append(entry)
    for (session, turn), entries in by_turn.items():
        events = _read_ranges(entries, partial(read, session, turn))
        for span, _, _, first, last in entries:
            _fill(span, first, last, events)


def _read_ranges(entries: list[Pointed], read: Callable[[int, int], list[EventRow]]) -> dict[int, EventRow]:
    events: dict[int, EventRow] = {}
    ordinals = sorted({ordinal for entry in entries for ordinal in _ordinals(entry)})
    start = 0
    for index, ordinal in enumerate(ordinals):
        following = ordinals[index + 1] if index + 1 < len(ordinals) else None
        if following is None or following - ordinal > _GAP:
            events.update((event.ordinal, event) for event in read(ordinals[start], ordinal))
            start = index + 1
    return events


def _ordinals(entry: Pointed) -> list[int]:
    span, _, _, first, last = entry
    if span.type == "GENERATION" and first is not None and last is not None:
        return list(range(first, last + 1))
    return [ordinal for ordinal in (first, last) if ordinal is not None]


def _fill(span: SpanRow, first: int | None, last: int | None, events: dict[int, EventRow]) -> None:
    begin = events.get(first) if first is not None else None
    end = events.get(last) if last is not None else None
    if span.type == "GENERATION":
        if begin is not None and first is not None and last is not None:
            own = (events[number] for number in range(first, last + 1) if number in events)
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
