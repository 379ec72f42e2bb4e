"""The server as a process: starting, being used, being stopped and being killed."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import httpx
import pytest
from filelock import FileLock, Timeout
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from backstory.faces.cli.app import run as run_program
from tests.e2e.served import PATIENCE, Served, eventually, run
from tests.transcripts import Transcript

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "where do wombats dig"}], "timestamp": 1}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A server for a test that ends it."""
    with Served(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def shared(shared_home: Path) -> Iterator[Served]:
    """A server for tests that leave it running."""
    with Served(shared_home) as server:
        yield server


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error of a server that cannot start; it is over before it needs a process of its own."""
    assert run_program(["serve", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


class TestStart:
    """It says where it is, and why it cannot be there."""

    def test_says_where_it_is(self, shared: Served) -> None:
        assert shared.address == {"url": f"http://127.0.0.1:{shared.port}", "host": "127.0.0.1", "port": shared.port}
        assert httpx.get(shared.url + "/healthz").json() == {"status": "ok"}

    def test_a_taken_port(self, capsys: pytest.CaptureFixture[str]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            errors = refusal(capsys, "--port", str(taken.getsockname()[1]))
        assert "is taken" in errors
        assert "--port" in errors

    def test_a_second_server_on_the_same_folder(self, shared: Served, shared_home: Path) -> None:
        answer = run(shared_home, "serve", "--port", "0")
        assert answer.returncode == 1
        assert "in use by process" in answer.stderr
        assert "Traceback" not in answer.stderr

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.test"])
    def test_beyond_loopback_needs_a_token(self, capsys: pytest.CaptureFixture[str], host: str) -> None:
        assert "without a token" in refusal(capsys, "--port", "0", "--host", host)

    @pytest.mark.parametrize("token", ["", "two words", "tökens"])
    def test_a_token_that_cannot_be_sent(self, capsys: pytest.CaptureFixture[str], token: str) -> None:
        assert "printable ASCII" in refusal(capsys, "--port", "0", "--token", token)

    def test_a_bad_configuration(self, capsys: pytest.CaptureFixture[str]) -> None:
        home = Path.home() / ".backstory"
        home.mkdir()
        (home / "config.toml").write_text('[live]\nadapter = {name = "tape"}\n')
        assert "[live]" in refusal(capsys, "--port", "0")

    def test_a_token_from_the_environment(self, tmp_path: Path) -> None:
        with Served(tmp_path, BACKSTORY_TOKEN="a-token") as server:
            assert httpx.get(server.url + "/api/tools").status_code == 401
            headers = {"Authorization": "Bearer a-token"}
            assert httpx.get(server.url + "/api/tools", headers=headers).status_code == 200


class TestStop:
    """A signal ends it at once and in good order, with clients connected; killed, it loses nothing."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_with_clients_connected(self, server: Served, number: int) -> None:
        with (
            connect(server.ws_url) as client,
            httpx.stream("GET", server.url + "/session/events", timeout=PATIENCE) as events,
        ):
            client.recv(PATIENCE)
            lines = events.iter_lines()
            next(lines)
            server.process.send_signal(number)
            list(lines)
            with pytest.raises(ConnectionClosed):
                client.recv(PATIENCE)
        assert server.process.wait(PATIENCE) == 0
        assert server.stderr == ""

    def test_killed(self, tmp_path: Path) -> None:
        with Served(tmp_path) as server:
            session_id = server.call("create", {"title": "kept"})["session_id"]
            for _ in range(5):
                server.call("append", {"session_id": session_id, "message": MESSAGE})
            server.stop(signal.SIGKILL)
        with Served(tmp_path, port=server.port) as again:
            assert len(again.call("messages", {"session_id": session_id})["messages"]) == 5
            assert again.call("get", {"session_id": session_id})["meta"]["title"] == "kept"


def free(home: Path) -> bool:
    """Nobody writes the archive."""
    lock = FileLock(home / ".backstory" / "writer.lock", timeout=0)
    try:
        with lock:
            return True
    except Timeout:
        return False


def children(server: Served) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = stat.read_text().rpartition(") ")[2].split()[:2]
            if int(parent) == server.process.pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


class TestEvents:
    """A stream of events goes on after the last one its reader saw, also at a server that was killed meanwhile."""

    def test_across_a_restart(self, tmp_path: Path) -> None:
        with Served(tmp_path) as server:
            for title in ("one", "two", "three"):
                server.call("create", {"title": title})
            seen = titles(server, 1, after="0")
            server.stop(signal.SIGKILL)
        with Served(tmp_path, port=server.port) as again:
            again.call("create", {"title": "four"})
            assert seen + titles(again, 3, after="1") == ["one", "two", "three", "four"]


def titles(server: Served, count: int, after: str) -> list[str]:
    headers = {"Last-Event-ID": after}
    with httpx.stream("GET", server.url + "/session/events", headers=headers, timeout=60) as answer:
        lines = (line.removeprefix("data: ") for line in answer.iter_lines() if line.startswith("data: "))
        return [json.loads(line)["title"] for line in islice(lines, count)]


class TestMeanwhile:
    """While it serves, the archive is kept up to date, by a process beside it."""

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
    def test_nobody_is_left_behind(self, server: Served, tmp_path: Path, number: int) -> None:
        eventually(lambda: not free(tmp_path))
        server.process.send_signal(number)
        server.process.wait(PATIENCE)
        eventually(lambda: free(tmp_path))

    @pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find the process")
    def test_is_begun_again(self, server: Served, tmp_path: Path) -> None:
        first = eventually(lambda: children(server))
        eventually(lambda: not free(tmp_path))
        os.kill(first[0], signal.SIGKILL)
        second = eventually(lambda: [child for child in children(server) if child not in first])
        assert len(second) == 1
        assert "ended with code -9" in server.stderr

    def test_new_transcripts_are_found(self, shared: Served, shared_home: Path) -> None:
        Transcript("a session").prompt("How deep does the pangolin dig").answer("Not at all.").write(shared_home)

        def found() -> object:
            return shared.tool("search_sessions", {"query": "pangolin"})["data"]["results"]

        assert "pangolin" in json.dumps(eventually(found))

    def test_live_messages_are_found(self, shared: Served) -> None:
        session_id = shared.call("create", {"title": "Digging"})["session_id"]
        shared.call("append", {"session_id": session_id, "message": MESSAGE})

        def found() -> object:
            return shared.tool("search_sessions", {"query": "wombats"})["data"]["results"]

        assert "wombats" in json.dumps(eventually(found))
