from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import uvicorn

from backstory.config import Settings
from backstory.egress import egress
from backstory.faces.http.server import create_app
from backstory.toolsets.base import Reply, Tool, Toolset
from backstory.toolsets.live import Deliver, Event, Function, LiveError, TriggerType
from backstory.toolsets.live.types import MAX_FRAME_BYTES

SCHEMA: dict[str, Any] = {"type": "object"}


class FakeLive:
    """Sessions in memory with the interface of `Live`: what the faces need to be tested, and no more."""

    def __init__(self) -> None:
        self.own_urls: Iterable[str] = ()
        self.sessions: dict[str, list[Any]] = {}
        self.log: list[Event] = []
        self.bindings: dict[str, tuple[str, dict[str, Any], asyncio.Queue[Event], asyncio.Task[None]]] = {}
        self._news = asyncio.Event()

    async def start(self, wait_seconds: float = 0.0) -> None:
        """Nothing has to be opened."""

    async def close(self) -> None:
        """Nothing is open."""

    def functions(self) -> tuple[Function, ...]:
        names = ("create", "append", "get", "store::put-meta")
        return tuple(Function(f"session::{name}", name, SCHEMA, SCHEMA) for name in names)

    def trigger_types(self) -> tuple[TriggerType, ...]:
        return tuple(TriggerType(f"session::{name}", name, SCHEMA) for name in ("created", "message-added"))

    async def call(self, function_id: str, data: Any) -> Any:
        if not isinstance(data, dict):
            raise LiveError("invalid_request", "the request must be an object")
        match function_id:
            case "session::create":
                session_id = data.get("session_id") or f"s_{len(self.sessions):032x}"
                self.sessions[session_id] = []
                self._emit("session::created", {"session_id": session_id})
                return {"session_id": session_id}
            case "session::append":
                session_id = data.get("session_id")
                if session_id not in self.sessions:
                    raise LiveError("not_found", f"no session {session_id}")
                entries = self.sessions[session_id]
                entries.append(data["message"])
                self._emit("session::message-added", {"session_id": session_id, "message": data["message"]})
                return {"entry_id": f"e_{len(entries)}"}
            case "session::get":
                return None
            case "session::store::put-meta":
                raise RuntimeError("a secret detail of this machine")
        raise KeyError(function_id)

    def bind(self, binding_id: str, trigger_type: str, config: Any, deliver: Deliver) -> Callable[[], None]:
        filters = self._check(config)
        self.unbind(binding_id)
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in self.log[filters.pop("after", len(self.log)) :]:
            if event.trigger_type == trigger_type:
                queue.put_nowait(event)

        async def run() -> None:
            while True:
                event = await queue.get()
                await deliver(event.payload, event.seq)

        self.bindings[binding_id] = (trigger_type, filters, queue, asyncio.create_task(run()))
        return lambda: self.unbind(binding_id)

    def unbind(self, binding_id: str) -> None:
        if bound := self.bindings.pop(binding_id, None):
            bound[3].cancel()

    async def ensure_kept(self, after: int) -> None:
        """Everything is kept."""

    def follow(
        self, config: Any = None, *, types: Iterable[str] | None = None, after: int | None = None
    ) -> AsyncIterator[Event]:
        filters = self._check(config)
        if after is not None and after > self.last_seq:
            raise LiveError("invalid_cursor", "after is in the future")
        return self._follow(filters, None if types is None else set(types), self.last_seq if after is None else after)

    async def _follow(self, filters: dict[str, Any], types: set[str] | None, after: int) -> AsyncIterator[Event]:
        while True:
            for event in self.log[after:]:
                after = event.seq
                if (types is None or event.trigger_type in types) and _matches(event, filters):
                    yield event
            if after == self.last_seq:
                await self._news.wait()

    @property
    def last_seq(self) -> int:
        return len(self.log)

    def _check(self, config: Any) -> dict[str, Any]:
        filters = dict(config or {})
        if unknown := set(filters) - {"session_id", "roles", "metadata", "after"}:
            raise LiveError("invalid_request", f"unknown filter {unknown.pop()}")
        return filters

    def _emit(self, trigger_type: str, payload: dict[str, Any]) -> None:
        seq = len(self.log) + 1
        event = Event(seq, trigger_type, {**payload, "seq": seq})
        self.log.append(event)
        for kind, filters, queue, _ in self.bindings.values():
            if kind == trigger_type and _matches(event, filters):
                queue.put_nowait(event)
        self._news.set()
        self._news = asyncio.Event()


def _matches(event: Event, filters: dict[str, Any]) -> bool:
    return "session_id" not in filters or event.payload["session_id"] == filters["session_id"]


class FakeLibrary:
    """A library with one toolset of two tools."""

    settings = Settings()

    def __init__(self) -> None:
        def echo(arguments: Any) -> Reply:
            return Reply.of({"echo": dict(arguments)})

        def refuse(arguments: Any) -> Reply:
            return Reply.of({"error": {"code": "not_found", "message": "no such thing"}}, is_error=True)

        tools = [
            Tool(name=name, description=name, input=lambda: SCHEMA, handler=handler)
            for name, handler in (("echo", echo), ("refuse", refuse))
        ]
        self._toolset = Toolset(name="history", tools=tuple(tools))
        self._empty = Toolset(name="capsules", tools=())

    def egress(self, value: Any) -> Any:
        return egress(value)

    def in_scope(self, scope: str) -> FakeLibrary:
        return self

    def toolset(self, name: str) -> Toolset:
        return self._toolset if name == "history" else self._empty

    def tool(self, name: str) -> Tool:
        for tool in self._toolset.tools:
            if tool.name == name:
                return tool
        raise KeyError(name)


class Running:
    """The app on a real port, in a thread of its own, so that any client can be used against it."""

    def __init__(self, **options: Any) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(options)), daemon=True)
        self._thread.start()
        assert self._started.wait(60)

    async def _serve(self, options: dict[str, Any]) -> None:
        self.loop = asyncio.get_running_loop()
        self.live = FakeLive()
        app = create_app(FakeLibrary(), self.live, **options)  # type: ignore[arg-type]
        config = uvicorn.Config(
            app,
            port=0,
            log_config=None,
            access_log=False,
            ws="websockets-sansio",
            ws_max_size=MAX_FRAME_BYTES,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self._started.set()
        await serving

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def call(self, function_id: str, data: Any) -> Any:
        """Call a session function from inside the server."""
        return asyncio.run_coroutine_threadsafe(self.live.call(function_id, data), self.loop).result(60)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)


@pytest.fixture
def run_server() -> Iterator[Callable[..., Running]]:
    with ExitStack() as stack:

        def run(**options: Any) -> Running:
            server = Running(**options)
            stack.callback(server.stop)
            return server

        yield run


@pytest.fixture
def server(run_server: Callable[..., Running]) -> Running:
    return run_server()
