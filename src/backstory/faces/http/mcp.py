"""MCP over HTTP on `/mcp`, with the official SDK, which takes a second to import: the first client imports it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from ...toolsets.base import Tool, received
from ..jsonrpc import top_of
from ..mcp import PARALLEL_CALLS, SERVER, TOOLS_FRESH_MS, unknown_tool
from ..offer import DEFAULT, definition, make_offer

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext
    from mcp.server.lowlevel.server import Server
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from ...library import Library

log = logging.getLogger("backstory.mcp")

# The part of a request that is searched for its id.
_HEARD_BYTES = 1 << 20


class McpEndpoint:
    """The ASGI endpoint of `/mcp`."""

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

        logging.getLogger("mcp.server.streamable_http").addFilter(_is_fault)
        # Answers come whole, as JSON: an event stream for each of them took a sixth of the server's time.
        return StreamableHTTPSessionManager(build_server(self._library, [DEFAULT]), json_response=True)

    async def _run(self, manager: StreamableHTTPSessionManager, ready: asyncio.Event) -> None:
        # The manager's sessions live inside its context, and a context belongs to one task.
        async with manager.run():
            ready.set()
            await self._stop.wait()


def build_server(library: Library, names: Sequence[str]) -> Server[Any]:
    """A server of the SDK with the tools that `names` offer.

    Tools of these toolsets that are not listed can be called too: the list is short to save agents' context.
    """
    import mcp_types as types
    from mcp.server.caching import CacheHint
    from mcp.server.lowlevel.server import Server
    from mcp.shared.exceptions import MCPError

    offer = make_offer(library, names)
    tools = {tool.name: tool for toolset in offer.toolsets for tool in toolset.tools}
    callable_tools = {alias: tool for tool in tools.values() for alias in tool.aliases} | tools
    full = library.settings.mcp.output_schemas == "full"
    definitions = [definition(tool, full_output=full) for tool in offer.tools]
    listing = types.ListToolsResult(tools=[types.Tool.model_validate(tool) for tool in definitions])
    limiter = CapacityLimiter(PARALLEL_CALLS)

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listing

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = callable_tools.get(params.name)
        if tool is None:
            error = unknown_tool(params.name, [tool.name for tool in offer.tools])
            raise MCPError(error.code, error.message, error.data)
        with received(_received(context)):
            return await _call(tool, params.arguments or {}, limiter)

    return Server(
        SERVER["name"],
        version=SERVER["version"],
        title=SERVER["title"],
        instructions=offer.instructions,
        cache_hints={"tools/list": CacheHint(ttl_ms=TOOLS_FRESH_MS)},
        get_tool_input_schema=lambda name: callable_tools[name].input_schema if name in callable_tools else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _call(tool: Tool, arguments: dict[str, Any], limiter: CapacityLimiter) -> types.CallToolResult:
    import mcp_types as types
    from mcp.shared.exceptions import MCPError

    try:
        reply = await run_sync(partial(tool.handler, arguments), limiter=limiter, abandon_on_cancel=True)
    except Exception as error:
        # Handlers answer every error themselves; an exception is a bug, and its details stay on this side.
        log.exception("%s failed", tool.name)
        message = f"{tool.name} failed unexpectedly; see the server's stderr"
        raise MCPError(types.INTERNAL_ERROR, message) from error
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=reply.text)],
        structured_content=reply.data if tool.structured_errors or not reply.is_error else None,
        is_error=reply.is_error,
    )


def _received(context: ServerRequestContext[Any]) -> float:
    """The moment a request came in, from its scope."""
    moment = getattr(context.request, "scope", {}).get("received")
    return moment if isinstance(moment, float) else time.monotonic()


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
    try:
        error = json.loads(answer)
        if error["id"] is None and "method" in (given := top_of(request.decode("utf-8", "replace"))):
            return json.dumps({**error, "id": given.get("id")}).encode()
    except (KeyError, TypeError, ValueError):
        pass
    return answer


def _is_fault(record: logging.LogRecord) -> bool:
    """False for a client that disconnected during its request, which is no error of this server."""
    return not (record.exc_info and isinstance(record.exc_info[1], ClientDisconnect))
