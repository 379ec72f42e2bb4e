"""Live sessions for code that is not async: an event loop in a thread, and the sessions open only while they are used.

Several processes of agents share one folder this way, each having it for the moment, in turns. The thread ends with the
process: whatever was answered is on disk.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .access import open_live
from .runtime import Live

__all__ = ["Portal"]

_IDLE_SECONDS = 1.0
_TURN_SECONDS = 0.1
"""So long the sessions are kept, though another process waits for them: opening them is not free."""
_WAIT_SECONDS = 10.0
_CALL_SECONDS = 60.0


class Portal:
    def __init__(self, home: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._home = home
        self._environ = environ
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._live: Live | None = None
        self._users = 0
        self._unused = asyncio.Event()
        self._opened = 0.0
        self._closing: asyncio.TimerHandle | None = None

    def call(self, function_id: str, data: Any) -> Any:
        """Call a function and wait for its answer. Raises LiveError, or ConfigError when nothing can be opened."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._opening = asyncio.Lock()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="live-sessions", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._call(function_id, data), self._loop).result(_CALL_SECONDS)

    def close(self) -> None:
        """Let go of the sessions and end the thread; a later call begins again."""
        with self._starting:
            loop, self._loop = self._loop, None
            if loop is not None:
                asyncio.run_coroutine_threadsafe(self._release(), loop).result(_CALL_SECONDS)
                loop.call_soon_threadsafe(loop.stop)
                self._thread.join()

    async def _call(self, function_id: str, data: Any) -> Any:
        async with self._opening:
            if self._closing is not None:
                self._closing.cancel()
            if self._live is not None and self._is_wanted(self._live):
                await self._let_go(self._live)
            if self._live is None:
                self._live = await open_live(self._home, wait_seconds=_WAIT_SECONDS, environ=self._environ)
                self._opened = time.monotonic()
            live = self._live
            self._users += 1
        try:
            return await live.call(function_id, data)
        finally:
            self._users -= 1
            self._unused.set()
            idle = _TURN_SECONDS if self._is_wanted(live) else _IDLE_SECONDS
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(idle, lambda: asyncio.ensure_future(self._release()))

    def _is_wanted(self, live: Live) -> bool:
        """Whether it is another process's turn."""
        return time.monotonic() - self._opened > _TURN_SECONDS and live.wanted()

    async def _release(self) -> None:
        async with self._opening:
            if self._closing is not None:
                self._closing.cancel()
            if self._live is not None and not self._users:
                await self._let_go(self._live)

    async def _let_go(self, live: Live) -> None:
        """Close the sessions once the calls under way are answered."""
        while self._users:
            self._unused.clear()
            await self._unused.wait()
        self._live = None
        await live.close()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
