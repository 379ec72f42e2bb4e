"""Live sessions as tools for agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from backstory.config import Settings
from backstory.toolsets.base import Toolset
from backstory.toolsets.live import tools as access
from backstory.toolsets.live.tools import Portal, toolset
from tests.live_world import World, user

NAMES = ["session_list", "session_get", "session_messages", "session_get_message", "session_append"]


@pytest.fixture
def closing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the portals that a test opens."""
    portals: list[Portal] = []
    original = Portal.__init__

    def remember(self: Portal, *args: Any, **kwargs: Any) -> None:
        portals.append(self)
        original(self, *args, **kwargs)

    monkeypatch.setattr(Portal, "__init__", remember)
    yield
    for portal in portals:
        portal.close()


@pytest.fixture
def session_id(tmp_path: Path, new_world: Callable[..., World]) -> str:
    world = new_world(tmp_path)
    session_id = world.session(title="T", metadata={"owner": "u"})
    world.append(session_id, user("the password is hunter2; ghp_" + "a" * 36))
    world.close()
    return session_id


@pytest.fixture
def tools(tmp_path: Path, session_id: str, closing: None) -> Toolset:
    return toolset(tmp_path, Settings(), {})


def ask(tools: Toolset, name: str, **arguments: Any) -> Any:
    reply = next(tool for tool in tools.tools if name in (tool.name, *tool.aliases)).handler(arguments)
    return reply.data


class TestTools:
    """Reading functions and append, answered as objects; errors are answers."""

    def test_declared(self, tools: Toolset) -> None:
        assert [tool.name for tool in tools.tools] == NAMES
        assert [tool.read_only for tool in tools.tools] == [True, True, True, True, False]
        assert all(tool.input_schema["type"] == "object" for tool in tools.tools)
        assert all(tool.output_schema is None or tool.output_schema["type"] == "object" for tool in tools.tools)

    def test_reading(self, tools: Toolset, session_id: str) -> None:
        (meta,) = ask(tools, "session_list", metadata={"owner": "u"})["sessions"]
        assert ask(tools, "session_get", session_id=session_id) == {"meta": meta}
        (item,) = ask(tools, "session::messages", session_id=session_id)["messages"]
        entry = ask(tools, "session_get_message", session_id=session_id, entry_id=item["entry_id"])["entry"]
        assert entry["message"] == item["message"]
        assert ask(tools, "session_get", session_id="nope") == {"meta": None}
        assert ask(tools, "session_get_message", session_id="nope", entry_id="x") == {"entry": None}

    def test_secrets_stay_inside(self, tools: Toolset, session_id: str) -> None:
        (item,) = ask(tools, "session_messages", session_id=session_id)["messages"]
        assert "ghp_" not in item["message"]["content"][0]["text"]

    def test_pages(self, tools: Toolset, session_id: str) -> None:
        for number in range(3):
            ask(tools, "session_append", session_id=session_id, message=user(f"{number}"))
        page = ask(tools, "session_messages", session_id=session_id, limit=2)
        rest = ask(tools, "session_messages", session_id=session_id, cursor=page["next_cursor"])
        assert len(page["messages"]) + len(rest["messages"]) == 4

    def test_errors(self, tools: Toolset, session_id: str) -> None:
        missing = {"code": "not_found", "message": "session/not_found: there is no session nope"}
        assert ask(tools, "session_messages", session_id="nope") == {"error": missing}
        assert ask(tools, "session_append", session_id=session_id)["error"]["code"] == "invalid_request"
        assert ask(tools, "session_list", limit="x")["error"]["code"] == "invalid_request"

    def test_nothing_is_opened_before_it_is_used(self, tmp_path: Path) -> None:
        toolset(tmp_path / "untouched", Settings(), {})
        assert not (tmp_path / "untouched").exists()


class TestSharing:
    """Several processes have the sessions in turns."""

    def test_used_again_after_it_was_closed(self, tmp_path: Path) -> None:
        portal = Portal(tmp_path, {})
        for _ in range(2):
            with ThreadPoolExecutor(8) as threads:
                answers = threads.map(lambda _: portal.call("session::create", {}), range(16))
                assert len({answer["session_id"] for answer in answers}) == 16
            portal.close()

    def test_let_go_when_idle(
        self, tools: Toolset, session_id: str, tmp_path: Path, closing: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(access, "_IDLE_SECONDS", 0.02)
        other = toolset(tmp_path, Settings(), {})
        for number in range(2):
            assert "entry_id" in ask(tools, "session_append", session_id=session_id, message=user(f"a{number}"))
            assert "entry_id" in ask(other, "session_append", session_id=session_id, message=user(f"b{number}"))
        words = [
            item["message"]["content"][0]["text"]
            for item in ask(tools, "session_messages", session_id=session_id)["messages"]
        ]
        assert words[1:] == ["a0", "b0", "a1", "b1"]
