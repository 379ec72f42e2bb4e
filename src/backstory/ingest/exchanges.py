"""Exchange rows from marked events. The events may belong to another session: a fork repeats its original."""

from __future__ import annotations

from ..archive.base import ExchangeRow, ExchangesRequest, Reader, SessionRow
from ..archive.exchanges import uids_of
from ..model import MAX_TURNS
from ..sources.base import Event


class Exchanges:
    """The exchanges of one session that is being written.

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
        if session.provisional:
            session.provisional, session.exchange_count, self._numbers = False, 0, {}
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
