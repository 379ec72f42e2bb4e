"""An MCP server between two streams, answering everything it was asked.

The SDK leaves two kinds of requests without a proper answer: those under way when the input ends get an error, and
lines it cannot decode are dropped. Whoever pipes a file of requests into the server, or sends half an emoji, expects
an answer, so what goes in and comes out is watched here.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
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

__all__ = ["converse", "top_of"]

_NO_MESSAGE = "not a JSON-RPC 2.0 message"
_TOO_DEEP = "nested too deeply"
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[{}\[\],:]|[^\s"{}\[\],:]++')
_MAX_SCANNED_CHARS = 1 << 20
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
            if isinstance(message, _Refusal):
                await answers.send(SessionMessage(message.error))
            elif message is not None:
                owed.asked(message)
                await requests.send(SessionMessage(message, ServerMessageMetadata(request_context=time.monotonic())))
        with anyio.move_on_after(_DRAIN_SECONDS):
            await owed.settled()


async def _relay_answers(
    answered: MemoryObjectReceiveStream[SessionMessage], outgoing: WriteStream[SessionMessage], owed: _Owed
) -> None:
    async with outgoing:
        async for item in answered:
            await outgoing.send(item)
            owed.answered(item.message)


class _Refusal(NamedTuple):
    error: JSONRPCError


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


def _mend(refused: Exception) -> JSONRPCMessage | _Refusal | None:
    """The message of a line the SDK refused for half a character (a cut emoji), or the error to answer with.

    None for a blank line.
    """
    line = refused.errors()[0]["input"] if isinstance(refused, ValidationError) else ""
    if not isinstance(line, str):
        return _refusal(INVALID_REQUEST, _NO_MESSAGE)
    if not line.strip():
        return None
    try:
        value = json.loads(line)
        whole = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except ValueError:
        return _refusal(PARSE_ERROR, "not a line of JSON")
    except RecursionError:
        return _refusal(PARSE_ERROR, _TOO_DEEP, top_of(line))
    try:
        return jsonrpc_message_adapter.validate_json(whole, by_name=False)
    except ValidationError as error:
        deep = error.errors()[0]["type"] == "json_invalid"
        return _refusal(PARSE_ERROR if deep else INVALID_REQUEST, _TOO_DEEP if deep else _NO_MESSAGE, value)


def _refusal(code: int, message: str, request: Any = None) -> _Refusal:
    """An error for a request that is not passed on, with its id where it has one."""
    given = request.get("id") if isinstance(request, dict) and "method" in request else None
    request_id = given if isinstance(given, str | int) and not isinstance(given, bool) else None
    return _Refusal(JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message)))


def top_of(line: str) -> dict[str, Any]:
    """The plain values at the top of a JSON object that is nested too deeply to be decoded."""
    depth, key, colon = 0, "", False
    found: dict[str, Any] = {}
    for match in _TOKEN.finditer(line, 0, _MAX_SCANNED_CHARS):
        token = match[0]
        if token in "[{":
            depth += 1
        elif token in "]}":
            depth -= 1
        elif depth == 1 and colon and token[0] in '"-0123456789':
            found[key] = json.loads(token)
        if depth == 1:
            key, colon = (token[1:-1] if token[0] == '"' else key), token == ":"
    return found
