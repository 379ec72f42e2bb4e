"""A session in parts: as much of its turns as fits on a page, and the place where the next part begins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ...archive.base import EventRow, OpenedSession, Part, SessionRow, SessionsRequest
from ...model import EventType, rfc3339, turn_id
from ...toolsets.history.views import Views
from .items import Child, Item, Limits, read_items
from .lines import session_lines

if TYPE_CHECKING:
    from ...library import Library

# A part has so many events, or texts of so many characters, and ends where no tool call waits for its output.
PART_EVENTS = 40
_PART_CHARS = 60_000
_FOLDED_CHARS = 4_000
_WAITING_EVENTS = 40
HEAD_CHARS = 400
"""The number of characters that the beginnings of prompts and answers are made from."""


class Place(Struct, frozen=True):
    """A turn and an event in it, by their ordinals: `3` or `3.12` in addresses."""

    turn: int
    event: int = 1

    def __str__(self) -> str:
        return str(self.turn) if self.event == 1 else f"{self.turn}.{self.event}"


class ShownTurn(Struct, frozen=True):
    id: str
    ordinal: int
    first: int
    """The ordinal of its first event here; above 1 the turn began in an earlier part."""
    started_at: str
    items: list[Item]


class Conversation:
    """The turns of an opened session as items to read."""

    def __init__(self, library: Library, opened: OpenedSession, limits: Limits) -> None:
        self._library = library
        self._key = opened.session.key
        self._turns = opened.turns
        self._limits = limits
        self._started = _started_by_calls(library, opened)

    def whole(self) -> Iterator[ShownTurn]:
        place = Place(self._turns[0].ordinal) if self._turns else None
        while place is not None:
            turns, place = self.part(place)
            yield from turns

    def part(self, start: Place, reach: int = 0) -> tuple[list[ShownTurn], Place | None]:
        """The turns from a place on, as far as a part goes, and the place where the next one begins. The event
        `reach` of the first turn is in it."""
        shown: list[ShownTurn] = []
        events, chars = PART_EVENTS, _PART_CHARS
        for turn in self._turns:
            if turn.ordinal < start.turn:
                continue
            if events <= 0 or chars <= 0:
                return shown, Place(turn.ordinal)
            first, needed = (start.event, reach - start.event + 1) if turn.ordinal == start.turn else (1, 0)
            room = max(events, needed)
            rows = self._library.archive.events(
                self._key, turn.ordinal, Part(above=first - 1, limit=room + _WAITING_EVENTS)
            )
            kept = _until_answered(rows, room, chars, needed)
            if not kept:
                continue
            events -= len(kept)
            chars -= sum(map(_chars, kept))
            shown.append(
                ShownTurn(
                    turn_id(self._key, turn.ordinal), turn.ordinal, first, rfc3339(turn.started_at), self._items(kept)
                )
            )
            if kept[-1].ordinal < turn.event_count:
                return shown, Place(turn.ordinal, kept[-1].ordinal + 1)
        return shown, None

    def _items(self, rows: Sequence[EventRow]) -> list[Item]:
        called = {row.call_id for row in rows if row.call_id in self._started}
        children = {call: self._children(self._started[call]) for call in called if call}
        return read_items(self._library, rows, self._limits, children)

    def _children(self, rows: Sequence[SessionRow]) -> list[Child]:
        views = Views(self._library.settings.redact)
        children = []
        for row, line in zip(rows, session_lines(self._library, rows), strict=True):
            turns = self._library.archive.turns(row.key, Part(heads=HEAD_CHARS, limit=1))
            heads = views.heads(turns)
            prompt, answer = (turns[0].prompt, turns[0].response) if turns else (None, None)
            texts = [heads[uid].text if uid is not None and uid in heads else "" for uid in (prompt, answer)]
            children.append(Child(line, *texts))
        return children


def _chars(row: EventRow) -> int:
    """The characters that a text counts for a part: all of one that is laid out, some of one that is folded."""
    if row.type in (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE):
        return len(row.text)
    return 0 if row.type in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE) else min(len(row.text), _FOLDED_CHARS)


def _until_answered(rows: Sequence[EventRow], room: int, chars: int, needed: int) -> Sequence[EventRow]:
    """The first rows of a turn: as many as are needed, as many as fit, and those up to the output of the last tool call
    among them."""
    waiting: set[str] = set()
    for count, row in enumerate(rows, 1):
        if row.type is EventType.TOOL_CALL and row.call_id:
            waiting.add(row.call_id)
        elif row.type is EventType.TOOL_RESPONSE:
            waiting.discard(row.call_id or "")
        chars -= _chars(row)
        if count >= needed and (count >= room or chars <= 0) and not waiting:
            return rows[:count]
    return rows


def _started_by_calls(library: Library, opened: OpenedSession) -> dict[str, list[SessionRow]]:
    """The sessions that tool calls of this one started, by call id."""
    if not opened.children:
        return {}
    started: dict[str, list[SessionRow]] = {}
    for row in library.archive.sessions(SessionsRequest(parent=opened.session.key, order="started_at", ascending=True)):
        if row.parent_call:
            started.setdefault(row.parent_call, []).append(row)
    return started
