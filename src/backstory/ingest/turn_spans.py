"""The spans of one turn: its model calls, tool calls and markers, with their times and states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from ..archive.changes import EventOutline, Record
from ..archive.rows import UsageRow, has_failed
from ..archive.spans import EventRange, SpanRow, SpanType, Status
from ..model import EventType, TurnRef, call_by_tokens
from ..prices import Tokens, price

# In Python 3.11 `EventType.NAME` takes ten times as long as a name of the module.
_CALL, _RESPONSE = EventType.TOOL_CALL, EventType.TOOL_RESPONSE
_COMPACTION, _RUNTIME = EventType.COMPACTION, EventType.RUNTIME
_OF_MODEL = frozenset((EventType.ASSISTANT_RESPONSE, EventType.REASONING, _CALL))
# The response of a call is looked for in this many turns before and after that of the call.
_NEAR_TURNS = 8


class Turn(Struct, kw_only=True):
    """A turn and the spans in it, without the span of the turn itself."""

    start: int
    end: int
    """The time of the last thing that the agent did in it. Later records of the client (the context of the next turn, a
    command without work for the agent) do not prolong it."""
    completed: bool
    failed: bool = False
    """It ended with an error, or a person interrupted it."""
    prompt_text: str = ""
    events: EventRange
    """The prompt and the answer."""
    spans: list[SpanRow] = []
    calls: dict[str, SpanRow] = {}
    """The tool calls, by their call ids."""
    related: set[int] = set()
    """Turns that hold the other half of a tool call."""

    @property
    def waiting(self) -> int | None:
        """Milliseconds that the agent waited for a person; questions that were open at the same time count once."""
        total, until = 0, 0
        for start, waited in sorted((span.start, span.waiting) for span in self.spans if span.waiting):
            total += max(0, start + waited - max(start, until))
            until = max(until, start + waited)
        return total or None


def read_turn(record: Record, ref: TurnRef, agent: str) -> Turn | None:
    """The spans of a turn. Turn 0 is the usage of a session without any turn."""
    row = record.turn(ref)
    # Usage before the first turn belongs to the first turn.
    usage = {entry.key: entry for entry in record.usage(ref.key, (0, 1) if ref.ordinal == 1 else (ref.ordinal,))}
    if row is None:
        if not usage:
            return None
        times = [entry.ts for entry in usage.values()]
        turn = Turn(start=min(times), end=max(times), completed=True, events=EventRange())
        _Reader(turn, usage, agent, None).finish()
        return turn
    turn = Turn(start=row.started_at, end=row.started_at, completed=row.completed, events=EventRange())
    reader = _Reader(turn, usage, agent, row.terminal)
    answer = row.terminal or row.last_answer
    events = record.events(row)
    reader.begin(events, row.prompt)
    for event in events:
        if event.uid == row.prompt:
            turn.prompt_text, turn.events.first = event.text, event.ordinal
        if event.uid == answer:
            turn.events.last = event.ordinal
        reader.read(event)
    if missing := reader.missing:
        near = range(ref.ordinal - _NEAR_TURNS, ref.ordinal + _NEAR_TURNS + 1)
        reader.join([event for event in record.calls(ref.key, missing, near) if event.turn != ref.ordinal])
    reader.finish(answered=row.response is not None)
    return turn


class _Reader:
    """Goes through the events in their order. A model call lasts from the event before it to its last event, a tool
    call from the call to its response, in any order and any turns."""

    def __init__(self, turn: Turn, usage: dict[bytes, UsageRow], agent: str, terminal: bytes | None) -> None:
        self.turn = turn
        self.usage = usage
        self.agent = agent
        self.terminal = terminal
        self.generations: dict[bytes | None, SpanRow] = {}
        self.open_calls: dict[str, SpanRow] = {}
        self.nameless_calls: list[SpanRow] = []
        self.early: dict[str, EventOutline] = {}
        """Responses that came before their call."""
        self.interrupt: SpanRow | None = None
        self.interrupted = False
        self.before = turn.start

    def begin(self, events: Sequence[EventOutline], prompt: bytes | None) -> None:
        """A turn starts with its prompt: records of the client before it may be hours older."""
        times = [event.ts for event in events if event.uid == prompt or event.type in _OF_MODEL]
        if times:
            self.turn.start = self.turn.end = self.before = min(times)

    def read(self, event: EventOutline) -> None:
        kind, ts = event.type, event.ts
        interrupted = event.extra.get("interrupted", False)
        works = kind in _OF_MODEL
        if works:
            generation = self._generation(event)
            if kind is _CALL:
                self._call(event, generation.id)
            self.interrupt, self.interrupted = None, interrupted is True
        else:
            self.generations.pop(None, None)
            if kind is _RESPONSE:
                self._response(event)
            elif kind is _COMPACTION:
                self._add(_id(event.uid), "compaction", "EVENT", ts, ts, first=event.ordinal)
            elif kind is _RUNTIME:
                self._marker(event)
        if ts > self.turn.end and (works or kind is _RESPONSE or interrupted or event.uid == self.terminal):
            self.turn.end = ts
        self.before = ts

    @property
    def missing(self) -> list[str]:
        """Calls of which one half is not in this turn."""
        return [*self.open_calls, *self.early]

    def join(self, others: list[EventOutline]) -> None:
        """A call has the response in its own turn, else the first one in another."""
        responses = [event for event in others if event.type is _RESPONSE]
        for call, span in list(self.open_calls.items()):
            response = next((event for event in responses if event.call_id == call), None)
            if response is not None:
                _complete(span, response)
                _range(span).last_turn = response.turn
                self.turn.related.add(response.turn)
                del self.open_calls[call]
        for call, response in list(self.early.items()):
            calls = (event for event in others if event.type is _CALL and event.call_id == call)
            home = next((event.turn for event in calls), None)
            rivals = [e for e in responses if e.call_id == call and (e.turn == home or e.turn < response.turn)]
            if home is not None and not rivals:
                self.turn.related.add(home)
                del self.early[call]

    def finish(self, *, answered: bool = True) -> None:
        """Add responses without a call, and model calls that left nothing but their usage."""
        for response in self.early.values():
            _complete(self._alone(response), response)
        for key, usage in self.usage.items():
            if key not in self.generations:
                span = self._add(_id(key), _chat(usage.model), "GENERATION", usage.ts, usage.ts)
                self._add_usage(span, usage)
        stopped = self.interrupt is not None and not answered
        if self.interrupted or stopped:
            self.turn.failed = self.turn.completed = True
        if self.interrupt is not None:
            self.interrupt.status = "error" if self.turn.failed else "success"

    def _generation(self, event: EventOutline) -> SpanRow:
        key = event.usage_key
        span = self.generations.get(key)
        if span is None:
            # Without a key of its own it is named by the other half of its first event's digest.
            id = _id(key) if key is not None else _id(event.uid[8:])
            start = min(self.before, event.ts)
            span = self._add(id, _chat(event.model), "GENERATION", start, event.ts, first=event.ordinal)
            span.model = event.model
            if key is not None and (usage := self.usage.get(key)) is not None:
                self._add_usage(span, usage)
            self.generations[key] = span
        span.end = max(span.end or 0, event.ts)
        _range(span).last = event.ordinal
        return span

    def _add_usage(self, span: SpanRow, usage: UsageRow) -> None:
        written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
        span.model = usage.model or span.model
        span.name = _chat(span.model)
        span.input_tokens, span.output_tokens = usage.input_tokens, usage.output_tokens
        span.cache_read_tokens = usage.cache_read_tokens or None
        span.cache_write_tokens = written or None
        span.cache_write_1h_tokens = usage.cache_write_1h_tokens or None
        span.reasoning_tokens = usage.reasoning_tokens or None
        span.cost = _cost(span.model, usage, span.start)
        span.cost_reported = usage.cost is not None
        span.stop_reason = usage.stop_reason
        by_tokens = call_by_tokens(
            self.agent, usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, written
        )
        span.call, span.alias = (usage.request, by_tokens) if usage.request else (by_tokens, None)

    def _call(self, event: EventOutline, cause: int) -> None:
        span = self._add(_id(event.uid), event.tool or "tool", "SPAN", event.ts, None, "pending", first=event.ordinal)
        span.cause, span.call = cause, event.call_id
        if event.call_id is None:
            self.nameless_calls.append(span)
            return
        self.turn.calls[event.call_id] = span
        if (response := self.early.pop(event.call_id, None)) is not None:
            _complete(span, response)
        else:
            self.open_calls[event.call_id] = span

    def _response(self, event: EventOutline) -> None:
        call = event.call_id
        if call is None:
            _complete(self.nameless_calls.pop(0) if self.nameless_calls else self._alone(event), event)
        elif (called := self.open_calls.pop(call, None)) is not None:
            _complete(called, event)
        elif call in self.turn.calls or call in self.early:  # another response to the same call
            _complete(self._alone(event), event)
        else:
            self.early[call] = event

    def _alone(self, event: EventOutline) -> SpanRow:
        """A span for a response without a call."""
        return self._add(_id(event.uid), event.tool or "tool", "SPAN", event.ts, None)

    def _marker(self, event: EventOutline) -> None:
        """A note of the runtime. An interrupt is one that nothing of the model follows."""
        failed = bool(event.failed) or event.text[:9].lower() == "api error"
        interrupted = event.extra.get("interrupted", False)
        name = "interrupt" if interrupted else "runtime"
        status: Status = "error" if failed else "success"
        span = self._add(_id(event.uid), name, "EVENT", event.ts, event.ts, status, first=event.ordinal)
        if interrupted:
            self.interrupt = span
        if event.uid == self.terminal and failed:
            self.turn.failed = True

    def _add(
        self,
        id: int,
        name: str,
        type: SpanType,
        start: int,
        end: int | None,
        status: Status = "success",
        *,
        first: int | None = None,
    ) -> SpanRow:
        span = SpanRow(trace="", id=id, name=name, type=type, start=start, end=end, status=status)
        span.events = EventRange(first=first)
        self.turn.spans.append(span)
        return span


def _range(span: SpanRow) -> EventRange:
    assert span.events is not None
    return span.events


def _complete(span: SpanRow, response: EventOutline) -> None:
    """End a tool call with its response."""
    span.start = min(span.start, response.ts)
    span.end = max(span.start, response.ts)
    _range(span).last = response.ordinal
    span.exit_code = response.exit_code
    span.status = "error" if has_failed(response) else "success"
    if response.extra.get("asked"):
        took: Any = response.extra.get("duration_ms", 0)
        took = round(took) if isinstance(took, int | float) else 0
        span.waiting = max(0, span.end - span.start - took) or None


def _chat(model: str | None) -> str:
    return f"chat {model}" if model else "chat"


def _id(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)


def _cost(model: str | None, usage: UsageRow, at: int) -> float | None:
    """The cost that the agent reported, else by the prices of the time."""
    if usage.cost is not None:
        return usage.cost
    counts = Tokens(
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_5m_tokens,
        usage.cache_write_1h_tokens,
    )
    return price(model, counts, at)
