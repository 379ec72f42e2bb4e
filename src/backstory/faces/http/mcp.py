"""MCP over HTTP on `/mcp`. The SDK takes about a second to import, so that happens when the first client comes."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ...library import Library

__all__ = ["McpEndpoint"]

# How much of a request is kept to find its id, which stands at the beginning mostly.
_HEARD_BYTES = 1 << 20


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
        if scope["method"] == "POST":
            receive, send = _naming_request(receive, send)
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


def _naming_request(receive: Receive, send: Send) -> tuple[Receive, Send]:
    """Streams whose refusals name the request: the SDK answers JSON that it cannot decode with `id: null`."""
    heard = bytearray()
    held: list[Message] = []

    async def hear() -> Message:
        message = await receive()
        if len(heard) < _HEARD_BYTES:
            heard.extend(message.get("body", b""))
        return message

    async def say(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 400:
            held.append(message)
            return
        if held:
            start, body = held.pop(), _with_id(message.get("body", b""), bytes(heard))
            others = [(name, value) for name, value in start["headers"] if name.lower() != b"content-length"]
            await send({**start, "headers": [*others, (b"content-length", b"%d" % len(body))]})
            message = {**message, "body": body}
        await send(message)

    return hear, say


def _with_id(answer: bytes, request: bytes) -> bytes:
    from ..stdio import top_of

    try:
        error = json.loads(answer)
        if error["id"] is None and "method" in (given := top_of(request.decode("utf-8", "replace"))):
            return json.dumps({**error, "id": given.get("id")}).encode()
    except (KeyError, TypeError, ValueError):
        pass
    return answer


def _is_news(record: logging.LogRecord) -> bool:
    """A client that went away in the middle of its request is no error of this server."""
    return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect))
