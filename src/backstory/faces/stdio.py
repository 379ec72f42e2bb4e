"""An MCP server between two streams, answering everything it was asked.

The SDK leaves two kinds of requests without a proper answer: those under way when the input ends get an error, and
lines it cannot decode are dropped. Whoever pipes a file of requests into the server, or sends half an emoji, expects
an answer, so what goes in and comes out is watched here.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server
    from mcp.shared._stream_protocols import ReadStream, WriteStream

__all__ = ["converse"]

# How long answers still owed are waited for once the client has closed its end; longer than any tool's deadline.
_DRAIN_SECONDS = 10.0


async def converse(
    server: Server[Any], incoming: ReadStream[SessionMessage | Exception], outgoing: WriteStream[SessionMessage]
) -> None:
    """Run the server until the input ends and what was asked until then is answered."""
    owed = _Owed()
    requests, relayed = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    answers, answered = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as group:
        group.start_soon(_relay_requests, incoming, requests, answers.clone(), owed)
        group.start_soon(_relay_answers, answered, outgoing, owed)
        await server.run(relayed, answers, server.create_initialization_options())


async def _relay_requests(
    incoming: ReadStream[SessionMessage | Exception],
    requests: MemoryObjectSendStream[SessionMessage | Exception],
    answers: MemoryObjectSendStream[SessionMessage],
    owed: _Owed,
) -> None:
    async with requests, answers:
        async for item in incoming:
            message = item.message if isinstance(item, SessionMessage) else _mend(item)
            if isinstance(message, JSONRPCError) and message.id is None:
                await answers.send(SessionMessage(message))
            elif message is not None:
                owed.asked(message)
                await requests.send(SessionMessage(message))
        with anyio.move_on_after(_DRAIN_SECONDS):
            await owed.settled()


async def _relay_answers(
    answered: MemoryObjectReceiveStream[SessionMessage], outgoing: WriteStream[SessionMessage], owed: _Owed
) -> None:
    async with outgoing:
        async for item in answered:
            await outgoing.send(item)
            owed.answered(item.message)


class _Owed:
    """The requests that have no answer yet."""

    def __init__(self) -> None:
        self._ids: set[RequestId] = set()
        self._changed = anyio.Event()

    def asked(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._settle((message.params or {}).get("requestId"))  # a cancelled request is never answered

    def answered(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._settle(message.id)

    async def settled(self) -> None:
        while self._ids:
            await self._changed.wait()

    def _settle(self, request_id: Any) -> None:
        if isinstance(request_id, str | int):
            self._ids.discard(request_id)
            self._changed.set()
            self._changed = anyio.Event()


def _mend(refused: Exception) -> JSONRPCMessage | None:
    """The message of a line the SDK refused for half a character (a cut emoji), or the error to answer with.

    None for a blank line.
    """
    line = refused.errors()[0]["input"] if isinstance(refused, ValidationError) else ""
    if not isinstance(line, str):
        return _refusal(INVALID_REQUEST, "not a JSON-RPC 2.0 message")
    if not line.strip():
        return None
    try:
        whole = json.dumps(json.loads(line), ensure_ascii=False).encode("utf-8", "replace")
        return jsonrpc_message_adapter.validate_json(whole, by_name=False)
    except (ValueError, RecursionError):
        return _refusal(PARSE_ERROR, "not a line of JSON")


def _refusal(code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=message))
