"""Live sessions for agents and other code: as tools, and opened also while another process has them.

`open_live` goes through a server that has them. `Portal` is for code that is not async: it runs an event loop in a
thread and holds the sessions only while they are used, so several processes of agents share one folder in turns. The
thread ends with the process; every acknowledged change is on disk.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...config import ConfigError, Settings, load_settings
from ..base import Arguments, Failure, Frame, Tool, Toolset
from . import Live
from .functions import Function, functions
from .types import Code, InUse, LiveError
from .upkeep import Forget

_INSTRUCTIONS = (
    "Live: conversations that programs write as they happen. Read with session_list and session_messages; "
    "session_append only when the user wants it: all who follow the session see it at once."
)
_READING = ("list", "get", "messages", "get-message")
# These functions answer `null` for unknown ids; the answer of a tool has to be an object.
_NULL_IS = {"get": "meta", "get-message": "entry"}
_IDLE_SECONDS = 1.0
_TURN_SECONDS = 0.1
"""The sessions stay open for this long even if another process waits for them: opening them takes time."""
_WAIT_SECONDS = 10.0
_CALL_SECONDS = 60.0


def toolset(home: Path, settings: Settings, environ: Mapping[str, str] = os.environ) -> Toolset:
    """The tools over the sessions of a home. Nothing is opened before it is used."""
    portal = Portal(home, environ)
    frame = Frame(
        refuse=_refuse,
        unexpected=partial(_refused, "storage"),
        mode=settings.redact,
    )
    found = {function.id.removeprefix("session::"): function for function in functions()}
    return Toolset(
        name="live",
        tools=tuple(_tool(name, found[name], portal, frame) for name in (*_READING, "append")),
        instructions=_INSTRUCTIONS,
    )


def _tool(name: str, function: Function, portal: Portal, frame: Frame) -> Tool:
    def action(arguments: Arguments) -> Any:
        answer = portal.call(function.id, dict(arguments))
        return {_NULL_IS[name]: None} if answer is None else answer

    reads = name in _READING
    tool = f"session_{name.replace('-', '_')}"
    return Tool(
        name=tool,
        description=function.description,
        input=lambda: function.request_schema,
        output=None if name in _NULL_IS else lambda: function.response_schema,
        handler=frame.raw_handler(tool, action),
        read_only=reads,
        idempotent=reads,
        aliases=(function.id,),
    )


def _refuse(error: Exception) -> Failure | None:
    if isinstance(error, LiveError):
        return _refused(error.code, error.message)
    if isinstance(error, ConfigError):
        return _refused("storage", str(error))
    if isinstance(error, TimeoutError):
        return _refused("storage", "no answer in time")
    return None


def _refused(code: Code, message: str) -> Failure:
    """The error as HTTP has it, with the text that every wire has."""
    return Failure({"error": {"code": code, "message": str(LiveError(code, message))}})


async def open_live(
    home: Path,
    *,
    table: Mapping[str, Any] | None = None,
    wait_seconds: float = 0.0,
    forget: Forget | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Live:
    """Start the sessions of a home, with a `[live]` table instead of the one in its `config.toml` if given.

    Sessions that a server has are used through it. For a process that serves nothing this waits up to `wait_seconds`,
    then raises InUse.
    """
    given = dict(table) if table is not None else None
    while True:
        fetch = _fetch(given) if given is not None else None
        live = Live(home, fetch_config=fetch, forget=forget, environ=environ)
        try:
            await live.start(wait_seconds)
            return live
        except InUse as error:
            if not error.url:
                raise
            limits = given if given is not None else load_settings(home, environ).live
            given = _through(error.url, limits, environ)


def _through(url: str, table: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """The table with the server at a URL instead of the folder."""
    token = environ.get("BACKSTORY_TOKEN")
    config = {"url": url} | ({"token": token} if token else {})
    return {**table, "adapter": {"name": "bridge", "config": config}}


def _fetch(table: Mapping[str, Any]) -> Any:
    async def fetch() -> Mapping[str, Any]:
        return table

    return fetch


class Portal:
    def __init__(self, home: Path, environ: Mapping[str, str] = os.environ) -> None:
        self._home = home
        self._environ = environ
        self._starting = threading.Lock()
        self._opening = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
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
                self._opening, self._unused = asyncio.Lock(), asyncio.Event()  # these belong to one loop
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="live-sessions", daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._call(function_id, data), self._loop).result(_CALL_SECONDS)

    def close(self) -> None:
        """Close the sessions and end the thread; a later call starts again."""
        with self._starting:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
            if loop is not None and thread is not None:
                asyncio.run_coroutine_threadsafe(self._release(), loop).result(_CALL_SECONDS)
                loop.call_soon_threadsafe(loop.stop)
                thread.join()

    async def _call(self, function_id: str, data: Any) -> Any:
        async with self._opening:
            if self._closing is not None:
                self._closing.cancel()
            if self._live is not None and self._is_over(self._live):
                await self._close_sessions(self._live)
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
            idle = _TURN_SECONDS if self._is_over(live) else _IDLE_SECONDS
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(idle, lambda: asyncio.ensure_future(self._release()))

    def _is_over(self, live: Live) -> bool:
        """True if it is another process's turn."""
        return time.monotonic() - self._opened > _TURN_SECONDS and live.contended()

    async def _release(self) -> None:
        async with self._opening:
            if self._closing is not None:
                self._closing.cancel()
            if self._live is not None and not self._users:
                await self._close_sessions(self._live)

    async def _close_sessions(self, live: Live) -> None:
        """Close the sessions once all running calls are answered."""
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
