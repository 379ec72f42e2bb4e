"""The MCP face: the tools of the chosen toolsets over the official SDK, in both protocol eras."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

from .. import __version__
from ..toolsets.base import Tool, excerpt, received
from .offer import make_offer
from .stdio import converse

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

    from ..library import Library

__all__ = ["build_server", "serve_stdio"]

log = logging.getLogger("backstory.mcp")

# Calls are mostly Python, so more threads would only take turns with the one that reads requests and writes answers.
_PARALLEL_CALLS = 4
_STOP_SECONDS = 2.0
_TOOLS_FRESH_MS = 3_600_000


def build_server(library: Library, names: Sequence[str], *, pattern: str | None = None) -> Server[Any]:
    """A server with the tools that `names` offer. `pattern` narrows the conversations toolset to some projects.

    Tools of these toolsets that are not listed can be called too: the list is short for the sake of agents' context.
    """
    offer = make_offer(library, names, pattern)
    tools = {tool.name: tool for toolset in offer.toolsets for tool in toolset.tools}
    callable_tools = {alias: tool for tool in tools.values() for alias in tool.aliases} | tools
    full = library.settings.mcp.output_schemas == "full"
    listing = types.ListToolsResult(tools=[_describe(tool, full_output=full) for tool in offer.tools])
    limiter = anyio.CapacityLimiter(_PARALLEL_CALLS)

    async def list_tools(
        context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return listing

    async def call_tool(
        context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = callable_tools.get(params.name)
        if tool is None:
            raise MCPError(
                types.INVALID_PARAMS,
                f"Unknown tool: {excerpt(params.name)}",
                {"tools": [tool.name for tool in offer.tools]},
            )
        with received(_received(context)):
            return await _call(tool, params.arguments or {}, limiter)

    return Server(
        "backstory",
        version=__version__,
        title="Backstory",
        instructions=offer.instructions,
        cache_hints={"tools/list": CacheHint(ttl_ms=_TOOLS_FRESH_MS)},
        get_tool_input_schema=lambda name: callable_tools[name].input_schema if name in callable_tools else None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def serve_stdio(library: Library, names: Sequence[str], *, pattern: str | None = None) -> None:
    """Serve on stdin and stdout until the client closes its end or the process is told to stop.

    Transcripts are indexed and watched in the background meanwhile. Logging goes to stderr: stdout is the protocol.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="backstory: %(levelname)s: %(message)s")
    server = build_server(library, names, pattern=pattern)
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(library, stop), name="backstory-watch", daemon=True)

    def close() -> None:
        stop.set()
        watcher.join(_STOP_SECONDS)
        if watcher.is_alive():  # amid much to read: what is committed is safe, the rest is read the next time
            os._exit(0)
        library.close()

    watcher.start()
    try:
        anyio.run(_serve, server, close)
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        log.info("the client went away")
    finally:
        close()


async def _serve(server: Server[Any], close: Callable[[], None]) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(_exit_on_signal, close)
        async with stdio_server() as (incoming, outgoing):
            await converse(server, incoming, outgoing)
        group.cancel_scope.cancel()


async def _exit_on_signal(close: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            close()
            # A thread is blocked in reading stdin and nothing wakes it: an orderly return would wait for the client.
            os._exit(0)


async def _call(tool: Tool, arguments: dict[str, Any], limiter: anyio.CapacityLimiter) -> types.CallToolResult:
    try:
        reply = await anyio.to_thread.run_sync(
            partial(tool.handler, arguments), limiter=limiter, abandon_on_cancel=True
        )
    except Exception as error:
        # Handlers answer every error themselves; what still gets here is a bug, and its details stay on this side.
        log.exception("%s failed", tool.name)
        raise MCPError(types.INTERNAL_ERROR, f"{tool.name} failed unexpectedly; see the server's stderr") from error
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=reply.text)],
        structured_content=reply.data if tool.structured_errors or not reply.is_error else None,
        is_error=reply.is_error,
    )


def _received(context: ServerRequestContext[Any]) -> float:
    """The moment a request came in: over HTTP the scope has it, on stdio `converse` sends it along."""
    request: Any = context.request
    moment = request.scope.get("received") if hasattr(request, "scope") else request
    return moment if isinstance(moment, float) else time.monotonic()


def _describe(tool: Tool, *, full_output: bool) -> types.Tool:
    schema = tool.output_schema if full_output else tool.compact_output
    # Clients of the handshake era want an object at the root of the schema, also where it is a union.
    output = {"type": "object", **schema} if schema is not None else None
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=output,
        annotations=types.ToolAnnotations(
            read_only_hint=tool.read_only,
            destructive_hint=tool.destructive,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def _watch(library: Library, stop: threading.Event) -> None:
    try:
        library.watch(stop)
    except Exception:
        # Searching what is there goes on; only news would be missing, and `doctor` shows that.
        log.exception("watching transcripts stopped")
