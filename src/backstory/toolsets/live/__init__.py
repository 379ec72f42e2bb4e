"""Live sessions: a durable, reactive, branching store of typed conversation entries (`session::*`).

`Live` is the whole domain below any wire: the live sessions of one process, with their functions, bindings and
configuration, over the configured adapter. A face starts one, registers `live.functions()` and `live.trigger_types()`,
forwards calls to `live.call` and bindings to `live.bind`; nothing else is needed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from ...config import ConfigError, load_settings
from ..base import BadArgument, decode_arguments
from .adapters import Adapter, FsAdapter, RefusingAdapter
from .bridge import BridgeAdapter
from .events import FEED, PUBLIC_TYPES, Deliver, Event, Filter, TriggerType, parse_filter, trigger_types
from .feed import Feed, Metas, Snapshot, Subscription, state_events
from .functions import REQUESTS, Function, functions
from .types import BridgeSettings, LiveError, LiveSettings, Unwritable, is_own_url, parse_settings
from .upkeep import Forget

__all__ = ["Deliver", "Event", "Function", "Live", "LiveError", "TriggerType"]

_log = logging.getLogger("backstory.live")
_WATCH_SECONDS = 0.5
# Longer than the turn of a process that uses the sessions for a moment (see `tools`).
_WAIT_SECONDS = 2.0


class Live:
    """Runs on the event loop that called `start`. Use as `async with Live(home) as live`, or start and close it."""

    def __init__(
        self,
        home: Path,
        *,
        fetch_config: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
        own_urls: Iterable[str] = (),
        forget: Forget | None = None,
        start_unwritable: bool = False,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`fetch_config` returns the `[live]` table; by default that of `home/config.toml`, which is also watched.
        `own_urls` are the WebSocket URLs of this instance (also in `self.own_urls`, which may be set until `start`): a
        bridge to one of them is refused. `forget` deletes a session from the archive. With `start_unwritable`, a folder
        that cannot be written is no reason not to start: calls are refused then."""
        self.own_urls = list(own_urls)
        self._home = home
        self._forget = forget
        self._start_unwritable = start_unwritable
        self._environ = environ
        self._fetch = fetch_config or self._fetch_file
        self._watch = fetch_config is None
        self._feed = Feed()
        self._current: Adapter | None = None
        self._bindings: dict[str, asyncio.Task[None]] = {}
        self._reloading = asyncio.Lock()
        self._rejected = 0
        self._error: str | None = None
        self._helpers: set[asyncio.Task[None]] = set()
        self._users: Counter[Adapter] = Counter()
        self._idle = asyncio.Event()

    def take_config_from(self, fetch: Callable[[], Awaitable[Mapping[str, Any]]]) -> None:
        """Use another source of the `[live]` table than `config.toml`. Until `start`."""
        self._fetch, self._watch = fetch, False

    # --- starting and closing

    async def start(self, wait_seconds: float = 0.0) -> None:
        """Start the configured adapter. Raises ConfigError for a bad configuration, LiveError (`storage`) for a folder
        that cannot be opened, because another process holds its lock until the end of the wait, for example."""
        settings = await self._load()
        try:
            self._current = adapter = await self._open(settings, self._feed.settle, wait_seconds)
        except Unwritable as error:
            if not self._start_unwritable:
                raise
            _log.warning("live sessions are refused: %s", error.message)
            self._current = adapter = RefusingAdapter(error.message)
        self._feed.attach(adapter.read_events, adapter.head)
        if not isinstance(adapter, BridgeAdapter):
            self._feed.settle(adapter.head)
        if self._watch:
            self._help(self._watch_file())

    async def close(self) -> None:
        """Finish running calls, make everything durable, end all bindings."""
        async with self._reloading:
            tasks = [*self._bindings.values(), *self._helpers]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._retire(self._adapter)

    async def __aenter__(self) -> Self:
        await self.start(_WAIT_SECONDS)
        return self

    @property
    def _adapter(self) -> Adapter:
        if self._current is None:
            raise RuntimeError("live sessions were used before they were started")
        return self._current

    def contended(self) -> bool:
        """True if another process waits for the sessions of this one."""
        return self._adapter.contended()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- functions

    def functions(self) -> tuple[Function, ...]:
        """All functions, `session::store::*` included; those answer only while the adapter is `fs`."""
        return functions()

    async def call(self, function_id: str, data: Any) -> Any:
        """Call a function with a JSON value and get a JSON value. Raises LiveError and nothing else, or KeyError for an
        unknown function id (a face answers that with its own "no such function")."""
        kind = REQUESTS[function_id]
        try:
            if data is not None and not isinstance(data, dict):
                raise LiveError("invalid_request", "the request must be an object")
            request = decode_arguments(kind, data or {})
            if function_id == "session::config-status":
                return self._config_status()
            if function_id == "session::on-config-change":
                return {"ok": await self.reload()}
            return await self._answer(self._adapter, function_id, request)
        except LiveError:
            raise
        except BadArgument as error:
            raise LiveError("invalid_request", error.message) from None
        except (UnicodeEncodeError, RecursionError) as error:
            raise LiveError("invalid_request", f"the request cannot be written as JSON: {error}") from None
        except (OSError, sqlite3.Error) as error:
            raise LiveError("storage", f"{function_id} failed: {error}") from None
        except Exception:
            _log.exception("%s failed", function_id)
            raise LiveError("storage", "an unexpected error, which is in the log of the server") from None

    # --- events

    def trigger_types(self) -> tuple[TriggerType, ...]:
        """The six public types and the internal `session::store::events`."""
        return trigger_types()

    def bind(self, binding_id: str, trigger_type: str, config: Any, deliver: Deliver) -> Callable[[], None]:
        """Deliver every matching event, in order, one at a time. Returns `unbind`.

        `config` is the binding's filter and may hold `after` (a sequence number): then everything later than that is
        delivered first. A bad config or trigger type raises LiveError (`invalid_request`), an `after` that cannot be
        replayed `invalid_cursor`. A binding id that is bound already is replaced. A `deliver` that raises skips that
        event for that binding only. A slow one does not delay others: events that do not fit its bounded queue are read
        from the store's log later. When the log no longer has them, the binding gets the current state instead.
        """
        subscription = self._subscribe(parse_filter([trigger_type], config))
        task = asyncio.create_task(self._deliver(binding_id, subscription, deliver, envelope=trigger_type == FEED))
        if replaced := self._bindings.get(binding_id):
            replaced.cancel()
        self._bindings[binding_id] = task

        def unbind() -> None:
            task.cancel()
            if self._bindings.get(binding_id) is task:
                del self._bindings[binding_id]

        return unbind

    async def _deliver(self, binding_id: str, subscription: Subscription, deliver: Deliver, *, envelope: bool) -> None:
        try:
            while True:
                try:
                    event = await anext(subscription)
                except LiveError as error:
                    _log.warning("binding %s fell behind and gets the current state: %s", binding_id, error)
                    await self._send_state({}, subscription.restart)
                    continue
                payload = msgspec.to_builtins(event) if envelope else event.payload
                try:
                    await deliver(payload, event.seq)
                except Exception as error:
                    _log.warning("binding %s did not take event %d: %s", binding_id, event.seq, error)
        finally:
            self._feed.drop(subscription)

    def follow(
        self, config: Any = None, *, types: Iterable[str] | None = None, after: int | None = None
    ) -> AsyncIterator[Event]:
        """The same as an async iterator over several types (default: the six public ones), for SSE and Python.
        `session_id` applies to all types, `roles` to messages. Events count from the call on, not from the first
        `anext`. Raises LiveError (`invalid_cursor`), also later, when the next events are no longer kept."""
        filter = parse_filter(PUBLIC_TYPES if types is None else types, config, lenient=True)
        if after is not None:
            filter = msgspec.structs.replace(filter, after=after)
        return self._iterate(self._subscribe(filter))

    async def _iterate(self, subscription: Subscription) -> AsyncIterator[Event]:
        try:
            async for event in subscription:
                yield event
        finally:
            self._feed.drop(subscription)

    async def ensure_kept(self, after: int) -> None:
        """Raise LiveError (`invalid_cursor`) when the events later than a number are no longer kept.

        A bridge asks its main. While that cannot be reached, nothing is raised.
        """
        if self._adapter.name == "bridge" and self._feed.settled and after < self._feed.head:
            try:
                await self._adapter.read_events(after, 1)
            except LiveError as error:
                if error.code == "invalid_cursor":
                    raise

    def _subscribe(self, filter: Filter) -> Subscription:
        oldest = self._adapter.oldest
        if filter.after is not None and filter.after < oldest:
            raise LiveError("invalid_cursor", f"events up to {oldest} are no longer kept; read the sessions instead")
        return self._feed.subscribe(filter)

    async def replay(self, after: int, limit: int = 500) -> list[Event]:
        """Up to `limit` events later than `after`, oldest first, without waiting."""
        filter = parse_filter(PUBLIC_TYPES, None, lenient=True)
        return [event for event in await self._feed.read(after, limit) if filter.matches(event)]

    @property
    def last_seq(self) -> int:
        """The sequence number of the newest event."""
        return self._feed.head

    # --- configuration

    @property
    def adapter(self) -> str:
        """`fs` or `bridge`."""
        return self._adapter.name

    async def reload(self) -> bool:
        """Read the configuration again now (also `session::on-config-change`); False when it was rejected."""
        async with self._reloading:
            try:
                settings = await self._load()
                if not self._adapter.configure(settings):
                    await self._exchange(settings)
            except Exception as error:
                self._rejected += 1
                self._error = str(error)
                _log.warning("the configuration of live sessions was rejected: %s", error)
                return False
            self._error = None
            return True

    def status(self) -> dict[str, Any]:
        """For health pages: adapter, where it stores, files that could not be read, bindings, bridge connection."""
        about = {"adapter": self._adapter.name, "bindings": len(self._feed), "config": self._config_status()}
        return about | self._adapter.status()

    def _config_status(self) -> dict[str, Any]:
        outcome = "applied" if self._error is None else "rejected"
        return {"last_outcome": outcome, "last_error": self._error, "rejected_reloads": self._rejected}

    async def _load(self) -> LiveSettings:
        table = await self._fetch()
        try:
            settings = parse_settings(table, self._home, self._environ)
            if isinstance(settings.adapter, BridgeSettings) and is_own_url(settings.adapter.url, self.own_urls):
                raise ConfigError(f"[live] adapter.config.url: {settings.adapter.url} is this very server")
        except ConfigError as error:
            raise ConfigError(f"{self._home / 'config.toml'}: {error}" if self._watch else str(error)) from None
        return settings

    async def _open(self, settings: LiveSettings, settle: Callable[[int], None], wait_seconds: float = 0.0) -> Adapter:
        """Start an adapter. Its events reach subscribers while it is the current one."""
        adapter: Adapter | None = None

        def publish(head: int, events: Callable[[], list[Event]]) -> None:
            if adapter is not None and adapter is self._current:
                self._feed.publish(head, events)

        if isinstance(settings.adapter, BridgeSettings):
            adapter = BridgeAdapter(settings, publish, settle, lambda: self._restart({}))
        else:
            url = next(iter(self.own_urls), "")
            adapter = await FsAdapter.open(settings, publish, url, self._forget, wait_seconds)
        return adapter

    async def _exchange(self, settings: LiveSettings) -> None:
        """Replace the current adapter, and send subscribers the state of the new one."""
        old = self._adapter
        before: Metas = {}
        with suppress(LiveError):
            before = await old.metas()
        new = await self._open(settings, lambda _: self._restart(before))
        self._current, self._error = new, None
        self._feed.attach(new.read_events, new.head)
        if isinstance(new, FsAdapter):
            self._restart(before)
        await self._retire(old)

    def _restart(self, before: Metas) -> None:
        """Let all subscriptions start over with the state of the current adapter; `before` is the state they had."""
        self._feed.attach(self._adapter.read_events, self._adapter.head)
        self._help(self._send_state(before, self._feed.restart))

    async def _send_state(self, before: Metas, restart: Callable[[int, Snapshot], None]) -> None:
        """Restart subscriptions with the current state; events after it follow."""
        adapter, head = self._adapter, self._adapter.head
        metas: Metas = {}
        try:
            metas = await adapter.metas()
        except (LiveError, OSError, sqlite3.Error) as error:
            _log.warning("the state of live sessions could not be read: %s", error)
        if adapter is self._current:
            restart(head, lambda filter: state_events(filter, head, before, metas, adapter.entries))

    def _help(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in the background until done, or until everything is closed."""
        task = asyncio.create_task(work)
        self._helpers.add(task)
        task.add_done_callback(self._helpers.discard)

    async def _answer(self, adapter: Adapter, function_id: str, request: Any) -> Any:
        self._users[adapter] += 1
        try:
            return await adapter.call(function_id, request)
        finally:
            self._users[adapter] -= 1
            self._idle.set()

    async def _retire(self, adapter: Adapter) -> None:
        """Close an adapter once its running calls are answered."""
        while self._users[adapter]:
            self._idle.clear()
            await self._idle.wait()
        await adapter.close()
        del self._users[adapter]

    async def _fetch_file(self) -> Mapping[str, Any]:
        return load_settings(self._home, self._environ).live

    async def _watch_file(self) -> None:
        path = self._home / "config.toml"
        seen = _version(path)
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if seen != (seen := _version(path)):
                await self.reload()


def _version(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
