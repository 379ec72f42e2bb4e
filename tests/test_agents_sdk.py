"""The OpenAI Agents SDK keeps its conversations in live sessions, as in its own sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from backstory.agents_sdk import AgentSession
from backstory.toolsets.live import Live


@pytest.fixture(scope="module", autouse=True)
def agents() -> Any:
    """The SDK, imported when a test needs it: that takes over a second."""
    return pytest.importorskip("agents", reason="an extra: pip install backstory[agents]")


ITEMS: list[Any] = [
    {"role": "user", "content": "what is 6 * 7?"},
    {
        "type": "reasoning",
        "id": "r1",
        "summary": [{"type": "summary_text", "text": "multiply"}],
        "encrypted_content": "x",
    },
    {"type": "function_call", "call_id": "c1", "name": "multiply", "arguments": '{"a": 6, "b": 7}', "id": "f1"},
    {"type": "function_call_output", "call_id": "c1", "output": "42"},
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "It is 42.", "annotations": [], "logprobs": []}],
    },
    {"role": "user", "content": [{"type": "input_text", "text": "thanks"}, {"type": "input_image", "image_url": "x"}]},
    {"role": "developer", "content": "be brief"},
    {"type": "web_search_call", "id": "w1", "status": "completed"},
]


def run(home: Path, scenario: Callable[[Live], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        async with Live(home, environ={}) as live:
            await scenario(live)

    asyncio.run(work())


class TestSession:
    """Items come back exactly as they were given, in their order."""

    def test_is_a_session(self, tmp_path: Path, agents: Any) -> None:
        async def scenario(live: Live) -> None:
            assert isinstance(AgentSession(live, "s"), agents.Session)

        run(tmp_path, scenario)

    def test_like_the_sdk_s_own(self, tmp_path: Path, agents: Any) -> None:
        async def use(session: Any) -> list[Any]:
            seen: list[Any] = [await session.get_items(), await session.pop_item()]
            await session.add_items([])
            await session.add_items(ITEMS[:1])
            await session.add_items(ITEMS[1:5])
            seen += [await session.get_items(), await session.get_items(2), await session.get_items(limit=0)]
            seen += [await session.pop_item(), await session.get_items()]
            await session.add_items(ITEMS[5:])
            seen.append(await session.get_items())
            for _ in range(len(ITEMS) + 1):
                seen += [await session.pop_item(), await session.get_items()]
            await session.add_items(ITEMS[:2])
            seen.append(await session.get_items(100))
            await session.clear_session()
            seen.append(await session.get_items())
            await session.add_items(ITEMS[2:3])
            seen.append(await session.get_items())
            return seen

        async def scenario(live: Live) -> None:
            reference = agents.SQLiteSession("s", tmp_path / "reference.db")
            try:
                assert await use(AgentSession(live, "s")) == await use(reference)
            finally:
                reference.close()

        run(tmp_path, scenario)

    def test_survives_a_restart(self, tmp_path: Path) -> None:
        async def write(live: Live) -> None:
            await AgentSession(live, "s", metadata={"owner": "u"}).add_items(ITEMS)

        async def read(live: Live) -> None:
            assert await AgentSession(live, "s").get_items() == ITEMS
            meta = (await live.call("session::get", {"session_id": "s"}))["meta"]
            assert meta["metadata"] == {"owner": "u"}

        run(tmp_path, write)
        run(tmp_path, read)

    def test_others_see_messages(self, tmp_path: Path) -> None:
        async def scenario(live: Live) -> None:
            await AgentSession(live, "s").add_items(ITEMS)
            items = (await live.call("session::messages", {"session_id": "s"}))["messages"]
            roles = [item["message"]["role"] for item in items]
            assert roles == [
                "user",
                "assistant",
                "assistant",
                "function_result",
                "assistant",
                "user",
                "custom",
                "custom",
            ]
            assert items[0]["message"]["content"] == [{"type": "text", "text": "what is 6 * 7?"}]
            assert items[2]["message"]["content"][0]["arguments"] == {"a": 6, "b": 7}

        run(tmp_path, scenario)

    def test_a_batch_that_was_not_completed_does_not_count(self, tmp_path: Path) -> None:
        async def scenario(live: Live) -> None:
            session = AgentSession(live, "s")
            await session.add_items(ITEMS[:1])
            message = {"role": "user", "content": [], "timestamp": 1}
            await live.call("session::append-many", {"session_id": "s", "messages": [message] * 3})
            assert await session.get_items() == ITEMS[:1]
            await session.add_items(ITEMS[3:5])
            assert await session.get_items() == [ITEMS[0], *ITEMS[3:5]]
            assert await session.pop_item() == ITEMS[4]
            assert await session.get_items() == [ITEMS[0], ITEMS[3]]

        run(tmp_path, scenario)


class TestSharedSession:
    """Runs that write at the same time, and others that use the session too, lose nothing by what one of them takes."""

    def test_pop_after_concurrent_adds(self, tmp_path: Path) -> None:
        async def scenario(live: Live) -> None:
            sessions = [AgentSession(live, "s") for _ in range(4)]
            batches = [[{"role": "user", "content": f"{run} {n}"} for n in range(3)] for run in range(4)]
            await asyncio.gather(*(session.add_items(batch) for session, batch in zip(sessions, batches, strict=True)))
            everything = await sessions[0].get_items()
            assert sorted(map(str, everything)) == sorted(str(item) for batch in batches for item in batch)
            for _ in range(5):
                assert await sessions[0].pop_item() == everything.pop()
                assert await sessions[1].get_items() == everything
            popped = await asyncio.gather(*(session.pop_item() for session in sessions))
            assert sorted(map(str, popped)) == sorted(map(str, everything[-4:]))
            assert await sessions[2].get_items() == everything[:-4]
            await sessions[3].add_items(ITEMS[:1])
            assert await sessions[0].get_items() == [*everything[:-4], ITEMS[0]]
            for _ in range(4):
                await sessions[0].pop_item()
            assert await sessions[0].pop_item() is None

        run(tmp_path, scenario)

    def test_pop_between_adds(self, tmp_path: Path) -> None:
        """Items that are added while another is popped stay."""

        async def scenario(live: Live) -> None:
            session = AgentSession(live, "s")
            await session.add_items(ITEMS[:3])
            other = AgentSession(live, "s")
            popped, _ = await asyncio.gather(session.pop_item(), other.add_items(ITEMS[3:5]))
            left = [item for item in ITEMS[:5] if item != popped]
            assert sorted(map(str, await session.get_items())) == sorted(map(str, left))

        run(tmp_path, scenario)

    def test_begun_by_somebody_else(self, tmp_path: Path) -> None:
        async def scenario(live: Live) -> None:
            await live.call("session::ensure", {"session_id": "s"})
            message = {"role": "user", "content": [{"type": "text", "text": "hello"}], "timestamp": 1}
            await live.call("session::append", {"session_id": "s", "message": message})
            session = AgentSession(live, "s")
            assert await session.pop_item() is None
            await session.add_items(ITEMS[:1])
            assert await session.pop_item() == ITEMS[0]
            assert await session.pop_item() is None
            await session.add_items(ITEMS[:3])
            assert await session.get_items() == ITEMS[:3]
            await session.clear_session()
            assert await session.get_items() == []
            page = await live.call("session::messages", {"session_id": "s"})
            assert [item["message"] for item in page["messages"]] == [message]

        run(tmp_path, scenario)

    def test_somebody_else_writes_after_it(self, tmp_path: Path) -> None:
        async def scenario(live: Live) -> None:
            session = AgentSession(live, "s")
            await session.add_items(ITEMS[:2])
            message = {"role": "user", "content": [{"type": "text", "text": "mine"}], "timestamp": 1}
            await live.call("session::append", {"session_id": "s", "message": message})
            hostile = {"custom_type": "openai_agents.items", "data": {"items": "none", "messages": 3}}
            await live.call("session::append", {"session_id": "s", "custom": hostile})
            assert await session.pop_item() == ITEMS[1]
            assert await session.get_items() == ITEMS[:1]
            page = await live.call("session::messages", {"session_id": "s"})
            assert message in [item["message"] for item in page["messages"]]

        run(tmp_path, scenario)

    def test_what_is_popped_is_off_the_path(self, tmp_path: Path) -> None:
        async def scenario(live: Live) -> None:
            session = AgentSession(live, "s")
            await session.add_items(ITEMS[:2])
            await session.pop_item()
            page = await live.call("session::messages", {"session_id": "s"})
            assert [item["message"]["role"] for item in page["messages"]] == ["user"]

        run(tmp_path, scenario)


class TestRunner:
    """An agent that is run again knows what was said before."""

    def test_two_runs(self, tmp_path: Path, agents: Any) -> None:
        from agents.items import ModelResponse
        from agents.usage import Usage
        from openai.types.responses import ResponseOutputMessage, ResponseOutputText

        inputs: list[Any] = []

        class Echo(agents.Model):  # type: ignore[misc, name-defined]
            async def get_response(
                self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
            ) -> ModelResponse:
                inputs.append(input)
                text = ResponseOutputText(type="output_text", text=f"answer {len(inputs)}", annotations=[])
                message = ResponseOutputMessage(
                    id=f"m{len(inputs)}", type="message", role="assistant", status="completed", content=[text]
                )
                return ModelResponse(output=[message], usage=Usage(), response_id=None)

            def stream_response(self, *args: Any, **kwargs: Any) -> Any:
                raise NotImplementedError

        async def scenario(live: Live) -> None:
            agent = agents.Agent(name="a", model=Echo())
            session = AgentSession(live, "s")
            config = agents.RunConfig(tracing_disabled=True)
            for question in ("first", "second"):
                done = await agents.Runner.run(agent, question, session=session, run_config=config)
            assert done.final_output == "answer 2"

        run(tmp_path, scenario)
        assert [item.get("content") for item in inputs[1] if item.get("role") == "user"] == ["first", "second"]
        assert inputs[1][1]["content"][0]["text"] == "answer 1"
