"""Exchanges of an engine: with the events in them, and without some of these. The same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..model import UID_BYTES
from .base import EventRow, Exchange, ExchangeRow, ExchangesRequest, Part, SessionRow

EventsOf = Callable[[Part], Iterable[EventRow]]
"""Reads events by their uids."""


def split_uids(said: bytes | bytearray) -> list[bytes]:
    """The uids of `ExchangeRow.said`."""
    return [bytes(said[start : start + UID_BYTES]) for start in range(0, len(said), UID_BYTES)]


def uids_of(row: ExchangeRow) -> list[bytes]:
    """The uids of the answers and tool calls, and that of the user record."""
    return [*split_uids(row.said), *([row.user] if row.user else ())]


def with_events(
    rows: Iterable[tuple[ExchangeRow, SessionRow]], request: ExchangesRequest, events_of: EventsOf
) -> list[Exchange]:
    """Exchanges with the events in them, as far as the request asks for these. The events of all are read at once."""
    found = [Exchange(row=row, session=session, user_text=row.user_text, said=[]) for row, session in rows]
    if not request.texts:
        return found
    said = [split_uids(exchange.row.said)[: request.events] for exchange in found]
    prompts = [each.row.user for each in found if each.row.user is not None and each.row.user_text is None]
    uids = (*(uid for part in said for uid in part), *prompts)
    by_uid = {event.uid: event for event in events_of(Part(uids=uids))} if uids else {}
    for exchange, part in zip(found, said, strict=True):
        exchange.said = [by_uid[uid] for uid in part if uid in by_uid]
        if exchange.user_text is None and exchange.row.user in by_uid:
            exchange.user_text = by_uid[exchange.row.user].text
    return found


def without(row: ExchangeRow, uids: set[bytes]) -> bool:
    """Take events out of an exchange. False if nothing of it is left."""
    row.said = bytearray(b"".join(uid for uid in split_uids(row.said) if uid not in uids))
    if row.user is None or row.user in uids:
        row.user = row.user_text = None
    return row.user is not None or bool(row.said)
