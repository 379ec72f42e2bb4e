"""MCP over HTTP on `/mcp`. The SDK takes about a second to import, so that happens when the first client comes."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ...library import Library

__all__ = ["McpEndpoint"]


class McpEndpoint:
    def __init__(self, library: Library) -> None:
        self._library = library
        self._starting = asyncio.Lock()
        self._manager: StreamableHTTPSessionManager | None = None
        self._stop = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = time.monotonic()
        manager = await self._started()
        await manager.handle_request({**scope, "received": received}, receive, send)

    async def close(self) -> None:
        self._stop.set()
        if self._running is not None:
            await self._running

    async def _started(self) -> StreamableHTTPSessionManager:
        async with self._starting:
            if self._manager is None:
                manager = await asyncio.to_thread(self._build)
                ready = asyncio.Event()
                self._running = asyncio.create_task(self._run(manager, ready))
                await ready.wait()
                self._manager = manager
            return self._manager

    def _build(self) -> StreamableHTTPSessionManager:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from ..mcp import build_server
        from ..offer import DEFAULT

        logging.getLogger("mcp.server.streamable_http").addFilter(_is_news)
        # Answers come whole, as JSON: an event stream for each of them took a sixth of the server's time.
        return StreamableHTTPSessionManager(build_server(self._library, [DEFAULT]), json_response=True)

    async def _run(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        # The manager's sessions live inside its context, and a context belongs to one task.
        async with manager.run():
            ready.set()
            await self._stop.wait()


def _is_news(record: logging.LogRecord) -> bool:
    """A client that went away in the middle of its request is no error of this server."""
    return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect))
