"""A session in parts: as much of its turns as fits on a page, and the place where the next part begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ...archive.base import EventRow, OpenedSession, Part, SessionsRequest, TurnRow
from ...model import EventType, SessionRef, rfc3339, turn_id
from .items import ON_PAGE, Item, Limits, read_items
from .lines import SessionLine, session_lines

if TYPE_CHECKING:
    from ...library import Library

# A part has so many events, or texts of so many characters, and ends where no tool call waits for its output.
PART_EVENTS = 60
_PART_CHARS = 120_000
_WAITING_EVENTS = 40


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


def read_part(
    library: Library,
    key: str,
    turns: Sequence[TurnRow],
    start: Place,
    *,
    limits: Limits = ON_PAGE,
    children: Mapping[str, Sequence[SessionLine]] = {},
) -> tuple[list[ShownTurn], Place | None]:
    """The turns from a place on, as far as a part goes, and the place where the next one begins."""
    shown: list[ShownTurn] = []
    events = chars = 0
    for turn in turns:
        if turn.ordinal < start.turn:
            continue
        if events >= PART_EVENTS or chars >= _PART_CHARS:
            return shown, Place(turn.ordinal)
        first = start.event if turn.ordinal == start.turn else 1
        room = max(PART_EVENTS - events, 1)
        rows = library.archive.events(key, turn.ordinal, Part(above=first - 1, limit=room + _WAITING_EVENTS))
        kept = _until_answered(rows, room, _PART_CHARS - chars)
        events += len(kept)
        chars += sum(min(len(row.text), limits.text) for row in kept)
        if kept:
            items = read_items(library, kept, limits, children)
            shown.append(ShownTurn(turn_id(key, turn.ordinal), turn.ordinal, first, rfc3339(turn.started_at), items))
            if kept[-1].ordinal < turn.event_count:
                return shown, Place(turn.ordinal, kept[-1].ordinal + 1)
    return shown, None


def _until_answered(rows: Sequence[EventRow], room: int, chars: int) -> Sequence[EventRow]:
    """The first rows of a turn: as many as fit, and those up to the output of the last tool call among them."""
    waiting: set[str] = set()
    for count, row in enumerate(rows, 1):
        if row.type is EventType.TOOL_CALL and row.call_id:
            waiting.add(row.call_id)
        elif row.type is EventType.TOOL_RESPONSE:
            waiting.discard(row.call_id or "")
        chars -= len(row.text)
        if (count >= room or chars <= 0) and not waiting:
            return rows[:count]
    return rows


def started_by_calls(library: Library, opened: OpenedSession) -> dict[str, list[SessionLine]]:
    """The sessions that tool calls of this one started, by call id."""
    if not opened.children:
        return {}
    rows = library.archive.sessions(SessionsRequest(parent=opened.session.key, order="started_at", ascending=True))
    started: dict[str, list[SessionLine]] = {}
    for row, line in zip(rows, session_lines(library, rows), strict=True):
        if row.parent_call:
            started.setdefault(row.parent_call, []).append(line)
    return started


def whole_session(library: Library, key: str, limits: Limits) -> Iterator[ShownTurn]:
    """All turns of a session, one part after the other."""
    opened = library.archive.open(SessionRef(key))
    if opened is None or not opened.turns:
        return
    children = started_by_calls(library, opened)
    place: Place | None = Place(opened.turns[0].ordinal)
    while place is not None:
        turns, place = read_part(library, key, opened.turns, place, limits=limits, children=children)
        yield from turns
