"""One main and two bridged instances, each a process: what happens anywhere reaches everyone once."""

from __future__ import annotations

import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.iii_client import MESSAGE, connected
from tests.e2e.served import Served, eventually, run

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:DeprecationWarning")


def bridge(home: Path, url: str, timeout_ms: int = 60_000) -> Path:
    """A home whose live sessions are kept by the instance at `url`."""
    (home / ".backstory").mkdir(parents=True)
    config = f'[live]\nadapter = {{name = "bridge", config = {{url = "{url}", timeout_ms = {timeout_ms}}}}}\n'
    (home / ".backstory" / "config.toml").write_text(config)
    return home


class Topology:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._stack = stack
        self._main_home = folder / "main"
        self._main_home.mkdir()
        self.main = stack.enter_context(Served(self._main_home))
        homes = [bridge(folder / name, self.main.ws_url) for name in ("left", "right")]
        self.left, self.right = (stack.enter_context(Served(home)) for home in homes)
        for server in (self.left, self.right):
            eventually(lambda server=server: reaches_main(server))
        self.clients = [stack.enter_context(connected(server.ws_url)) for server in self.servers]
        self.seen = [client.on("session::message-added") for client in self.clients]

    @property
    def servers(self) -> list[Served]:
        return [self.main, self.left, self.right]

    def restart_main(self) -> None:
        self.main = self._stack.enter_context(Served(self._main_home, port=self.main.port))

    def say(self, server: Served, session_id: str, text: str) -> None:
        server.call("append", {"session_id": session_id, "message": said(text)})

    def heard(self, *texts: str) -> None:
        """Every subscriber heard every one of these once, and nothing else."""
        for seen in self.seen:
            heard = [words(seen.get(timeout=60)) for _ in texts]
            assert Counter(heard) == Counter(texts)
            assert seen.empty()


def said(text: str) -> dict[str, Any]:
    return MESSAGE | {"content": [{"type": "text", "text": text}]}


def words(event: Any) -> str:
    text: str = event["message"]["content"][0]["text"]
    return text


def reaches_main(server: Served) -> bool:
    answer = httpx.post(server.url + "/session/list", json={}, timeout=60)
    return answer.status_code == 200


@pytest.fixture(scope="class")
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    with ExitStack() as stack:
        yield Topology(tmp_path_factory.mktemp("topology"), stack)


class TestBridge:
    """Subscribers of bridged instances get every event of the main once, of any origin."""

    def test_a_change_anywhere_reaches_everyone_once(self, topology: Topology) -> None:
        session_id = topology.left.call("create")["session_id"]
        for number, server in enumerate(topology.servers * 3):
            topology.say(server, session_id, str(number))
        topology.heard(*map(str, range(9)))
        for server in topology.servers:
            assert len(server.call("messages", {"session_id": session_id})["messages"]) == 9

    def test_writers_at_both_ends_lose_nothing(self, topology: Topology) -> None:
        session_id = topology.main.call("create")["session_id"]

        def write(server: Served, name: str) -> None:
            for number in range(20):
                topology.say(server, session_id, f"{name} {number}")

        ends = zip((topology.left, topology.right), ("left", "right"), strict=True)
        threads = [threading.Thread(target=write, args=end) for end in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        topology.heard(*(f"{name} {number}" for name in ("left", "right") for number in range(20)))
        assert len(topology.main.call("messages", {"session_id": session_id})["messages"]) == 40

    def test_without_a_main_calls_fail_in_time(self, tmp_path: Path) -> None:
        with Served(bridge(tmp_path, "ws://127.0.0.1:9", timeout_ms=200)) as alone:
            answer = httpx.post(alone.url + "/session/create", json={}, timeout=60)
            assert answer.status_code == 503
            assert answer.json()["error"]["message"].startswith("session/storage: ")

    def test_a_bridge_to_itself_is_refused(self, tmp_path: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        answer = run(bridge(tmp_path / "self", f"ws://localhost:{port}/"), "serve", "--port", str(port))
        assert answer.returncode == 1
        assert "this very server" in answer.stderr


class TestKilledMain:
    """A main that is killed comes back, and no subscriber misses an event."""

    def test_everything_arrives(self, topology: Topology) -> None:
        session_id = topology.main.call("create")["session_id"]
        topology.say(topology.right, session_id, "before")
        topology.heard("before")
        topology.main.stop(signal.SIGKILL)
        topology.restart_main()
        topology.say(topology.main, session_id, "while the bridges are away")
        eventually(lambda: reaches_main(topology.left) and reaches_main(topology.right))
        bridged = topology.seen[1:]
        assert [words(seen.get(timeout=60)) for seen in bridged] == ["while the bridges are away"] * 2
        eventually(lambda: topology.clients[0].is_bound("session::message-added"))
        topology.say(topology.left, session_id, "after")
        assert [words(seen.get(timeout=60)) for seen in bridged] == ["after"] * 2
        # The client of the main itself may have missed what was said before it was back.
        heard = [words(topology.seen[0].get(timeout=60))]
        if heard != ["after"]:
            heard.append(words(topology.seen[0].get(timeout=60)))
        assert heard in (["after"], ["while the bridges are away", "after"])
        assert all(seen.empty() for seen in topology.seen)
