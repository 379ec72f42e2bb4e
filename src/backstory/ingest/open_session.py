"""A session that is being written: its rows, and the turn that new events go to."""

from __future__ import annotations

from msgspec import Struct

from ..archive.base import SessionRow, TurnRow
from ..model import EventType
from ..sources.base import Event, TurnEnd
from .exchanges import Exchanges
from .rows import close


class OpenSession(Struct):
    """The row of a session, the turn that new events go to, and the turns that changed."""

    row: SessionRow
    turn: TurnRow | None
    turns: dict[int, TurnRow]
    changed: bool = False
    forgotten: bool = False
    """It was forgotten: neither it nor the sessions that it started are kept."""
    inherits: bool = False
    """So far it has only repeated forgotten events: nothing of it is kept before its first event of its own."""
    entering: bool = False
    """Its transcript is read from the start, and the first event, which shows the turn, has not come yet."""
    changed_turns: set[int] = set()
    exchanges: Exchanges | None = None
    restarted: bool = False
    """Its transcript is read from the start."""
    upgrading: bool = False
    """It was read by an older version, and is read again for its exchanges alone."""

    @property
    def ordinal(self) -> int:
        return self.turn.ordinal if self.turn else 0

    def begin_turn(self) -> TurnRow:
        """Open the next turn. The one before it ends with its last answer, unless something else ended it."""
        before = self.turn
        if before is not None and before.terminal is None and before.candidate is not None:
            close(before, before.candidate, EventType.ASSISTANT_RESPONSE)
            self.changed_turns.add(before.ordinal)
        self.row.turn_count += 1
        self.turn = TurnRow(session=self.row.key, ordinal=self.row.turn_count)
        self.turns[self.turn.ordinal] = self.turn
        return self.turn

    def end_turn(self, end: TurnEnd) -> None:
        turn = self.turn
        if turn is None or turn.terminal is not None:
            return
        answer = turn.candidate if end.provisional else turn.last_answer
        if answer is not None:
            close(turn, answer, EventType.ASSISTANT_RESPONSE)
            self.changed_turns.add(turn.ordinal)
            self.settle()

    def pass_over(self, event: Event) -> None:
        """The event is a copy of one that belongs elsewhere. What follows it does not belong to the turn before it."""
        if event.starts_turn and self.turn is not None and has_begun(self.turn):
            self.turn = None

    def cover(self, ts: int) -> None:
        """Extend the time of the transcript to this moment."""
        row = self.row
        if not row.first_at or ts < row.first_at:
            row.first_at = ts
        if ts > row.last_at:
            row.last_at = ts

    def settle(self) -> None:
        """A session is completed when its latest turn is."""
        latest = self.turns.get(self.row.turn_count)
        if latest is not None:
            self.row.completed = latest.completed

    def rest(self) -> None:
        """Drop the turns that cannot change any more, after everything was written."""
        self.changed, self.changed_turns = False, set()
        at_hand = {self.row.turn_count, self.ordinal}
        self.turns = {ordinal: turn for ordinal, turn in self.turns.items() if ordinal in at_hand}


def has_begun(turn: TurnRow) -> bool:
    """True if the turn has more than the settings and context that may precede its prompt."""
    return turn.prompt is not None or turn.started_work
