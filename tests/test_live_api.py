"""Live sessions from Python: every function as a method, events as an iterator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from backstory import live
from backstory.live import LiveError, Sessions, assistant, function_result, user
from tests.e2e.served import Served


def run(sessions: Sessions, scenario: Callable[[Sessions], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        async with sessions as opened:
            await scenario(opened)

    asyncio.run(work())


class TestSessions:
    """The whole contract through methods."""

    def test_a_conversation(self, tmp_path: Path) -> None:
        async def scenario(sessions: Sessions) -> None:
            made = await sessions.create(title="T", metadata={"owner": "u"})
            session_id = made["session_id"]
            first = await sessions.append(session_id, user("hi"), origin={"turn": 1})
            await sessions.append_many(session_id, [assistant("a", model="m", provider="p"), user("b")])
            await sessions.append(session_id, function_result("r", function_call_id="c", function_id="f"))
            await sessions.append(session_id, custom={"custom_type": "note"})
            assert (await sessions.update_message(session_id, first["entry_id"], "hello"))["revision"] == 1
            page = await sessions.messages(session_id, limit=2)
            assert page["messages"][0]["message"]["content"] == [{"type": "text", "text": "hello"}]
            rest = await sessions.messages(session_id, cursor=page["next_cursor"], include_custom=True)
            assert len(rest["messages"]) == 3
            assert await sessions.messages(session_id, roles=[]) == {"messages": []}
            entry = await sessions.get_message(session_id, first["entry_id"])
            assert entry is not None
            assert entry["origin"] == {"turn": 1}
            fork = await sessions.fork(session_id, first["entry_id"], title="F")
            assert fork["meta"]["forked_from"] == session_id
            await sessions.set_active_leaf(session_id, first["entry_id"])
            await sessions.set_meta(session_id, description="D")
            await sessions.set_status(session_id, "error", reason="why")
            meta = await sessions.get(session_id)
            assert meta is not None
            assert (meta["description"], meta["status_reason"]) == ("D", "why")
            listed = await sessions.list(status="error", metadata={"owner": "u"}, order="created_asc", limit=1)
            assert [found["session_id"] for found in listed["sessions"]] == [session_id]
            assert await sessions.delete(session_id) is True
            assert await sessions.delete(session_id) is False
            assert await sessions.get(session_id) is None
            assert await sessions.get_message(session_id, "x") is None
            assert (await sessions.ensure("mine"))["created"] is True
            with pytest.raises(LiveError, match="session/not_found"):
                await sessions.append("nope", user("x"))

        run(live.open(tmp_path), scenario)

    def test_follow_and_bind(self, tmp_path: Path) -> None:
        async def scenario(sessions: Sessions) -> None:
            session_id = (await sessions.create())["session_id"]
            bound: list[int] = []

            async def deliver(payload: Any, seq: int) -> None:
                bound.append(seq)

            unbind = sessions.bind("session::message-added", deliver, {"roles": ["user"]})
            await sessions.append(session_id, user("one"))
            await sessions.append(session_id, assistant("two", model="m", provider="p"))
            stream = sessions.follow(session_id=session_id, roles=["assistant"], after=0)
            seen = [(await anext(stream)).trigger_type for _ in range(2)]
            assert seen == ["session::created", "session::message-added"]
            unbind()
            assert bound == [2]

        run(live.open(tmp_path), scenario)

    def test_a_folder_of_its_own(self, tmp_path: Path) -> None:
        async def scenario(sessions: Sessions) -> None:
            await sessions.ensure("x")

        run(live.open(tmp_path / "home", data_dir=tmp_path / "elsewhere"), scenario)
        assert (tmp_path / "elsewhere" / "x.jsonl").exists()

    def test_a_server(self, tmp_path: Path) -> None:
        """Sessions of a server are used like those of this machine."""
        with Served(tmp_path) as server:

            async def scenario(sessions: Sessions) -> None:
                made = await sessions.create(title="T")
                await sessions.append(made["session_id"], user("hello"))
                (entry,) = (await sessions.messages(made["session_id"]))["messages"]
                assert entry["message"]["content"] == [{"type": "text", "text": "hello"}]

            run(live.open(tmp_path / "elsewhere", url=server.ws_url), scenario)
            (listed,) = server.call("list")["sessions"]
            assert listed["title"] == "T"

    def test_a_session_of_the_agents_sdk(self, tmp_path: Path) -> None:
        item = {"role": "user", "content": "hello"}

        async def scenario(sessions: Sessions) -> None:
            conversation = sessions.agent_session("s", metadata={"owner": "u"})
            await conversation.add_items([item])
            assert await conversation.get_items() == [item]
            meta = await sessions.get("s")
            assert meta is not None
            assert meta["metadata"] == {"owner": "u"}

        run(live.open(tmp_path), scenario)

    def test_used_outside(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeError, match="outside of `async with"):
            _ = live.open(tmp_path).live

    def test_not_both(self) -> None:
        with pytest.raises(ValueError, match="not both"):
            live.open(data_dir="x", url="ws://y")

    def test_a_folder_that_another_has(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(live, "_WAIT_SECONDS", 0.2)

        async def scenario(sessions: Sessions) -> None:
            with pytest.raises(LiveError, match="in use by process"):
                async with live.open(tmp_path):
                    pass

        run(live.open(tmp_path), scenario)
