"""A main and two bridged instances as real processes, killed and started again under load."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Server:
    """`backstory serve` with a home and a port of its own."""

    def __init__(self, home: Path, main: int | None = None) -> None:
        self.home = home
        self.port = free_port()
        home.mkdir()
        if main is not None:
            adapter = f"{{name = 'bridge', config = {{url = 'ws://127.0.0.1:{main}', timeout_ms = 20000}}}}"
            (home / "config.toml").write_text(f"[live]\nadapter = {adapter}\n")
        self.start()

    def start(self) -> None:
        environ = {**os.environ, "BACKSTORY_HOME": str(self.home), "HOME": str(self.home)}
        command = [sys.executable, "-m", "backstory", "serve", "--port", str(self.port), "--json"]
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert json.loads(self.process.stdout.readline())["port"] == self.port

    def call(self, function: str, **data: Any) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/session/{function}",
            json.dumps(data).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def stop(self, how: int = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Listener:
    """The added messages that a server sends over SSE."""

    def __init__(self, server: Server) -> None:
        self.words: list[str] = []
        url = f"http://127.0.0.1:{server.port}/session/events?types=session::message-added"
        self._stream = urllib.request.urlopen(url, timeout=60)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for line in self._stream:
                if line.startswith(b"data:"):
                    payload = json.loads(line[5:])
                    self.words.append(payload["message"]["content"][0]["text"])
        except (OSError, ValueError, AttributeError):
            return

    def wait(self, count: int, seconds: float = 60) -> list[str]:
        until = time.monotonic() + seconds
        while len(self.words) < count and time.monotonic() < until:
            time.sleep(0.02)
        return self.words


def message(words: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": words}], "timestamp": 1}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(name: str, main: int | None = None) -> Server:
        servers.append(Server(tmp_path / name, main))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.stop()


class TestTopology:
    """A message written at any process reaches all of them once, also when the main is killed in between."""

    def test_three_processes(self, start: Callable[..., Server]) -> None:
        main = start("main")
        a, b = start("a", main.port), start("b", main.port)
        session_id = a.call("create")["session_id"]
        listeners = [Listener(server) for server in (main, a, b)]
        writers = [
            threading.Thread(target=self.write, args=(server, name, session_id))
            for server, name in ((main, "m"), (a, "a"), (b, "b"))
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        expected = sorted(f"{name}{number}" for name in "mab" for number in range(30))
        for listener in listeners:
            assert sorted(listener.wait(90)) == expected
        assert listeners[0].words == listeners[1].words == listeners[2].words
        meta = b.call("get", session_id=session_id)["meta"]
        assert meta["message_count"] == 90

    def write(self, server: Server, name: str, session_id: str) -> None:
        for number in range(30):
            server.call("append", session_id=session_id, message=message(f"{name}{number}"))

    def test_a_killed_main(self, start: Callable[..., Server]) -> None:
        main = start("main")
        a = start("a", main.port)
        session_id = a.call("create")["session_id"]
        listener = Listener(a)
        acknowledged: list[str] = []

        def write() -> None:
            for number in range(200):
                done = a.call("append", session_id=session_id, message=message(f"{number}"))
                acknowledged.append(done["entry_id"])

        writer = threading.Thread(target=write)
        writer.start()
        for count in (40, 120):
            while len(acknowledged) < count:
                assert writer.is_alive()
                time.sleep(0.01)
            main.stop(signal.SIGKILL)
            main.start()
        writer.join(60)
        assert len(acknowledged) == 200
        items = []
        cursor = None
        while True:
            page = a.call("messages", session_id=session_id, limit=100, cursor=cursor)
            items += page["messages"]
            cursor = page.get("next_cursor")
            if cursor is None:
                break
        assert [item["entry_id"] for item in items] == acknowledged
        words = [item["message"]["content"][0]["text"] for item in items]
        assert listener.wait(200) == words == [f"{number}" for number in range(200)]

    def test_two_servers_on_one_folder(self, start: Callable[..., Server], tmp_path: Path) -> None:
        start("main")
        environ = {**os.environ, "BACKSTORY_HOME": str(tmp_path / "main"), "HOME": str(tmp_path / "main")}
        command = [sys.executable, "-m", "backstory", "serve", "--port", "0"]
        second = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 1
        assert "is in use by process" in second.stderr
        assert "Traceback" not in second.stderr

    def test_self_reference(self, tmp_path: Path) -> None:
        home, port = tmp_path / "self", free_port()
        home.mkdir()
        adapter = f"{{name = 'bridge', config = {{url = 'ws://localhost:{port}/'}}}}"
        (home / "config.toml").write_text(f"[live]\nadapter = {adapter}\n")
        environ = {**os.environ, "BACKSTORY_HOME": str(home), "HOME": str(home)}
        command = [sys.executable, "-m", "backstory", "serve", "--port", str(port)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode != 0
        assert "is this very server" in done.stderr
        assert "Traceback" not in done.stderr
