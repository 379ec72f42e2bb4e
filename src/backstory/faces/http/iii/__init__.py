"""Live sessions over the iii WebSocket protocol, on `/`: the engine's side of it, so any iii SDK is a client."""

from __future__ import annotations

from ....toolsets.live.types import MAX_FRAME_BYTES
from .engine import Engine, iii_socket

__all__ = ["MAX_FRAME_BYTES", "Engine", "iii_socket"]
