"""`backstory live worker` as a process, at an engine that has no sessions of its own."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from backstory.faces.http.iii import Engine, iii_socket
from tests.e2e.iii_client import MESSAGE, connected, iii
from tests.e2e.served import Process, run

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:DeprecationWarning")


class Nothing:
    """Live sessions without functions and trigger types: what is left is an engine."""

    def functions(self) -> tuple[()]:
        return ()

    trigger_types = functions


@pytest.fixture
def engine() -> Iterator[str]:
    """The address of an engine."""
    started: Any = threading.Event()
    nothing: Any = Nothing()

    async def serve() -> None:
        app = Starlette(routes=[WebSocketRoute("/", iii_socket(Engine(nothing)))])
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        started.server = server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.005)
        started.port = server.servers[0].sockets[0].getsockname()[1]
        started.set()
        await serving

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(10)
    yield f"ws://127.0.0.1:{started.port}"
    started.server.should_exit = True
    thread.join(10)


class TestWorker:
    """The session functions are there for everyone at the engine, as long as the worker runs."""

    def test_serves_sessions(self, engine: str, tmp_path: Path) -> None:
        with Process(tmp_path, "live", "worker", "--url", engine, "--json") as worker:
            assert json.loads(worker.first_line) == {"url": engine}
            with connected(engine) as client:
                seen = client.on("session::message-added")
                session_id = client.call("session::create", {"title": "there"})["session_id"]
                client.call("session::append", {"session_id": session_id, "message": MESSAGE})
                assert seen.get(timeout=10)["message"] == MESSAGE
                with pytest.raises(iii.InvocationError, match="session/not_found: ") as failure:
                    client.call("session::append", {"session_id": "s_0", "message": MESSAGE})
                assert failure.value.stacktrace is None
                assert worker.process.poll() is None
                worker.process.send_signal(signal.SIGTERM)
                assert worker.process.wait(10) == 0
                assert worker.stderr == ""
                with pytest.raises(iii.InvocationError, match="function_not_found"):
                    client.call("session::list")

    def test_a_wrong_address(self, tmp_path: Path) -> None:
        answer = run(tmp_path, "live", "worker", "--url", "http://127.0.0.1:1")
        assert answer.returncode == 2
        assert "ws://" in answer.stderr

    def test_a_folder_in_use(self, engine: str, tmp_path: Path) -> None:
        with Process(tmp_path, "live", "worker", "--url", engine, "--json"):
            answer = run(tmp_path, "live", "worker", "--url", engine)
        assert answer.returncode == 1
        assert "in use by process" in answer.stderr
