"""The live sessions of one process: the public functions, bindings and configuration, over whichever store is configured."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from .events import Deliver, Event, TriggerType
from .functions import Function

__all__ = ["Live"]


class Live:
    """Everything runs on the event loop that called `start`. Use as `async with Live(home) as live`, or start and close it."""

    def __init__(
        self,
        home: Path,
        *,
        fetch_config: Callable[[], Awaitable[Mapping[str, Any]]] | None = None,
        own_urls: Iterable[str] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """`fetch_config` gives the `[live]` table whenever it is asked; by default that of `home/config.toml`, which is
        also watched. `own_urls` are the WebSocket URLs this instance is reached at (also in `self.own_urls`, may be set
        until `start`): a bridge to one of them is refused."""
        raise NotImplementedError

    async def start(self) -> None:
        """Open the configured store. Raises ConfigError for a configuration that cannot be used, LiveError (`storage`)
        for a store that cannot be opened (another process holds its lock, ...)."""
        raise NotImplementedError

    async def close(self) -> None:
        """Finish what is under way, make everything durable, end all bindings."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def functions(self) -> tuple[Function, ...]:
        """All functions, `session::store::*` included; those answer only while the adapter is `fs`."""
        raise NotImplementedError

    def trigger_types(self) -> tuple[TriggerType, ...]:
        """The six public types and the internal `session::store::events`."""
        raise NotImplementedError

    async def call(self, function_id: str, data: Any) -> Any:
        """Call a function with a JSON value and get a JSON value. Raises LiveError and nothing else; an unknown function
        id is KeyError (a face answers with its own "no such function")."""
        raise NotImplementedError

    def bind(self, binding_id: str, trigger_type: str, config: Any, deliver: Deliver) -> Callable[[], None]:
        """Deliver every matching event, in order, one at a time. Returns `unbind`.

        `config` is the binding's filter and may hold `after` (a sequence number): then everything later than that is
        delivered first. A bad config or trigger type raises LiveError (`invalid_request`); an `after` too old to be
        replayed raises `invalid_cursor`. A binding id that is bound already is replaced. A `deliver` that raises skips
        that event for that binding only. One that is slow falls behind: its queue is bounded, what does not fit is read
        back from the store's log, others are not affected.
        """
        raise NotImplementedError

    def follow(
        self, config: Any = None, *, types: Iterable[str] | None = None, after: int | None = None
    ) -> AsyncIterator[Event]:
        """The same as an async iterator over several types (default: the six public ones), for SSE and Python. A filter
        in `config` that a type does not have excludes nothing of that type. Checked at the call, not at the first event."""
        raise NotImplementedError

    async def replay(self, after: int, limit: int = 500, *, types: Iterable[str] | None = None) -> list[Event]:
        """Up to `limit` events later than `after`, oldest first, without waiting."""
        raise NotImplementedError

    @property
    def last_seq(self) -> int:
        """The sequence number of the newest event."""
        raise NotImplementedError

    @property
    def adapter(self) -> str:
        """`fs` or `bridge`."""
        raise NotImplementedError

    async def reload(self) -> bool:
        """Read the configuration again now (also `session::on-config-change`); False when it was rejected."""
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """For health pages: adapter, where it stores, files that could not be read, bindings, bridge connection."""
        raise NotImplementedError
