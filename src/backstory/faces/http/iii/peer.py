"""A connected client: who it is, what it registered, and what waits to be sent to it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from .frames import RegisterFunction

if TYPE_CHECKING:
    from .triggers import Binding

__all__ = ["EVENT_BYTES", "OUTBOX_BYTES", "Peer", "PeerGone"]

logger = logging.getLogger(__name__)

OUTBOX_BYTES = 16 * 1024 * 1024
# Events wait in the store's log as well as here: a subscriber that does not read costs this much, not a whole outbox.
EVENT_BYTES = 1024 * 1024
CALLS_AT_ONCE = 64


class PeerGone(Exception):
    """The client went away before this could be sent."""


class Outbox:
    """Frames waiting for the client to read them, bounded by size. One frame always fits into an empty outbox."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._frames: deque[str] = deque()
        self._size = 0
        self._closed = False
        self._changed = asyncio.Event()

    def offer(self, text: str, limit: int | None = None) -> bool:
        """Take the frame if there is room for it now; `limit` is for those who are content with less than all of it."""
        if self._closed or (self._frames and self._size + len(text) > (limit or self._limit)):
            return False
        self._frames.append(text)
        self._size += len(text)
        self._wake()
        return True

    async def put(self, text: str, limit: int | None = None) -> None:
        """Take the frame as soon as there is room for it."""
        while not self.offer(text, limit):
            if self._closed:
                raise PeerGone
            await self._changed.wait()

    async def get(self) -> str:
        while not self._frames:
            if self._closed:
                raise PeerGone
            await self._changed.wait()
        text = self._frames.popleft()
        self._size -= len(text)
        self._wake()
        return text

    def close(self) -> None:
        self._closed = True
        self._frames.clear()
        self._wake()

    def _wake(self) -> None:
        """Let everyone who waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()


class Peer:
    def __init__(self, outbox_bytes: int = OUTBOX_BYTES) -> None:
        self.id = str(uuid4())
        self.token = secrets.token_urlsafe(24)
        self.about: dict[str, Any] = {}
        self.outbox = Outbox(outbox_bytes)
        self.closing: asyncio.Future[tuple[int, str]] = asyncio.get_running_loop().create_future()
        self.functions: dict[str, RegisterFunction] = {}
        self.asked: dict[str, None] = {}
        """Its calls to other clients that wait for an answer, oldest first."""
        self.bindings: dict[str, Binding] = {}
        """Its own bindings, by the id it gave them."""
        self.hosted: dict[str, Binding] = {}
        """Bindings of others to the trigger types it provides, by the id it knows them by."""
        self.slots = asyncio.Semaphore(CALLS_AT_ONCE)
        self._warned: set[str] = set()

    @property
    def name(self) -> str:
        name = self.about.get("name")
        return name if isinstance(name, str) and name else self.id

    def push(self, text: str) -> None:
        """Send what must not be lost, without waiting; a client that has left this much unread is disconnected."""
        if not self.outbox.offer(text):
            self.close(1013, "too slow: too much is waiting to be read")

    def close(self, code: int, reason: str) -> None:
        if not self.closing.done():
            self.closing.set_result((code, reason))

    def warn_once(self, about: str, message: str) -> None:
        """A client repeats its mistakes; the log need not."""
        if about not in self._warned and len(self._warned) < 100:
            self._warned.add(about)
            logger.warning("iii client %s: %s", self.name[:80], message)
