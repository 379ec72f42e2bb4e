"""A client of the iii WebSocket protocol: calls functions of a server, and serves functions to it.

It reconnects whenever the connection is lost, until it is closed.
"""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .types import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_log = logging.getLogger("backstory.live")
_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
# Twice the limit of this implementation: a longer message from another one would end the connection.
_MAX_RECEIVED = 2 * MAX_FRAME_BYTES
_CLOSE_SECONDS = 1
Handler = Callable[[Any], None]


class RemoteError(Exception):
    """The other side answered with an error."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Frame(Struct, rename={"kind": "type"}):
    kind: str
    invocation_id: str | None = None
    function_id: str | None = None
    data: Any = None
    result: Any = None
    error: Any | UnsetType = UNSET


_decode = msgspec.json.Decoder(_Frame).decode


class WireClient:
    def __init__(
        self,
        url: str,
        token: str | None,
        greet: Callable[[], Awaitable[None]],
        lost: Callable[[], None],
        handlers: Mapping[str, Handler],
    ) -> None:
        """`greet` runs on each new connection, while frames are read, and `lost` when it is gone. `handlers` are the
        functions that the server can invoke; they are called in order and must not block."""
        self.url = url
        self.failure: str | None = None
        """The reason why there is no working connection."""
        self._token = token
        self._greet = greet
        self._on_lost = lost
        self._greeted = False
        self._handlers = handlers
        self._connection: ClientConnection | None = None
        self._calls: dict[str, asyncio.Future[Any]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, frame: Mapping[str, Any]) -> None:
        """Send a frame. Raises ConnectionError, or RemoteError for one that is too long."""
        from websockets.exceptions import ConnectionClosed

        if self._connection is None:
            raise ConnectionError(self.failure or "not connected")
        try:
            await self._connection.send(self._encoded(frame))
        except ConnectionClosed as error:
            raise ConnectionError(str(error)) from None

    def _encoded(self, frame: Mapping[str, Any]) -> str:
        data = msgspec.json.encode(frame)
        if len(data) > MAX_FRAME_BYTES:  # it would end the connection, and every other call with it
            why = f"the request has {len(data)} bytes, more than the {MAX_FRAME_BYTES} that can be sent"
            raise RemoteError("invocation_failed", f"session/invalid_request: {why}")
        return data.decode()

    async def call(self, function_id: str, data: Any) -> Any:
        """Call a function. Raises RemoteError, or ConnectionError when the connection is lost before the answer."""
        invocation = str(uuid.uuid4())
        self._calls[invocation] = answer = asyncio.get_running_loop().create_future()
        try:
            await self.send(
                {"type": "invokefunction", "invocation_id": invocation, "function_id": function_id, "data": data}
            )
            return await answer
        finally:
            self._calls.pop(invocation, None)

    async def _run(self) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        delay = _FIRST_DELAY
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else None
        while True:
            try:
                async with connect(
                    self.url,
                    additional_headers=headers,
                    max_size=_MAX_RECEIVED,
                    compression=None,
                    proxy=None,
                    close_timeout=_CLOSE_SECONDS,
                ) as connection:
                    await self._serve(connection)
            except (OSError, WebSocketException, TimeoutError) as error:
                self._lost(str(error) or type(error).__name__)
            if self._greeted:
                delay, self._greeted = _FIRST_DELAY, False
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, _LONGEST_DELAY)

    async def _serve(self, connection: ClientConnection) -> None:
        self._connection = connection
        greeting = asyncio.create_task(self._welcome())
        try:
            async for text in connection:
                await self._receive(text)
        finally:
            self._lost(self.failure or "the connection was lost")
            greeting.cancel()
            await asyncio.gather(greeting, return_exceptions=True)

    async def _welcome(self) -> None:
        """Greet the server. When that fails, the connection is closed and the next one is tried."""
        try:
            await self._greet()
            self._greeted, self.failure = True, None
        except Exception as error:
            await self.drop(str(error) or type(error).__name__)

    async def drop(self, why: str) -> None:
        """Close the connection; the client reconnects."""
        if self._connection is not None:
            self.failure = why
            await self._connection.close()

    def _lost(self, why: str) -> None:
        self._connection, self.failure = None, why
        self._on_lost()
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(ConnectionError(why))

    async def _receive(self, text: str | bytes) -> None:
        try:
            frame = _decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            _log.warning("%s sent an invalid frame: %s", self.url, error)
            return
        if frame.kind == "invocationresult":
            answer = self._calls.get(frame.invocation_id or "")
            if answer is not None and not answer.done():
                if frame.error is UNSET or frame.error is None:
                    answer.set_result(frame.result)
                else:
                    answer.set_exception(_remote_error(frame.error))
        elif frame.kind == "invokefunction":
            await self._invoked(frame)
        elif frame.kind == "ping":
            await self.send({"type": "pong"})

    async def _invoked(self, frame: _Frame) -> None:
        answer: dict[str, Any]
        handler = self._handlers.get(frame.function_id or "")
        if handler is None:
            answer = {"error": {"code": "function_not_found", "message": f"there is no function {frame.function_id}"}}
        else:
            handler(frame.data)
            answer = {"result": None}
        if frame.invocation_id is not None:
            ids = {"invocation_id": frame.invocation_id, "function_id": frame.function_id}
            await self.send({"type": "invocationresult", **ids, **answer})


def _remote_error(error: Any) -> RemoteError:
    if isinstance(error, dict):
        return RemoteError(str(error.get("code", "")), str(error.get("message", "")))
    return RemoteError("", str(error))
