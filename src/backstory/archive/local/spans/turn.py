"""One turn of the record taken apart: model calls, tool calls, markers, with their times and states."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ....model import EventType, call_by_tokens
from ....money import Tokens, price
from ...base import UsageRow
from ...spans import SPAN_TYPES
from ..rows import USAGE_COLUMNS, read_usage

__all__ = ["Piece", "Turn", "Unpack", "call_of", "cost_of", "read_turn_spans"]

Unpack = Callable[[Any], str]
"""The text of an event's body."""

_EVENT, _GENERATION, _SPAN = (SPAN_TYPES.index(name) for name in ("EVENT", "GENERATION", "SPAN"))
_ERROR, _PENDING, _SUCCESS = range(3)
_PROMPT, _ANSWER, _REASONING, _CALL, _RESPONSE, _COMPACTION, _, _RUNTIME = (kind.code for kind in list(EventType)[:8])
_OF_MODEL = frozenset((_ANSWER, _REASONING, _CALL))
_USAGE = ", ".join(USAGE_COLUMNS)
# A response is looked for in so many turns before and after that of its call.
_NEAR_TURNS = 8


class Piece(Struct):
    """One span of a turn. `first` and `last` are ordinals of the events that hold its texts."""

    uid: int
    name: str
    type: int
    start: int
    end: int | None
    status: int = _SUCCESS
    first: int | None = None
    last: int | None = None
    last_turn: int | None = None
    """The turn of `last`, where that is another one."""
    model: str | None = None
    usage: UsageRow | None = None
    exit_code: int | None = None
    cause: int | None = None
    call: str | None = None
    """The agent's or the provider's id of the call."""
    waiting: int | None = None
    """Milliseconds of it that the agent waited for a person."""


class Turn(Struct, kw_only=True):
    start: int
    end: int
    """When the agent did the last thing in it. What the client records later (the context of the next turn, a command
    without work for the agent) is not a part of the time it took."""
    completed: bool
    failed: bool = False
    """It ended with an error, or a person interrupted it."""
    prompt: int | None = None
    """Ordinals of the prompt and of the answer, and the prompt's number in the record."""
    prompt_id: int | None = None
    answer: int | None = None
    pieces: list[Piece] = []
    calls: dict[str, Piece] = {}
    """The tool calls, by the agent's ids."""
    related: set[int] = set()
    """Turns that hold the other half of a tool call."""

    @property
    def waiting(self) -> int | None:
        """Milliseconds that the agent waited for a person; questions that were open at the same time count once."""
        total, until = 0, 0
        for start, waited in sorted((piece.start, piece.waiting) for piece in self.pieces if piece.waiting):
            total += max(0, start + waited - max(start, until))
            until = max(until, start + waited)
        return total or None


class _Extra(Struct, frozen=True):
    """What a source noted; any source may note anything."""

    interrupted: Any = False
    asked: Any = False
    duration_ms: Any = 0


_NO_EXTRA = _Extra()


class _Facts(Struct, frozen=True):
    call: str | None = None
    exit: int | None = None
    failed: bool | None = None
    extra: _Extra = _NO_EXTRA


_decode_facts = msgspec.json.Decoder(_Facts).decode
_NO_FACTS = _Facts()


class _Event(NamedTuple):
    id: int
    uid: bytes
    turn: int
    ordinal: int
    type: int
    ts: int
    tool: str | None
    model: str | None
    usage: bytes | None
    facts_text: str | None
    body: Any

    @property
    def facts(self) -> _Facts:
        return _decode_facts(self.facts_text) if self.facts_text else _NO_FACTS


_SELECT = (
    "SELECT id, uid, turn, ordinal, type, ts, tool, model, usage, facts, "
    f"CASE WHEN type = {_RUNTIME} THEN body END FROM event WHERE session = ?"
)


def read_turn_spans(record: sqlite3.Connection, session: int, ordinal: int, unpack: Unpack) -> Turn | None:
    """Turn 0 is what a session used without any turn."""
    head = record.execute(
        "SELECT started_at, terminal, terminal_type, prompt, last_answer FROM turn WHERE session = ? AND ordinal = ?",
        (session, ordinal),
    ).fetchone()
    usage = _usage(record, session, ordinal)
    if head is None:
        if not usage:
            return None
        times = [row.ts for row in usage.values()]
        turn = Turn(start=min(times), end=max(times), completed=True)
        _Reader(turn, usage, unpack, None).finish()
        return turn
    start, terminal, terminal_type, prompt, last_answer = head
    turn = Turn(start=start, end=start, completed=terminal is not None)
    reader = _Reader(turn, usage, unpack, terminal)
    answer = terminal or last_answer
    events = [_Event(*row) for row in record.execute(f"{_SELECT} AND turn = ? ORDER BY ordinal", (session, ordinal))]
    reader.begin(events, prompt)
    for event in events:
        if event.uid == prompt:
            turn.prompt_id, turn.prompt = event.id, event.ordinal
        if event.uid == answer:
            turn.answer = event.ordinal
        reader.read(event)
    if missing := reader.missing:
        reader.join(_elsewhere(record, session, ordinal, missing))
    reader.finish(answered=terminal_type == _ANSWER)
    return turn


