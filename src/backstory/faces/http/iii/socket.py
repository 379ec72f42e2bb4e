"""One WebSocket connection: frames in, frames out, until either side ends it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from .engine import Engine
from .peer import Peer, PeerGone

__all__ = ["iii_socket"]

logger = logging.getLogger(__name__)


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
        # Already closed by the client, or not reading: then there is nobody to say goodbye to.
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
            await asyncio.wait_for(socket.close(code, reason), timeout=1)

    return serve


async def _read(socket: WebSocket, engine: Engine, peer: Peer) -> None:
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        # Binary messages are the SDKs' own telemetry, which nobody here asked for.
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
