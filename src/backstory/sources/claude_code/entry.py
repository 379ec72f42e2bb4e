"""One record being read: whose it is, when it was, and the items it gives."""

from __future__ import annotations

from typing import Any

from ...model import EventType, digest, parse_time
from ..base import Event, Item, TurnEnd
from .content import raw_text
from .state import Thread

__all__ = ["Entry"]


class Entry:
    __slots__ = ("identity", "items", "record", "thread", "ts")

    def __init__(self, record: dict[str, Any], thread: Thread, identity: str, items: list[Item]) -> None:
        self.record = record
        self.thread = thread
        self.identity = identity
        """The record's uuid, which copies keep, or what stands in for it."""
        self.items = items
        self.ts = parse_time(record.get("timestamp"))

    def add(self, part: str, kind: EventType, text: str, **more: Any) -> Event:
        """An event for a part of the record; the part's name makes it unique and does not depend on other parts."""
        event = Event(
            uid=digest("claude-code", self.identity, part),
            type=kind,
            text=text,
            ts=self.ts,
            session=self.thread.session,
            cwd=self.thread.cwd,
            **more,
        )
        self.items.append(event)
        return event

    def add_unknown(self) -> None:
        self.add("raw", EventType.UNKNOWN, raw_text(self.record))

    def add_stop(self, part: str, text: str, **more: Any) -> None:
        """Something other than an answer that stops the agent. After an answer that ended the turn there is nothing
        left to stop, and the answer stays the end."""
        self.add(part, EventType.RUNTIME, text, ends_turn=not self.thread.ended, **more)
        self.thread.ended = True

    def end_turn(self) -> None:
        """The record says that the turn is over; it can only mean one in which the agent did something."""
        if self.thread.answered:
            self.items.append(TurnEnd(session=self.thread.session))
            self.thread.ended = True
