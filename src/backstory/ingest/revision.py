"""Rows of events, and what becomes of a turn when an event is added to it or replaced in it."""

from __future__ import annotations

from collections.abc import Sequence

from ..archive.base import EventRow, SessionRow, TurnRow
from ..model import EventType
from ..sources.base import Event

__all__ = ["close", "differs", "event_row", "follow", "revise"]

_ACTIVITY = frozenset((EventType.ASSISTANT_RESPONSE, EventType.REASONING, EventType.TOOL_CALL, EventType.TOOL_RESPONSE))
_FIELDS = EventRow.__struct_fields__


def event_row(event: Event, session: SessionRow, turn: int, ordinal: int, ts: int) -> EventRow:
    return EventRow(
        uid=event.uid,
        session=session.key,
        turn=turn,
        ordinal=ordinal,
        type=event.type,
        ts=ts,
        text=event.text,
        tool=event.tool,
        call_id=event.call_id,
        model=event.model,
        originating_model=event.originating_model,
        arguments=event.arguments,
        exit_code=_exit_code(event.exit_code),
        failed=event.failed,
        cwd=event.cwd or session.last_cwd,
        usage_key=event.usage_key,
        extra=event.extra or None,
    )


def differs(before: EventRow, after: EventRow) -> bool:
    """Whether an event reads otherwise now. The text of a tool call follows from its tool and arguments."""
    derived = before.type is after.type is EventType.TOOL_CALL
    ignored = {"cwd", "text"} if derived else {"cwd", "arguments"}
    return any(getattr(before, name) != getattr(after, name) for name in _FIELDS if name not in ignored)


def revise(turn: TurnRow, events: Sequence[EventRow], event: Event) -> None:
    """What a turn is after one of its events was replaced; `events` are all of them, as they are now."""
    turn.started_at, turn.updated_at = min(row.ts for row in events), max(row.ts for row in events)
    turn.types = tuple(dict.fromkeys(row.type for row in events))
    turn.tools = tuple(dict.fromkeys(row.tool for row in events if row.type is EventType.TOOL_CALL and row.tool))
    turn.prompt = next((row.uid for row in events if row.type is EventType.USER_INPUT), None)
    answers = [row.uid for row in events if row.type is EventType.ASSISTANT_RESPONSE]
    turn.last_answer = answers[-1] if answers else None
    active = [row.uid for row in events if row.type in _ACTIVITY or row.uid == event.uid]
    turn.started_work = any(row.type in _ACTIVITY for row in events)
    turn.turn_key = turn.turn_key or event.turn_key
    is_last = active[-1] == event.uid
    may_end = event.may_end_turn and event.type in _ACTIVITY
    if event.late:
        return
    if turn.terminal == event.uid and not event.ends_turn:
        # Something else said that the turn ended here. That holds, unless it was this event, which no longer does.
        taken_back = turn.candidate == event.uid and not may_end
        if taken_back or event.type is not turn.terminal_type:
            turn.terminal = turn.terminal_type = None
    if turn.candidate == event.uid or (is_last and event.type in _ACTIVITY):
        turn.candidate = event.uid if may_end and is_last else None
    if event.ends_turn and is_last:
        _end_with(turn, event)


def follow(turn: TurnRow, event: Event) -> None:
    """What the event means for its turn."""
    if event.type not in turn.types:
        turn.types = (*turn.types, event.type)
    if event.type is EventType.TOOL_CALL and event.tool and event.tool not in turn.tools:
        turn.tools = (*turn.tools, event.tool)
    if event.type is EventType.USER_INPUT and turn.prompt is None:
        turn.prompt = event.uid
    turn.turn_key = turn.turn_key or event.turn_key
    if event.type in _ACTIVITY and not event.late:
        # The agent goes on: whatever looked like the end of the turn was not one.
        turn.started_work = True
        turn.terminal = turn.terminal_type = None
        turn.candidate = event.uid if event.may_end_turn else None
        if event.type is EventType.ASSISTANT_RESPONSE:
            turn.last_answer = event.uid
    if event.ends_turn:
        _end_with(turn, event)


def _end_with(turn: TurnRow, event: Event) -> None:
    """End a turn with an event that says so."""
    # An answer that was cut off is the end, but not what the turn was to end in.
    cut_off = event.extra is not None and event.extra.get("interrupted") is True
    close(turn, event.uid, EventType.RUNTIME if cut_off else event.type)


def close(turn: TurnRow, terminal: bytes, kind: EventType) -> None:
    turn.terminal, turn.terminal_type = terminal, kind


def _exit_code(code: int | None) -> int | None:
    return code if code is not None and -(1 << 31) <= code < 1 << 32 else None
