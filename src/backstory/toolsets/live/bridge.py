"""The bridge adapter: sessions kept by another instance, the main.

The main stores, decides and numbers events. The bridge checks requests, applies its own limits and delivers each event
of the main once to its own subscribers. Numbers have no gaps: after a lost connection, or when a number is missing, the
bridge requests the missing events.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, get_args

import msgspec

from . import functions as requests
from .adapters import Publish
from .events import DELETED, FEED, Event, event
from .feed import Json, Metas
from .functions import STORE_PREFIX
from .service import encode, new_entry_id
from .types import BridgeSettings, Code, LiveError, LiveSettings
from .wire_client import RemoteError, WireClient

_log = logging.getLogger("backstory.live")
_ERROR = re.compile(r"session/(\w+): (.*)", re.DOTALL)
_PAGE = 500
_RECENT_EVENTS = 1024
_EARLY_EVENTS = 10_000
_AFTER_ALL = 2**53
_RETRY_SECONDS = 0.02
_REPEATABLE = ("get", "get-message", "list", "messages", "append", "set-active-leaf")
"""Idempotent functions: a second call has the same effect and the same answer."""


class BridgeAdapter:
    name = "bridge"
    oldest = 0

    def __init__(
        self, settings: LiveSettings, publish: Publish, settle: Callable[[int], None], restart: Callable[[], None]
    ) -> None:
        """`settle` gets the number to continue from once it is known. `restart` is called when the events of the main
        cannot be continued, so that subscribers get its state instead."""
        assert isinstance(settings.adapter, BridgeSettings)
        self.head = 0
        self._settings = settings
        self._bridge = settings.adapter
        self._publish = publish
        self._settle = settle
        self._restart = restart
        self._relay = f"session::bridge::{uuid.uuid4().hex}"
        self._ready = asyncio.Event()
        self._client = WireClient(
            self._bridge.url, self._bridge.token, self._greet, self._ready.clear, {self._relay: self._relayed}
        )
        self._store: str | None = None
        self._recent: deque[Event] = deque(maxlen=_RECENT_EVENTS)
        self._early: deque[Event] = deque(maxlen=_EARLY_EVENTS)
        self._catching_up: asyncio.Task[None] | None = None
        self._client.start()

    def contended(self) -> bool:
        return False

    async def close(self) -> None:
        await self._client.close()
        if self._catching_up is not None:
            self._catching_up.cancel()

    def configure(self, settings: LiveSettings) -> bool:
        bridge = settings.adapter
        if not isinstance(bridge, BridgeSettings):
            return False
        if (bridge.url, bridge.token) != (self._bridge.url, self._bridge.token):
            return False
        self._settings, self._bridge = settings, bridge
        return True

    def status(self) -> dict[str, Any]:
        return {"url": self._bridge.url, "connected": self._ready.is_set(), "error": self._client.failure}

    # --- calls

    async def call(self, function_id: str, request: Any) -> Any:
        if function_id.startswith(STORE_PREFIX):
            raise LiveError("storage", f"{function_id} is answered where the sessions are kept: {self._bridge.url}")
        if isinstance(request, requests.List | requests.Messages):
            request.limit = self._settings.limit(request.limit)
        if isinstance(request, requests.Append) and request.entry_id is None:
            request.entry_id = new_entry_id()  # so that a repeated call cannot append twice
        encode(request)
        return await self._call_main(function_id, request, again=function_id.removeprefix("session::") in _REPEATABLE)

    async def _call_main(self, function_id: str, data: Any, *, again: bool = True) -> Any:
        """Call the main, and wait for a connection if necessary, within `timeout_ms`.

        A call that was lost with its connection may have been carried out; an idempotent one is repeated (`again`).
        """
        try:
            async with asyncio.timeout(self._bridge.timeout_ms / 1000):
                while True:
                    await self._ready.wait()
                    try:
                        return await self._client.call(function_id, data)
                    except ConnectionError as error:
                        if not again:
                            why = f"{error}; whether the call was carried out is not known"
                            break
                        await asyncio.sleep(_RETRY_SECONDS)
        except TimeoutError:
            why = self._client.failure or f"no answer within {self._bridge.timeout_ms} ms"
        except RemoteError as error:
            raise _as_live_error(error, self._bridge.url) from None
        raise LiveError("storage", f"the main at {self._bridge.url} cannot be reached: {why}")

    # --- events

    async def _greet(self) -> None:
        """On every new connection: make sure it is a main, follow its events, catch up."""
        self._ready.clear()
        async with asyncio.timeout(max(30, self._bridge.timeout_ms / 1000)):
            try:
                await self._client.call(f"{STORE_PREFIX}get-active-leaf", {"session_id": "-"})
            except RemoteError as error:
                raise ConnectionError(f"it does not keep sessions itself ({error})") from None
            self._early.clear()
            await self._client.send({"type": "registerfunction", "id": self._relay})
            await self._client.send(
                {
                    "type": "registertrigger",
                    "id": uuid.uuid4().hex,
                    "trigger_type": FEED,
                    "function_id": self._relay,
                    "config": {},
                }
            )
            await self._catch_up()
        self._resume()

    def _resume(self) -> None:
        self._ready.set()
        while self._early and self._ready.is_set():
            self._take(self._early.popleft())

    async def _catch_up(self) -> None:
        """Publish the events after the latest published one. At first this only learns the number of the newest."""
        while True:
            known = bool(self._store)  # empty: events in between are no longer kept
            try:
                answer = await self._client.call(
                    f"{STORE_PREFIX}replay-events", {"after": self.head if known else _AFTER_ALL, "limit": _PAGE}
                )
            except RemoteError as error:
                if "session/invalid_cursor" not in str(error):
                    self._settle(self.head)  # a main without replay: missed events stay missed
                    return
                self._store = ""
                continue
            if self._store != answer["store"] or answer["head"] < self.head:
                self._start_over(answer["store"], answer["head"])
                return
            for envelope in answer["events"]:
                self._publish_event(_event_of(envelope, self.head))
            if not answer["events"]:  # the missing ones are lost at the main, too
                self.head = answer["head"]
                self._publish(self.head, list)
            if self.head >= answer["head"]:
                return

    def _start_over(self, store: str, head: int) -> None:
        first = self._store is None
        self._store, self.head = store, head
        self._recent.clear()
        if first:
            self._settle(head)
        else:
            self._restart()

    def _relayed(self, envelope: Any) -> None:
        """The main invoked the relay function with an event."""
        try:
            found = _event_of(envelope, self.head)
        except (msgspec.ValidationError, TypeError) as error:
            _log.warning("%s sent an invalid event: %s", self._bridge.url, error)
            return
        if self._ready.is_set():
            self._take(found)
        else:
            self._early.append(found)

    def _take(self, found: Event) -> None:
        if found.seq == self.head + 1:
            self._publish_event(found)
        elif found.seq > self.head:
            self._ready.clear()
            self._early.append(found)
            self._catching_up = asyncio.create_task(self._fill_gap())

    async def _fill_gap(self) -> None:
        try:
            await self._catch_up()
        except (RemoteError, ConnectionError, LookupError, TypeError, msgspec.MsgspecError) as error:
            await self._client.drop(f"catching up failed: {error}")
        else:
            self._resume()

    def _publish_event(self, found: Event) -> None:
        self.head = found.seq
        if found.trigger_type == DELETED:
            self._forget(found.payload.get("session_id"))
            self._recent.append(found.without_content())
        else:
            self._recent.append(found)
        self._publish(found.seq, lambda: [found])

    def _forget(self, session_id: Any) -> None:
        """Drop the content of a deleted session's recent events."""
        for number, recent in enumerate(self._recent):
            if recent.payload.get("session_id") == session_id:
                self._recent[number] = recent.without_content()

    async def read_events(self, after: int, limit: int) -> list[Event]:
        if self._recent and self._recent[0].seq <= after + 1:
            return [found for found in self._recent if found.seq > after][:limit]
        answer = await self._call_main(f"{STORE_PREFIX}replay-events", {"after": after, "limit": limit})
        return [_event_of(envelope, 0) for envelope in answer["events"]]

    # --- state

    async def metas(self) -> Metas:
        pages = self._pages("session::list", {"order": "created_asc", "limit": _PAGE})
        return {meta["session_id"]: meta async for page in pages for meta in page["sessions"]}

    async def entries(self, session_id: str) -> list[Json]:
        pages = self._pages(f"{STORE_PREFIX}list-entries", {"session_id": session_id, "limit": _PAGE})
        return _in_order([entry async for page in pages for entry in page["entries"]])

    async def _pages(self, function_id: str, request: Json) -> AsyncIterator[Json]:
        """All pages of a list. A main without paging answers with one page."""
        page = await self._call_main(function_id, request)
        yield page
        while (cursor := page.get("next_cursor")) is not None:
            page = await self._call_main(function_id, {**request, "cursor": cursor})
            yield page


class _Envelope(msgspec.Struct):
    trigger_type: str
    payload: dict[str, Any]
    session_metadata: dict[str, Any] | None = None
    seq: int | None = None


def _event_of(envelope: Any, head: int) -> Event:
    """The event in an envelope. An event of a main that does not number them gets the next number."""
    read = msgspec.convert(envelope, _Envelope)
    return event(read.seq or head + 1, read.trigger_type, read.payload, read.session_metadata)


def _in_order(entries: list[Json]) -> list[Json]:
    """Entries with parents before their children."""
    waiting = {entry["id"]: entry for entry in entries}
    ordered: list[Json] = []
    while waiting:
        chain = [waiting.pop(next(iter(waiting)))]
        while parent := waiting.pop(chain[-1].get("parent_id") or "", None):
            chain.append(parent)
        ordered += reversed(chain)
    return ordered


def _as_live_error(error: RemoteError, url: str) -> LiveError:
    """The error of the main; any other failure is a `storage` error."""
    found = _ERROR.search(str(error))
    if found and found[1] in get_args(Code):
        code: Code = found[1]  # type: ignore[assignment]
        return LiveError(code, found[2])
    return LiveError("storage", f"the main at {url} answered: {error}")
