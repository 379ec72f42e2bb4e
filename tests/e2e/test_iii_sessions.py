"""Live sessions served by a real process to the real SDK: the quickstart, streaming, filters, replay, restarts."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.iii_client import MESSAGE, Client, connected, iii
from tests.e2e.served import Served, eventually

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated and will be removed:DeprecationWarning")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture
def client(server: Served) -> Iterator[Client]:
    with connected(server.ws_url) as client:
        yield client


class TestQuickstart:
    """The examples of the documentation work as they are written."""

    def test_create_append_read(self, client: Client) -> None:
        created = client.call("session::create", {"title": "Weather question", "metadata": {"owner": "u_1"}})
        session_id = created["session_id"]
        client.call("session::append", {"session_id": session_id, "message": MESSAGE})
        transcript = client.call("session::messages", {"session_id": session_id})
        assert [entry["message"] for entry in transcript["messages"]] == [MESSAGE]

    def test_streaming_an_assistant_reply(self, client: Client) -> None:
        session_id = client.call("session::create")["session_id"]
        seen = client.on("session::message-updated", {"session_id": session_id, "roles": ["assistant"]})
        reply = {
            "role": "assistant",
            "content": [],
            "model": "m",
            "provider": "p",
            "stop_reason": "end",
            "timestamp": 2,
        }
        entry_id = client.call("session::append", {"session_id": session_id, "message": reply})["entry_id"]
        for revision, text in enumerate(("It", "It rains", "It rains."), start=1):
            content = [{"type": "text", "text": text}]
            request = {"session_id": session_id, "entry_id": entry_id, "content": content}
            assert client.call("session::update-message", request) == {"updated": True, "revision": revision}
        updates = [seen.get(timeout=60) for _ in range(3)]
        assert [update["revision"] for update in updates] == [1, 2, 3]
        assert updates[-1]["message"]["content"] == [{"type": "text", "text": "It rains."}]

    def test_errors(self, client: Client) -> None:
        with pytest.raises(iii.InvocationError) as failure:
            client.call("session::append", {"session_id": "s_nothing", "message": MESSAGE})
        assert failure.value.code == "invocation_failed"
        assert failure.value.message.startswith("session/not_found: ")
        assert failure.value.stacktrace is None

    def test_a_malformed_binding_is_rejected(self, client: Client, caplog: pytest.LogCaptureFixture) -> None:
        client.on("session::status-changed", {"roles": ["user"]})
        assert "session/invalid_request: " in caplog.text

    def test_tenants_hear_only_their_own(self, client: Client) -> None:
        seen = client.on("session::created", {"metadata": {"owner": "u_1"}})
        for owner in ("u_2", "u_1"):
            client.call("session::create", {"title": owner, "metadata": {"owner": owner}})
        assert seen.get(timeout=60)["title"] == "u_1"
        assert seen.empty()


class TestAway:
    """A client that was away resumes where it was; one that stayed reconnects by itself."""

    def test_replay_from_a_position(self, client: Client) -> None:
        first = client.on("session::created", function_id="first")
        for title in ("one", "two", "three"):
            client.call("session::create", {"title": title})
        position = first.get(timeout=60)["seq"]
        later = client.on("session::created", {"after": position}, function_id="later")
        assert [later.get(timeout=60)["title"] for _ in range(2)] == ["two", "three"]

    def test_a_killed_server_comes_back(self, tmp_path: Path) -> None:
        with Served(tmp_path) as server, connected(server.ws_url) as client:
            seen = client.on("session::created")
            client.call("session::create", {"title": "before"})
            assert seen.get(timeout=60)["title"] == "before"
            server.stop(signal.SIGKILL)
            with Served(tmp_path, port=server.port):
                eventually(lambda: client.is_bound("session::created"))
                assert len(client.call("session::list")["sessions"]) == 1
                client.call("session::create", {"title": "after"})
                assert seen.get(timeout=60)["title"] == "after"
                assert seen.empty()
