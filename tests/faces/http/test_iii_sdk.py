"""The protocol with its real client, `iii-sdk`."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from backstory.faces.http.iii import Engine, iii_socket

from .conftest import FakeLive, Running

iii = pytest.importorskip("iii", reason="an extra: pip install backstory[iii]")
from iii.iii import III  # noqa: E402
from iii.trigger import TriggerConfig, TriggerHandler  # noqa: E402
from iii_helpers.observability import ReconnectionConfig  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:DeprecationWarning")
MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hello"}], "timestamp": 1}
VOID = {"type": "void"}


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., III]]:
    monkeypatch.setenv("HOME", str(tmp_path))
    with ExitStack() as stack:

        def connect(url: str, **options: Any) -> III:
            retry = ReconnectionConfig(initial_delay_ms=20, max_delay_ms=50)
            init = iii.InitOptions(otel={"enabled": False}, reconnection_config=retry, **options)
            client = iii.register_worker(url, init)
            stack.callback(client._loop.close)  # which the SDK leaves open
            stack.callback(client.shutdown)
            return client

        yield connect


@pytest.fixture
def client(server: Running, connect: Callable[..., III]) -> III:
    return connect(server.ws_url)


@pytest.fixture
def other(server: Running, connect: Callable[..., III]) -> III:
    return connect(server.ws_url)


def call(client: III, function_id: str, payload: Any = None, **fields: Any) -> Any:
    return client.trigger({"function_id": function_id, "payload": payload, "timeout_ms": 5000, **fields})


def settle(client: III) -> None:
    """Everything the client sent before is handled when this returns."""
    call(client, "engine::workers::list", {})


class TestClient:
    """A program written with the SDK works against this server unchanged."""

    def test_calls(self, client: III) -> None:
        created = call(client, "session::create", {"title": "Weather"})
        entry = call(client, "session::append", {"session_id": created["session_id"], "message": MESSAGE})
        assert entry["entry_id"]
        assert call(client, "session::get", {}) is None

    def test_errors(self, client: III) -> None:
        with pytest.raises(iii.InvocationError, match="session/not_found: no session s_0") as failure:
            call(client, "session::append", {"session_id": "s_0", "message": MESSAGE})
        assert failure.value.code == "invocation_failed"
        assert failure.value.stacktrace is None

    def test_void_calls(self, client: III, server: Running) -> None:
        assert call(client, "session::create", {"session_id": "s_void"}, action=VOID) is None
        settle(client)
        assert "s_void" in server.live.sessions

    def test_functions_of_other_clients(self, client: III, other: III) -> None:
        client.register_function("math::add", lambda data: {"sum": data["a"] + data["b"]})
        settle(client)
        assert call(other, "math::add", {"a": 1, "b": 2}) == {"sum": 3}

    def test_events_reach_a_bound_function(self, client: III, other: III) -> None:
        seen: queue.Queue[Any] = queue.Queue()
        client.register_function("ui::on", seen.put)
        binding = client.register_trigger(
            {"type": "session::message-added", "function_id": "ui::on", "config": {"session_id": "s_1"}}
        )
        settle(client)
        for session_id in ("s_0", "s_1"):
            call(other, "session::create", {"session_id": session_id})
            call(other, "session::append", {"session_id": session_id, "message": MESSAGE})
        assert seen.get(timeout=60)["session_id"] == "s_1"
        binding.unregister()
        settle(client)
        call(other, "session::append", {"session_id": "s_1", "message": MESSAGE})
        settle(client)
        assert seen.empty()

    def test_a_rejected_binding_is_reported(self, client: III, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.ERROR, "iii"):
            client.register_trigger({"type": "session::created", "function_id": "f", "config": {"colour": "red"}})
            settle(client)
        assert "session/invalid_request: unknown filter colour" in caplog.text

    def test_trigger_types_of_other_clients(self, client: III, other: III) -> None:
        provider = Provider()
        other.register_trigger({"type": "cron", "function_id": "on-time", "config": {"at": "noon"}})
        settle(other)
        client.register_trigger_type({"id": "cron", "description": "time"}, provider)
        bound = provider.bound.get(timeout=60)
        assert (bound.function_id, bound.config) == ("on-time", {"at": "noon"})

    def test_a_namespace_of_its_own_changes_nothing(self, server: Running, connect: Callable[..., III]) -> None:
        client = connect(server.ws_url, namespace="project")
        assert call(client, "session::create", {})["session_id"]

    def test_the_token_comes_from_the_environment(
        self, run_server: Callable[..., Running], connect: Callable[..., III], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("III_TOKEN", "a-token")
        client = connect(run_server(token="a-token").ws_url)
        assert call(client, "session::create", {})["session_id"]

    def test_everything_is_there_again_after_a_lost_connection(self, client: III, other: III) -> None:
        seen: queue.Queue[Any] = queue.Queue()
        client.register_function("ui::on", seen.put)
        client.register_trigger({"type": "session::created", "function_id": "ui::on", "config": {}})
        settle(client)
        first_id, lost = client.worker_id, threading.Event()
        client.add_connection_state_listener(lambda state: lost.set() if state == "disconnected" else None)
        asyncio.run_coroutine_threadsafe(client._ws.close(), client._loop).result(60)
        assert lost.wait(60)
        settle(client)
        assert client.worker_id != first_id
        call(other, "session::create", {"session_id": "s_1"})
        assert seen.get(timeout=60)["session_id"] == "s_1"
        settle(client)
        assert seen.empty()


class Provider(TriggerHandler):  # type: ignore[misc]
    def __init__(self) -> None:
        self.bound: queue.Queue[Any] = queue.Queue()

    async def register_trigger(self, config: TriggerConfig) -> None:
        self.bound.put(config)

    async def unregister_trigger(self, config: TriggerConfig) -> None:
        pass


class ForeignEngine:
    """An engine without sessions of its own, and a worker that brings them, each in a thread."""

    def __init__(self, port: int = 0) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(port)), daemon=True)
        self._thread.start()
        assert self._started.wait(60)

    async def _serve(self, port: int) -> None:
        live = FakeLive()
        live.functions = live.trigger_types = lambda: ()  # type: ignore[method-assign,assignment]
        app = Starlette(routes=[WebSocketRoute("/", iii_socket(Engine(live)))])  # type: ignore[arg-type]
        config = uvicorn.Config(app, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        serving = asyncio.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.005)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}"
        self._started.set()
        await serving

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(60)


class WorkerThread:
    def __init__(self, url: str) -> None:
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work(url)), daemon=True)
        self._thread.start()
        assert self._started.wait(60)

    async def _work(self, url: str) -> None:
        from backstory.faces.http.iii.worker import Worker

        self.live = FakeLive()
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        worker = Worker(self.live, url)  # type: ignore[arg-type]
        await worker.connected()
        await worker.start({})
        self._started.set()
        await self._stop.wait()
        await worker.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()


class TestWorker:
    """The session functions and trigger types are served at another engine in the same way."""

    @pytest.fixture
    def engine(self) -> Iterator[ForeignEngine]:
        engine = ForeignEngine()
        yield engine
        engine.stop()

    @pytest.fixture
    def worker(self, engine: ForeignEngine, connect: Callable[..., III]) -> Iterator[WorkerThread]:
        worker = WorkerThread(engine.url)
        yield worker
        worker.stop()

    def test_calls_and_errors(self, worker: WorkerThread, engine: ForeignEngine, connect: Callable[..., III]) -> None:
        client = connect(engine.url)
        assert call(client, "session::create", {"session_id": "s_1"}) == {"session_id": "s_1"}
        with pytest.raises(iii.InvocationError, match="session/not_found") as failure:
            call(client, "session::append", {"session_id": "s_0", "message": MESSAGE})
        assert failure.value.code == "invocation_failed"
        assert failure.value.message == "session/not_found: no session s_0"
        assert failure.value.stacktrace is None

    def test_events(self, worker: WorkerThread, engine: ForeignEngine, connect: Callable[..., III]) -> None:
        client, seen = connect(engine.url), queue.Queue[Any]()
        client.register_function("on", seen.put)
        client.register_trigger({"type": "session::created", "function_id": "on", "config": {}})
        settle(client)
        wait_for_binding(worker)
        call(client, "session::create", {"session_id": "s_1"})
        assert seen.get(timeout=60)["session_id"] == "s_1"

    def test_rejections(
        self,
        worker: WorkerThread,
        engine: ForeignEngine,
        connect: Callable[..., III],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        client = connect(engine.url)
        client.register_trigger({"type": "session::created", "function_id": "f", "config": {"colour": 1}})
        settle(client)
        call(client, "session::create", {})
        settle(client)
        assert "unknown filter colour" in caplog.text
        assert worker.live.bindings == {}

    def test_a_restarted_engine_finds_the_worker_and_its_bindings_again(
        self, worker: WorkerThread, engine: ForeignEngine, connect: Callable[..., III]
    ) -> None:
        client, seen = connect(engine.url), queue.Queue[Any]()
        client.register_function("on", seen.put)
        client.register_trigger({"type": "session::created", "function_id": "on", "config": {}})
        settle(client)
        wait_for_binding(worker)
        engine.stop()
        again = ForeignEngine(engine.port)
        try:
            while (answer := try_call(client, "session::create", {"session_id": "s_1"})) is None:
                pass
            assert answer == {"session_id": "s_1"}
            while seen.empty():
                try_call(client, "session::create", {"session_id": "s_1"})
            assert seen.get(timeout=60)["session_id"] == "s_1"
        finally:
            again.stop()


def wait_for_binding(worker: WorkerThread) -> None:
    bound = threading.Event()

    def look() -> None:
        if worker.live.bindings:
            bound.set()
        else:
            worker._loop.call_later(0.005, look)

    worker._loop.call_soon_threadsafe(look)
    assert bound.wait(60)


def try_call(client: III, function_id: str, payload: Any) -> Any:
    """None while the engine or the worker is away."""
    try:
        return client.trigger({"function_id": function_id, "payload": payload, "timeout_ms": 500})
    except iii.InvocationError:
        return None
