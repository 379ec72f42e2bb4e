"""One turn of the record taken apart: model calls, tool calls, markers, with their times and states."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from ....model import EventType
from ...base import UsageRow
from ...spans import SPAN_TYPES
from ..rows import USAGE_COLUMNS, read_usage

__all__ = ["Piece", "Turn", "Unpack", "read_turn_spans"]

Unpack = Callable[[Any], str]
"""The text of an event's body."""

_EVENT, _GENERATION, _SPAN = (SPAN_TYPES.index(name) for name in ("EVENT", "GENERATION", "SPAN"))
_ERROR, _PENDING, _SUCCESS = range(3)
_PROMPT, _ANSWER, _REASONING, _CALL, _RESPONSE, _COMPACTION, _, _RUNTIME = (kind.code for kind in list(EventType)[:8])
_OF_MODEL = frozenset((_ANSWER, _REASONING, _CALL))
_USAGE = ", ".join(USAGE_COLUMNS)


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
    model: str | None = None
    usage: UsageRow | None = None
    exit_code: int | None = None
    cause: int | None = None


class Turn(Struct, kw_only=True):
    start: int
    end: int
    completed: bool
    prompt: int | None = None
    """Ordinals of the prompt and of the answer, and the prompt's number in the record."""
    prompt_id: int | None = None
    answer: int | None = None
    pieces: list[Piece] = []
    calls: dict[str, int] = {}
    """The agent's ids of the tool calls, and their spans."""


class _Facts(Struct):
    call: str | None = None
    exit: int | None = None
    failed: bool | None = None


_facts = msgspec.json.Decoder(_Facts).decode
_NO_FACTS = _Facts()


def read_turn_spans(record: sqlite3.Connection, session: int, ordinal: int, unpack: Unpack) -> Turn | None:
    """Turn 0 is what a session used without any turn."""
    head = record.execute(
        "SELECT started_at, updated_at, terminal, prompt, last_answer FROM turn WHERE session = ? AND ordinal = ?",
        (session, ordinal),
    ).fetchone()
    usage = _usage(record, session, ordinal)
    if head is None:
        if not usage:
            return None
        times = [row.ts for row in usage.values()]
        head = (min(times), max(times), b"", None, None)
    events = record.execute(
        "SELECT id, uid, ordinal, type, ts, tool, model, usage, facts, CASE WHEN type = ? THEN body END FROM event "
        "WHERE session = ? AND turn = ? ORDER BY ordinal",
        (_RUNTIME, session, ordinal),
    )
    start, end, terminal, prompt, last_answer = head
    turn = Turn(start=start, end=end, completed=terminal is not None)
    reader = _Reader(turn, usage, unpack)
    answer = terminal or last_answer
    for event in events:
        if event[1] == prompt:
            turn.prompt_id, turn.prompt = event[0], event[2]
        if event[1] == answer:
            turn.answer = event[2]
        reader.read(event)
    reader.finish()
    return turn


def _usage(record: sqlite3.Connection, session: int, ordinal: int) -> dict[bytes, UsageRow]:
    # What was told before the first turn belongs to it.
    rows = record.execute(
        f"SELECT {_USAGE} FROM usage WHERE session = ? AND turn IN (?, ?) ORDER BY ts",
        (session, ordinal, 0 if ordinal == 1 else ordinal),
    )
    return {row[0]: read_usage("", row) for row in rows}


class _Reader:
    """Goes through the events in their order. A model call lasts from what came before it to its last event, a tool
    call from the call to its response."""

    def __init__(self, turn: Turn, usage: dict[bytes, UsageRow], unpack: Unpack) -> None:
        self.turn = turn
        self.unpack = unpack
        self.usage = usage
        self.generations: dict[bytes | None, Piece] = {}
        self.open_calls: dict[str, Piece] = {}
        self.nameless_calls: list[Piece] = []
        self.before = turn.start

    def read(self, event: tuple[Any, ...]) -> None:
        _, uid, ordinal, type_, ts, tool, model, usage_key, facts_text, body = event
        if type_ in _OF_MODEL:
            generation = self._generation(uid, ordinal, ts, model, usage_key)
            if type_ == _CALL:
                self._call(uid, ordinal, ts, tool, facts_text, generation.uid)
        else:
            self.generations.pop(None, None)
            if type_ == _RESPONSE:
                self._response(uid, ordinal, ts, tool, facts_text)
            elif type_ in (_COMPACTION, _RUNTIME):
                name, status = ("compaction", _SUCCESS) if type_ == _COMPACTION else _marker(self.unpack(body))
                self._add(Piece(_uid(uid), name, _EVENT, ts, ts, status, first=ordinal))
        self.before = ts

    def finish(self) -> None:
        """Calls that left nothing but their usage."""
        for key, usage in self.usage.items():
            if key not in self.generations:
                model = usage.model
                self._add(Piece(_uid(key), _chat(model), _GENERATION, usage.ts, usage.ts, model=model, usage=usage))

    def _generation(self, uid: bytes, ordinal: int, ts: int, model: str | None, key: bytes | None) -> Piece:
        piece = self.generations.get(key)
        if piece is None:
            # Without a key of its own it is named by the other half of its first event's digest.
            number = _uid(key) if key is not None else _uid(uid[8:])
            piece = Piece(number, _chat(model), _GENERATION, min(self.before, ts), ts, first=ordinal, model=model)
            if key is not None and (usage := self.usage.get(key)) is not None:
                piece.usage = usage
                piece.model = usage.model or model
                piece.name = _chat(piece.model)
            self.generations[key] = piece
            self._add(piece)
        piece.end = max(piece.end or 0, ts)
        piece.last = ordinal
        return piece

    def _call(self, uid: bytes, ordinal: int, ts: int, tool: str | None, facts_text: str | None, cause: int) -> None:
        call = (_facts(facts_text) if facts_text else _NO_FACTS).call
        piece = Piece(_uid(uid), tool or "tool", _SPAN, ts, None, _PENDING, first=ordinal, cause=cause)
        self._add(piece)
        if call is None:
            self.nameless_calls.append(piece)
        else:
            self.open_calls[call] = piece
            self.turn.calls[call] = piece.uid

    def _response(self, uid: bytes, ordinal: int, ts: int, tool: str | None, facts_text: str | None) -> None:
        facts = _facts(facts_text) if facts_text else _NO_FACTS
        piece = None
        if facts.call is not None:
            piece = self.open_calls.pop(facts.call, None)
        elif self.nameless_calls:
            piece = self.nameless_calls.pop(0)
        if piece is None:
            piece = Piece(_uid(uid), tool or "tool", _SPAN, ts, None)
            self._add(piece)
        piece.last, piece.end = ordinal, max(piece.start, ts)
        piece.exit_code = facts.exit
        failed = facts.failed if facts.failed is not None else bool(facts.exit)
        piece.status = _ERROR if failed else _SUCCESS

    def _add(self, piece: Piece) -> None:
        self.turn.pieces.append(piece)


def _marker(text: str) -> tuple[str, int]:
    text = text[:200].lower()
    if "interrupt" in text or "aborted" in text:
        return "interrupt", _SUCCESS
    return "runtime", _ERROR if text.startswith("api error") else _SUCCESS


def _chat(model: str | None) -> str:
    return f"chat {model}" if model else "chat"


def _uid(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)
