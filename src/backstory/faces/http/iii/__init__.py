"""Live sessions over the iii WebSocket protocol, on `/`: the engine's side of it, so any iii SDK is a client.

Clients register, and call one another and the live sessions. One client is one WebSocket connection, which either side
may end.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from ....toolsets.live import Live
from .calls import Calls, Triggers
from .peers import (
    BadFrame,
    InvocationResult,
    InvokeFunction,
    Peer,
    PeerGone,
    Ping,
    Pong,
    Reattach,
    RegisterFunction,
    RegisterTrigger,
    RegisterTriggerType,
    TriggerRegistrationResult,
    UnknownFrame,
    UnregisterFunction,
    UnregisterTrigger,
    UnregisterTriggerType,
    error_body,
    given,
    read_frame,
    write_frame,
)

OWN_NAME = "backstory"
logger = logging.getLogger(__name__)


class Engine:
    def __init__(self, live: Live) -> None:
        self._live = live
        self._peers: dict[str, Peer] = {}
        self._calls = Calls()
        self._triggers = Triggers(live, self._calls)
        for function in live.functions():
            self._calls.local[function.id] = self._live_function(function.id)
        # Functions that the SDKs expect of any engine. There is one namespace.
        self._calls.local |= {
            "engine::workers::register": self._register_worker,
            "engine::workers::list": self._list_workers,
            "engine::functions::list": self._list_functions,
            "engine::triggers::list": self._list_trigger_types,
            "engine::registered-triggers::list": self._list_bindings,
        }

    def attach(self) -> Peer:
        peer = Peer()
        self._peers[peer.id] = peer
        peer.push(write_frame("workerregistered", worker_id=peer.id, reattach_token=peer.token))
        return peer

    def detach(self, peer: Peer) -> None:
        """Remove everything of this client. Idempotent."""
        if self._peers.pop(peer.id, None) is not None:
            peer.outbox.close()
            self._triggers.drop(peer)
            self._calls.drop(peer)

    async def receive(self, peer: Peer, text: str) -> None:
        """Handle one frame. Never raises: an unknown or malformed frame is ignored with a warning."""
        try:
            frame = read_frame(text)
        except UnknownFrame as error:
            peer.warn_once(f"type {error}", f"ignored a frame of unknown type {str(error)!r}")
        except BadFrame as error:
            peer.warn_once(str(error), f"ignored a malformed frame: {error}")
            if error.invocation_id is not None:
                message = str(error)
                if not message.startswith("session/"):
                    message = f"malformed frame: {message}"
                body = error_body("invocation_failed", message)
                ids = {"invocation_id": error.invocation_id, "function_id": error.function_id}
                peer.push(write_frame("invocationresult", **ids, error=body))
        else:
            await self._handle(peer, frame)

    async def _handle(self, peer: Peer, frame: object) -> None:
        match frame:
            case InvokeFunction():
                await self._calls.invoke(peer, frame)
            case InvocationResult():
                self._calls.result(peer, frame)
            case RegisterFunction():
                self._calls.register(peer, frame)
            case UnregisterFunction():
                self._calls.unregister(peer, frame.id)
            case RegisterTrigger():
                self._triggers.bind(peer, frame)
            case UnregisterTrigger():
                self._triggers.unbind(peer, frame.id)
            case RegisterTriggerType():
                self._triggers.register_type(peer, frame, list(self._peers.values()))
            case UnregisterTriggerType():
                self._triggers.unregister_type(peer, frame.id)
            case TriggerRegistrationResult():
                self._triggers.result(peer, frame)
            case Reattach():
                self._reattach(peer, frame)
            case Ping():
                peer.push(write_frame("pong"))
            case Pong():
                pass

    def _reattach(self, peer: Peer, frame: Reattach) -> None:
        """Close the old connection of a client that has reconnected, so that it gets no event twice."""
        old = self._peers.get(frame.previous_worker_id)
        if old is None or old is peer:
            return
        if not hmac.compare_digest(old.token.encode(), (frame.reattach_token or "").encode()):
            peer.warn_once("reattach", "reattach with a token that is not that worker's; ignored")
            return
        self.detach(old)
        old.close(1000, "reattached on another connection")

    def _live_function(self, function_id: str) -> Any:
        async def call(_caller: Peer | None, data: Any) -> Any:
            return await self._live.call(function_id, data)

        return call

    async def _register_worker(self, caller: Peer | None, data: Any) -> Any:
        if caller is not None and isinstance(data, dict):
            caller.about = data
            return {"success": True, "worker_id": caller.id}
        return {"success": False}

    async def _list_workers(self, _caller: Peer | None, _data: Any) -> Any:
        own = {"id": OWN_NAME, "name": OWN_NAME, "status": "connected", "functions": sorted(self._calls.local)}
        return {
            "workers": [
                own,
                *(
                    {"id": p.id, "name": p.name, "status": "connected", "functions": sorted(p.functions)}
                    for p in self._peers.values()
                ),
            ]
        }

    async def _list_functions(self, _caller: Peer | None, _data: Any) -> Any:
        own = [
            {
                "function_id": f.id,
                "worker_name": OWN_NAME,
                "description": f.description,
                "request_format": f.request_schema,
                "response_format": f.response_schema,
            }
            for f in self._live.functions()
        ]
        clients = [
            {
                "function_id": f.id,
                "worker_name": peer.name,
                "description": f.description,
                "request_format": f.request_format,
                "response_format": f.response_format,
                "metadata": f.metadata,
            }
            for peer, f in self._calls.registered()
        ]
        return {"functions": own + clients}

    async def _list_trigger_types(self, _caller: Peer | None, _data: Any) -> Any:
        own = [
            {
                "id": t.id,
                "worker_name": OWN_NAME,
                "description": t.description,
                "trigger_request_format": t.config_schema,
            }
            for t in self._live.trigger_types()
        ]
        clients = [
            {"id": t.id, "worker_name": peer.name, "description": t.description or ""}
            for peer, t in self._triggers.types()
        ]
        return {"triggers": own + clients}

    async def _list_bindings(self, _caller: Peer | None, _data: Any) -> Any:
        return {
            "registered_triggers": [
                {
                    "id": b.frame.id,
                    "trigger_type": b.frame.trigger_type,
                    "function_id": b.frame.function_id,
                    "worker_name": peer.name,
                    "config": b.frame.config,
                    "metadata": given(b.frame.metadata),
                }
                for peer in self._peers.values()
                for b in peer.bindings.values()
            ]
        }


def iii_socket(engine: Engine) -> Callable[[WebSocket], Awaitable[None]]:
    """The endpoint that connects WebSocket clients to this engine."""

    async def serve(socket: WebSocket) -> None:
        await socket.accept(subprotocol=_subprotocol(socket))
        peer = engine.attach()
        reading = asyncio.create_task(_read(socket, engine, peer))
        writing = asyncio.create_task(_write(socket, peer))
        try:
            ends: set[asyncio.Future[Any]] = {reading, writing, peer.closing}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            engine.detach(peer)
            reading.cancel()
            writing.cancel()
            outcomes = await asyncio.gather(reading, writing, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                logger.error("the connection of iii client %s failed", peer.name[:80], exc_info=outcome)
                peer.close(1011, "internal error")
        code, reason = peer.closing.result() if peer.closing.done() else (1000, "")
        # The client may have closed the connection already, or may not read.
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
            await asyncio.wait_for(socket.close(code, reason), timeout=1)

    return serve


async def telemetry_socket(socket: WebSocket) -> None:
    """Take the telemetry of the SDKs' own calls, which is not kept: an SDK that is refused tries again for ever."""
    await socket.accept(subprotocol=_subprotocol(socket))
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


async def _read(socket: WebSocket, engine: Engine, peer: Peer) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        # Binary messages are telemetry, which older SDKs send here.
        if (text := message.get("text")) is not None:
            await engine.receive(peer, text)


async def _write(socket: WebSocket, peer: Peer) -> None:
    with contextlib.suppress(PeerGone, WebSocketDisconnect):
        while True:
            text = await peer.outbox.get()
            try:
                await socket.send_text(text)
            except RuntimeError:
                return  # closed meanwhile: the client broke the protocol, or is gone


def _subprotocol(socket: WebSocket) -> str | None:
    """Browsers hang up unless one of the subprotocols they offer is chosen, the one with the token included."""
    offered: list[str] = socket.scope.get("subprotocols", [])
    return offered[0] if offered else None
