"""Subscriptions: delivering events to their subscribers.

Each subscription has a short queue and a position in the log. One that is slow, or that was away, reads the events that
it missed from the log and delays no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any
from weakref import WeakSet

import msgspec

from .events import (
    ADDED,
    CREATED,
    DELETED,
    UPDATED,
    Event,
    Filter,
    added_payload,
    created_payload,
    event,
    updated_payload,
)
from .journal import now
from .types import LiveError

_log = logging.getLogger("backstory.live")
_QUEUE_EVENTS = 256
_QUEUE_BYTES = 1 << 20
_PAGE = 256
_RETRY_SECONDS = 1.0

ReadEvents = Callable[[int, int], Awaitable[list[Event]]]
"""`read(after, limit)`: up to `limit` events later than `after`; `invalid_cursor` when they are no longer kept."""
Snapshot = Callable[[Filter], AsyncIterator[Event]]
Json = dict[str, Any]
Metas = Mapping[str, Json]
Entries = Callable[[str], Awaitable[list[Json]]]


class Feed:
    def __init__(self) -> None:
        self.head = 0
        self.settled = False
        """False while `head` is unknown, because the main has not been reached yet."""
        # Weak, so that an abandoned iterator is removed.
        self._subscriptions: WeakSet[Subscription] = WeakSet()
        self._read: ReadEvents | None = None

    def __len__(self) -> int:
        return len(self._subscriptions)

    def attach(self, read: ReadEvents, head: int) -> None:
        """Follow another store from now on, with numbers of its own. Subscriptions catch up after `settle` or
        `restart`."""
        self._read, self.head, self.settled = read, head, False

    def restart(self, head: int, snapshot: Snapshot) -> None:
        """Deliver a state to all subscriptions, and then the events after the number it is from."""
        self.settle(self.head)
        for subscription in self._subscriptions:
            subscription.restart(head, snapshot)

    def settle(self, head: int) -> None:
        """Set the number of the newest event."""
        self.head, self.settled = head, True
        for subscription in self._subscriptions:
            subscription.wake()

    def publish(self, head: int, events: Callable[[], list[Event]]) -> None:
        """Deliver new events; `head` is the number of the newest, and `events` gives them."""
        self.head = head
        if not self._subscriptions:
            return
        try:
            new = [(event, len(msgspec.json.encode(event.payload))) for event in events()]
        except Exception:
            _log.exception("events up to %d could not be delivered", head)
            return
        for each, size in new:
            for subscription in self._subscriptions:
                subscription.offer(each, size)

    def subscribe(self, filter: Filter) -> Subscription:
        if self.settled and filter.after is not None and filter.after > self.head:
            raise LiveError("invalid_cursor", f"there is no event {filter.after} yet; the newest is {self.head}")
        subscription = Subscription(self, filter)
        self._subscriptions.add(subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        self._subscriptions.discard(subscription)

    async def read(self, after: int, limit: int) -> list[Event]:
        """Published events later than a number."""
        if self._read is None:
            return []
        return [event for event in await self._read(after, limit) if event.seq <= self.head]


class Subscription:
    """An async iterator over the events a filter lets through, in their order, without end.

    It raises LiveError (`invalid_cursor`) when the next events are no longer kept; after `restart` it continues.
    """

    def __init__(self, feed: Feed, filter: Filter) -> None:
        self.filter = filter
        self._feed = feed
        self._queue: deque[tuple[Event, int]] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._position = feed.head if filter.after is None else filter.after
        self._behind = filter.after is not None
        self._page: deque[Event] = deque()
        self._state: AsyncIterator[Event] | None = None
        self._restarts = 0

    def offer(self, event: Event, size: int) -> None:
        if self._behind or not self.filter.matches(event):
            return
        full = len(self._queue) >= _QUEUE_EVENTS or self._queued_bytes + size > _QUEUE_BYTES
        if full and self._queue:
            self._behind = True
        else:
            self._queue.append((event, size))
            self._queued_bytes += size
        self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    def restart(self, head: int, snapshot: Snapshot) -> None:
        self._queue.clear()
        self._page.clear()
        self._queued_bytes, self._position, self._behind = 0, head, True
        self._restarts += 1
        self._state = snapshot(self.filter)
        self._wake.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Event:
        while True:
            event = await self._next()
            if event is not None and self.filter.matches(event):
                return event

    async def _next(self) -> Event | None:
        """The next event, matching or not; None when the caller has to try again."""
        if self._state is not None:
            return await self._next_of_state(self._state)
        if self._queue:
            event, size = self._queue.popleft()
            self._queued_bytes -= size
            self._position = event.seq
            return event
        if self._page:
            event = self._page.popleft()
            self._position = event.seq
            return event
        if self._behind and self._feed.settled:
            await self._catch_up()
        else:
            self._wake.clear()
            await self._wake.wait()
        return None

    async def _next_of_state(self, state: AsyncIterator[Event]) -> Event | None:
        try:
            event = await anext(state, None)
        except (LiveError, OSError) as error:
            _log.warning("a subscriber of live sessions did not get the whole state: %s", error)
            event = None
        if self._state is not state:  # a restart has replaced it
            return None
        if event is None:
            self._state = None
        return event

    async def _catch_up(self) -> None:
        if self._position > self._feed.head:
            raise LiveError("invalid_cursor", f"there is no event {self._position}; the newest is {self._feed.head}")
        if self._position == self._feed.head:
            self._behind = False
            return
        restarts = self._restarts
        try:
            page = await self._feed.read(self._position, _PAGE)
        except (LiveError, OSError) as error:
            if isinstance(error, LiveError) and error.code == "invalid_cursor" and restarts == self._restarts:
                raise
            _log.warning("a subscriber of live sessions cannot catch up yet: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)
            return
        if restarts == self._restarts:  # else the page is of another store
            self._page.extend(page)
            if not page:
                self._position = self._feed.head


async def state_events(
    filter: Filter, head: int, before: Metas, metas: Metas, entries: Entries
) -> AsyncIterator[Event]:
    """A state as events: deletions of sessions that are gone, then every session and its entries, parents first.

    All have the number of the newest event. `before` is the state that subscribers had.
    """
    time = now()
    for session_id, meta in before.items():
        if session_id not in metas and filter.session_id in (None, session_id):
            yield event(head, DELETED, {"session_id": session_id, "timestamp": time}, meta.get("metadata"))
    for meta in _parents_first(metas):
        session_id, metadata = meta["session_id"], meta.get("metadata")
        if filter.session_id not in (None, session_id):
            continue
        yield event(head, CREATED, created_payload(meta), metadata)
        for entry in await entries(session_id):
            yield event(head, ADDED, added_payload(session_id, entry), metadata)
            if entry.get("revision"):
                yield event(head, UPDATED, updated_payload(session_id, entry, None, entry["timestamp"]), metadata)


def _parents_first(metas: Metas) -> Iterable[Json]:
    """Sessions in the order they were created, a fork after the session it was made from."""
    done: set[str] = set()
    for meta in sorted(metas.values(), key=lambda meta: (meta["created_at"], meta["session_id"])):
        chain: list[Json] = []
        current: Json | None = meta
        while current is not None and current["session_id"] not in done:
            done.add(current["session_id"])
            chain.append(current)
            current = metas.get(current.get("forked_from") or "")
        yield from reversed(chain)
