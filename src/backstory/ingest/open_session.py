"""A session that is being written: its rows, its exchanges, and the turn that new events go to."""

from __future__ import annotations

from msgspec import Struct

from ..archive.base import ExchangeRow, ExchangesRequest, Reader, SessionRow, TurnRow
from ..archive.exchanges import uids_of
from ..model import MAX_TURNS, EventType
from ..sources.base import Event, TurnEnd
from .rows import close


class Exchanges:
    """The exchanges of a session, from marked events. These may belong to another session: a fork repeats its original.

    An event is in one exchange of a session at most. A transcript that is read from its start once more moves the
    position from one known exchange to the next: what is new belongs where it stands. A record that an agent has
    written twice moves nothing.
    """

    def __init__(self, session: SessionRow, known: Reader) -> None:
        self._session = session
        self._known = known
        self._rows: dict[int, ExchangeRow] = {}
        self._changed: set[int] = set()
        self._numbers: dict[bytes, int] | None = None
        """The exchange of every event of the session; made when an event is read again."""
        self._position = self._reached = session.exchange_count - 1
        """The exchange of what comes next, and the last one that was known before and has been met."""

    def restart(self) -> None:
        """The transcript is read from its start."""
        self._position = self._reached = -1

    def add(self, event: Event, ts: int, *, again: bool) -> bool:
        """Take a marked event. `again`: the archive, or this commit, has it already. True if an exchange changed."""
        if again and (number := self._places().get(event.uid)) is not None:
            if number > self._reached:
                self._position = self._reached = number
            return self._revise(event, number)
        session = self._session
        begins = (event.exchange == "user" or not session.exchange_count) and session.exchange_count < MAX_TURNS
        if begins:
            self._position = session.exchange_count
            self._reached += self._reached == self._position - 1
            session.exchange_count += 1
            row = self._rows[self._position] = ExchangeRow(session=session.key, number=self._position, ts=ts)
        else:
            if self._position < 0:  # another file of the session goes on where the one before it ended
                self._position = session.exchange_count - 1
            row = self._row(self._position)
        if begins and event.exchange == "user":
            row.user, row.user_text = event.uid, event.user_text
        else:
            row.said += event.uid
        self._changed.add(self._position)
        if self._numbers is not None:
            self._numbers[event.uid] = self._position
        return True

    def _revise(self, event: Event, number: int) -> bool:
        """An event that is here already, and may read otherwise now."""
        if event.replaces:
            row = self._row(number)
            if row.user == event.uid:
                row.user_text = event.user_text
            self._changed.add(number)
        return event.replaces

    def take(self) -> list[ExchangeRow]:
        """The rows that changed, to be written before anything else is added."""
        changed = [self._rows[number] for number in sorted(self._changed)]
        self._changed.clear()
        self._rows = {number: row for number, row in self._rows.items() if number == self._position}
        return changed

    def _row(self, number: int) -> ExchangeRow:
        row = self._rows.get(number)
        if row is None:
            (row,) = self._stored(number, 1)
            self._rows[number] = row
        return row

    def _stored(self, first: int, limit: int | None) -> list[ExchangeRow]:
        request = ExchangesRequest(session=self._session.key, first=first, limit=limit, texts=False)
        return [exchange.row for exchange in self._known.exchanges(request)]

    def _places(self) -> dict[bytes, int]:
        if self._numbers is None:
            rows = {row.number: row for row in self._stored(0, None)} | self._rows
            self._numbers = {uid: number for number, row in rows.items() for uid in uids_of(row)}
        return self._numbers


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
