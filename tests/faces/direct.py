"""An SDK client's transport to our own stdio server, in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage

from backstory.faces.mcp import Connection
from backstory.faces.offer import load_toolset, make_listing, make_offer

if TYPE_CHECKING:
    from typing import BinaryIO

    from backstory.library import Library


class _Output:
    """The server's stdout: gives each line to the client's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, send: Any) -> None:
        self._loop = loop
        self._send = send

    def write(self, line: bytes) -> None:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        self._loop.call_soon_threadsafe(self._send.send_nowait, SessionMessage(message))

    def flush(self) -> None:
        pass


@asynccontextmanager
async def direct(library: Library, names: Sequence[str], pattern: str | None = None) -> AsyncIterator[Any]:
    """Streams to a server with the tools that `names` offer."""
    offer = make_offer(library, names, pattern)
    listing = make_listing(offer, full_output=library.settings.mcp.output_schemas == "full")
    answers, answered = anyio.create_memory_object_stream[SessionMessage | Exception](1000)
    requests, requested = anyio.create_memory_object_stream[SessionMessage](0)
    output = cast("BinaryIO", _Output(asyncio.get_running_loop(), answers))
    connection = Connection(listing, lambda name: load_toolset(library, name, pattern), output)

    async def relay() -> None:
        async for item in requested:
            connection.receive(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async with anyio.create_task_group() as group:
        group.start_soon(relay)
        yield answered, requests
        group.cancel_scope.cancel()
    for stream in (answers, answered, requests, requested):
        stream.close()
