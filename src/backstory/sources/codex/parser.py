"""Reads the records of one rollout, in order, into items."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ...model import EventType, parse_time
from ..base import About, Event, Item, Lookup, Transcript
from .fields import mapping_of
from .history import ThreadHistory
from .legacy import open_envelope
from .lifecycle import lost_end
from .outputs import as_json
from .session import Session, State
from .table import EVENTS, RECORDS, RESPONSE_ITEMS, TURN_ITEMS, Handler, Table

__all__ = ["RolloutParser"]


class RolloutParser:
    def __init__(
        self,
        transcript: Transcript,
        state: dict[str, Any] | None,
        lookup: Lookup,
        title: str | None = None,
        history: ThreadHistory | None = None,
    ) -> None:
        self._state = State() if state is None else msgspec.convert(state, State)
        self._history = history
        self._session = Session(transcript.session, self._state, lookup, self._was_interrupted)
        self._session.descend_from(*transcript.after)
        self._title = title

    def parse(self, record: Any) -> Iterable[Item]:
        envelope = open_envelope(record)
        payload = envelope.payload
        self._set_time(envelope.timestamp)
        if payload is not record.get("payload") and isinstance(model := record.get("model"), str):
            self._state.model = model  # before there were envelopes, records named the model themselves
        if isinstance(ordinal := record.get("ordinal"), int):
            self._state.ordinal = ordinal
        if mapping_of(record, "metadata").get("compaction_output") is True:
            return ()  # the summary, as the model wrote it; the compacted record has it
        handler = self._handler(envelope.type, payload)
        if handler is None:
            items: list[Item] = [self._session.event(EventType.UNKNOWN, as_json(record))]
        elif isinstance(handler, str):
            return ()
        elif envelope.type == "event_msg" and payload.get("type") == "item_completed":
            turn = payload.get("turn_id")
            self._session.late_turn = turn if turn in self._state.ended else None
            items = handler(self._session, payload["item"])
            self._session.late_turn = None
        else:
            items = handler(self._session, payload)
        if items and self._session.in_copy:
            return [item for item in items if isinstance(item, About)]
        if self._state.replaying and any(isinstance(item, Event) for item in items):
            self._session.end_copy()
        return items

    def _handler(self, kind: str, payload: dict[str, Any]) -> Handler | str | None:
        """What to do with a record; None for one of no known type."""
        if kind == "response_item":
            inner = payload.get("type", "message" if "role" in payload else None)
            return _look_up(RESPONSE_ITEMS, inner)
        if kind != "event_msg":
            return RECORDS.get(kind)
        if payload.get("type") != "item_completed":
            return _look_up(EVENTS, payload.get("type"))
        item = payload.get("item")
        return _look_up(TURN_ITEMS, item.get("type")) if isinstance(item, dict) else None

    def _set_time(self, timestamp: Any) -> None:
        """A record without a time happened when the one before it did."""
        stamp = timestamp if isinstance(timestamp, str) else "" if timestamp is None else str(timestamp)
        state = self._state
        if stamp == state.stamp:
            return
        state.stamp = stamp
        state.counts.clear()
        time = parse_time(timestamp)
        if time is not None:
            state.ts = time
            if state.started is None:
                state.started = time

    def _was_interrupted(self, turn: str, is_last: bool) -> bool:
        state, history = self._state, self._history
        if history is None or state.ordinal is None:
            return False
        return history.was_interrupted(self._session.id, turn, state.ordinal, is_last=is_last)

    def finish(self) -> Iterable[Item]:
        ended = [] if self._session.in_copy else lost_end(self._session, is_last=True)
        return [*ended, *self._session.about(title=self._title)]

    def state(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self._state)
        return built


def _look_up(table: Table, kind: Any) -> Handler | str | None:
    return table.get(kind) if isinstance(kind, str) else None