def _usage(record: sqlite3.Connection, session: int, ordinal: int) -> dict[bytes, UsageRow]:
    # What was told before the first turn belongs to it.
    rows = record.execute(
        f"SELECT {_USAGE} FROM usage WHERE session = ? AND turn IN (?, ?) ORDER BY ts",
        (session, ordinal, 0 if ordinal == 1 else ordinal),
    )
    return {row[0]: read_usage("", row) for row in rows}


def _elsewhere(record: sqlite3.Connection, session: int, ordinal: int, calls: Iterable[str]) -> list[_Event]:
    """Tool calls and responses in the turns around this one, by the ids of the calls."""
    rows = record.execute(
        f"{_SELECT} AND turn BETWEEN ? AND ? AND turn <> ? AND type IN (?, ?) "
        "AND json_extract(facts, '$.call') IN (SELECT value FROM json_each(?)) ORDER BY turn, ordinal",
        (
            session,
            ordinal - _NEAR_TURNS,
            ordinal + _NEAR_TURNS,
            ordinal,
            _CALL,
            _RESPONSE,
            msgspec.json.encode(list(calls)).decode(),
        ),
    )
    return [_Event(*row) for row in rows]


class _Reader:
    """Goes through the events in their order. A model call lasts from what came before it to its last event, a tool
    call from the call to its response, in whichever order and turns the two were written."""

    def __init__(self, turn: Turn, usage: dict[bytes, UsageRow], unpack: Unpack, terminal: bytes | None) -> None:
        self.turn = turn
        self.unpack = unpack
        self.usage = usage
        self.terminal = terminal
        self.generations: dict[bytes | None, Piece] = {}
        self.open_calls: dict[str, Piece] = {}
        self.nameless_calls: list[Piece] = []
        self.early: dict[str, _Event] = {}
        """Responses whose call did not come yet."""
        self.interrupt: Piece | None = None
        self.interrupted = False
        self.before = turn.start

    def begin(self, events: list[_Event], prompt: bytes | None) -> None:
        """A turn starts with its prompt: what the client recorded before it may be hours older."""
        times = [event.ts for event in events if event.uid == prompt or event.type in _OF_MODEL]
        if times:
            self.turn.start = self.turn.end = self.before = min(times)

    def read(self, event: _Event) -> None:
        type_, facts = event.type, event.facts
        if type_ in _OF_MODEL:
            generation = self._generation(event)
            if type_ == _CALL:
                self._call(event, facts.call, generation.uid)
            self.interrupt, self.interrupted = None, facts.extra.interrupted is True
        else:
            self.generations.pop(None, None)
            if type_ == _RESPONSE:
                self._response(event, facts)
            elif type_ == _COMPACTION:
                self._add(Piece(_uid(event.uid), "compaction", _EVENT, event.ts, event.ts, first=event.ordinal))
            elif type_ == _RUNTIME:
                self._marker(event, facts)
        if type_ in _OF_MODEL or type_ == _RESPONSE or facts.extra.interrupted or event.uid == self.terminal:
            self.turn.end = max(self.turn.end, event.ts)
        self.before = event.ts

    @property
    def missing(self) -> list[str]:
        """Calls of which one half is not in this turn."""
        return [*self.open_calls, *self.early]

    def join(self, others: list[_Event]) -> None:
        """A call has the response in its own turn, else the first one in another."""
        for call, piece in list(self.open_calls.items()):
            response = next((e for e in others if e.type == _RESPONSE and e.facts.call == call), None)
            if response is not None:
                self._complete(piece, response, response.facts)
                piece.last_turn = response.turn
                self.turn.related.add(response.turn)
                del self.open_calls[call]
        for call, response in list(self.early.items()):
            halves = [event for event in others if event.facts.call == call]
            home = next((event.turn for event in halves if event.type == _CALL), None)
            rivals = [e for e in halves if e.type == _RESPONSE and (e.turn == home or e.turn < response.turn)]
            if home is not None and not rivals:
                self.turn.related.add(home)
                del self.early[call]

    def finish(self, *, answered: bool = True) -> None:
        """Responses without a call, and model calls that left nothing but their usage."""
        for response in self.early.values():
            self._complete(self._alone(response), response, response.facts)
        for key, usage in self.usage.items():
            if key not in self.generations:
                model = usage.model
                self._add(
                    Piece(
                        _uid(key), _chat(model), _GENERATION, usage.ts, usage.ts, model=model, usage=usage,
                        call=usage.request,
                    )
                )  # fmt: skip
        stopped = self.interrupt is not None and not answered
        if self.interrupted or stopped:
            self.turn.failed = self.turn.completed = True
        if self.interrupt is not None:
            self.interrupt.status = _ERROR if self.turn.failed else _SUCCESS

    def _generation(self, event: _Event) -> Piece:
        key, ts, model = event.usage, event.ts, event.model
        piece = self.generations.get(key)
        if piece is None:
            # Without a key of its own it is named by the other half of its first event's digest.
            number = _uid(key) if key is not None else _uid(event.uid[8:])
            piece = Piece(number, _chat(model), _GENERATION, min(self.before, ts), ts, first=event.ordinal, model=model)
            if key is not None and (usage := self.usage.get(key)) is not None:
                piece.usage = usage
                piece.call = usage.request
                piece.model = usage.model or model
                piece.name = _chat(piece.model)
            self.generations[key] = piece
            self._add(piece)
        piece.end = max(piece.end or 0, ts)
        piece.last = event.ordinal
        return piece

    def _call(self, event: _Event, call: str | None, cause: int) -> None:
        piece = Piece(_uid(event.uid), event.tool or "tool", _SPAN, event.ts, None, _PENDING, first=event.ordinal)
        piece.cause, piece.call = cause, call
        self._add(piece)
        if call is None:
            self.nameless_calls.append(piece)
            return
        self.turn.calls[call] = piece
        if (response := self.early.pop(call, None)) is not None:
            self._complete(piece, response, response.facts)
        else:
            self.open_calls[call] = piece

    def _response(self, event: _Event, facts: _Facts) -> None:
        if facts.call is None:
            piece = self.nameless_calls.pop(0) if self.nameless_calls else self._alone(event)
            self._complete(piece, event, facts)
        elif (called := self.open_calls.pop(facts.call, None)) is not None:
            self._complete(called, event, facts)
        elif facts.call in self.turn.calls or facts.call in self.early:  # another response to the same call
            self._complete(self._alone(event), event, facts)
        else:
            self.early[facts.call] = event

    def _alone(self, event: _Event) -> Piece:
        """A span for a response whose call is nowhere."""
        piece = Piece(_uid(event.uid), event.tool or "tool", _SPAN, event.ts, None)
        self._add(piece)
        return piece

    def _complete(self, piece: Piece, response: _Event, facts: _Facts) -> None:
        piece.start = min(piece.start, response.ts)
        piece.last, piece.end = response.ordinal, response.ts if response.ts > piece.start else piece.start
        piece.exit_code = facts.exit
        failed = facts.failed if facts.failed is not None else bool(facts.exit)
        piece.status = _ERROR if failed else _SUCCESS
        if facts.extra.asked:
            took = facts.extra.duration_ms
            took = round(took) if isinstance(took, int | float) else 0
            piece.waiting = max(0, piece.end - piece.start - took) or None

    def _marker(self, event: _Event, facts: _Facts) -> None:
        """What the runtime noted. An interrupt is one that nothing of the model follows."""
        failed = facts.failed or self.unpack(event.body)[:9].lower() == "api error"
        name = "interrupt" if facts.extra.interrupted else "runtime"
        piece = Piece(_uid(event.uid), name, _EVENT, event.ts, event.ts, _ERROR if failed else _SUCCESS)
        piece.first = event.ordinal
        self._add(piece)
        if facts.extra.interrupted:
            self.interrupt = piece
        if event.uid == self.terminal and failed:
            self.turn.failed = True

    def _add(self, piece: Piece) -> None:
        self.turn.pieces.append(piece)


def _chat(model: str | None) -> str:
    return f"chat {model}" if model else "chat"


def _uid(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)


def call_of(agent: str, usage: UsageRow) -> str:
    """The name of a call that has none, by its tokens."""
    written = usage.cache_write_5m_tokens + usage.cache_write_1h_tokens
    return call_by_tokens(agent, usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, written)


def cost_of(model: str | None, usage: UsageRow, at: int) -> float | None:
    """What the agent reported, else what the prices of the time say."""
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
