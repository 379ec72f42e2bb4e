"""Both MCP servers, our own for stdio and the SDK's for HTTP, with made-up tools behind them."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from backstory.config import McpSettings, Settings
from backstory.faces.http.mcp import build_server
from backstory.toolsets.base import Arguments, Reply, Tool, Toolset, received_at
from tests.faces.direct import direct

if TYPE_CHECKING:
    from backstory.library import Library

ERAS = ("legacy", "auto", "2026-07-28")
SERVERS: dict[str, Callable[..., Any]] = {"stdio": direct, "sdk": build_server}
NAMES = ["echo", "note.refuse", "note.crash", "note.deny", "note.wait"]
ANY_OBJECT = {"type": "object"}


def echo(arguments: Arguments) -> Reply:
    thread = threading.current_thread() is threading.main_thread()
    return Reply.of({"given": dict(arguments), "nothing": None, "main_thread": thread})


def refuse(arguments: Arguments) -> Reply:
    return Reply.of({"error": {"code": "NOT_FOUND"}}, is_error=True)


def crash(arguments: Arguments) -> Reply:
    raise RuntimeError("an inner detail")


def wait(arguments: Arguments) -> Reply:
    """Holds its thread until the gate is open."""
    started = time.monotonic()
    waiting.release()
    assert gate.wait(60)
    return Reply.of({"received": received_at(), "started": started})


gate, waiting = threading.Event(), threading.Semaphore(0)


@pytest.fixture(autouse=True)
def closed_gate() -> Iterator[None]:
    gate.clear()
    while waiting.acquire(blocking=False):
        pass
    yield
    gate.set()


TOOLSETS = {
    "history": Toolset(
        name="history",
        instructions="Search before you ask.",
        tools=(
            Tool(
                name="echo",
                description="Gives back what it got.",
                input=lambda: {"type": "object", "properties": {"word": {"type": ["string", "null"], "default": None}}},
                output=lambda: {"anyOf": [{"required": ["given"]}, {"required": ["error"]}]},
                compact_output={"anyOf": [{"required": ["given"]}]},
                handler=echo,
                read_only=True,
                aliases=("echo_alias",),
            ),
        ),
    ),
    "capsules": Toolset(
        name="capsules",
        instructions="Leave notes.",
        tools=(
            Tool(name="note.refuse", description="-", input=lambda: ANY_OBJECT, handler=refuse, idempotent=True),
            Tool(name="note.crash", description="-", input=lambda: ANY_OBJECT, handler=crash, destructive=True),
            Tool(name="note.deny", description="-", input=lambda: ANY_OBJECT, handler=refuse, structured_errors=True),
            Tool(name="note.wait", description="-", input=lambda: ANY_OBJECT, handler=wait),
            Tool(name="note.rare", description="-", input=lambda: ANY_OBJECT, handler=echo, offer="all"),
        ),
    ),
}


class FakeLibrary:
    settings = Settings()

    def __init__(self) -> None:
        self.patterns: list[str] = []

    def toolset(self, name: str, pattern: str | None = None) -> Toolset:
        if pattern is not None:
            self.patterns.append(pattern)
        return TOOLSETS["history" if name == "conversations" else name]


def served(
    use: Callable[[Client], Awaitable[Any]],
    *,
    server: str,
    era: str = "auto",
    names: tuple[str, ...] = ("history", "capsules"),
    library: FakeLibrary | None = None,
) -> Any:
    async def main() -> Any:
        async with Client(SERVERS[server](cast("Library", library or FakeLibrary()), names), mode=era) as client:
            return await use(client)

    return anyio.run(main)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server", SERVERS)
class TestBothEras:
    def test_lists_the_tools_of_the_chosen_toolsets(self, server: str, era: str) -> None:
        """With schemas whose root is an object, and hints that say what a tool does to the world."""

        async def use(client: Client) -> Any:
            return (await client.list_tools()).tools

        tools = {tool.name: tool for tool in served(use, server=server, era=era)}

        assert list(tools) == NAMES
        assert tools["echo"].input_schema["properties"]["word"] == {"type": ["string", "null"], "default": None}
        assert tools["echo"].output_schema["type"] == "object"
        assert tools["note.crash"].output_schema is None
        hints = {name: tool.annotations.model_dump(exclude={"title"}) for name, tool in tools.items()}
        assert list(hints["echo"].values()) == [True, False, False, False]
        assert list(hints["note.refuse"].values()) == [False, False, True, False]
        assert list(hints["note.crash"].values()) == [False, True, False, False]

    def test_answers_with_the_object_and_its_text(self, server: str, era: str) -> None:
        """Nulls stay, the two forms agree, and the event loop is not what runs the tool."""

        async def use(client: Client) -> Any:
            return await client.call_tool("echo", {"word": None})

        result = served(use, server=server, era=era)

        assert result.structured_content == {"given": {"word": None}, "nothing": None, "main_thread": False}
        assert result.content[0].text == '{"given":{"word":null},"nothing":null,"main_thread":false}'
        assert result.is_error is False

    def test_calls_by_alias(self, server: str, era: str) -> None:
        """A tool answers to its other names without listing them."""

        async def use(client: Client) -> Any:
            return (await client.call_tool("echo_alias", {})).structured_content["given"]

        assert served(use, server=server, era=era) == {}

    def test_flags_errors_of_tools(self, server: str, era: str) -> None:
        """A tool's own error is a result, flagged if the tool says so."""

        async def use(client: Client) -> Any:
            return await client.call_tool("note.refuse", {})

        result = served(use, server=server, era=era)

        assert result.is_error is True
        assert result.structured_content is None
        assert result.content[0].text == '{"error":{"code":"NOT_FOUND"}}'

    def test_structures_errors_that_fit_the_schema(self, server: str, era: str) -> None:
        """Those of tools that say so."""

        async def use(client: Client) -> Any:
            return await client.call_tool("note.deny", {})

        result = served(use, server=server, era=era)

        assert result.is_error is True
        assert result.structured_content == {"error": {"code": "NOT_FOUND"}}

    def test_counts_from_receipt(self, server: str, era: str) -> None:
        """A tool measures its time from the receipt of the request, not from when a thread was free."""

        async def use(client: Client) -> Any:
            answers: list[Any] = []

            async def wait() -> None:
                answers.append((await client.call_tool("note.wait", {})).structured_content)

            async with anyio.create_task_group() as group:
                for _ in range(5):
                    group.start_soon(wait)
                for _ in range(4):  # as many as run at once
                    await anyio.to_thread.run_sync(waiting.acquire)
                await client.list_tools()  # requests are received in their order: the fifth has been
                received = time.monotonic()
                gate.set()
            return received, max(answers, key=lambda answer: answer["started"])

        received, last = served(use, server=server, era=era)

        assert last["received"] <= received <= last["started"]

    @pytest.mark.parametrize("name", ["nonsense", "echo_", ""])
    def test_an_unknown_tool_is_a_protocol_error(self, server: str, era: str, name: str) -> None:
        """And the error says which tools there are."""

        async def use(client: Client) -> Any:
            with pytest.raises(MCPError) as caught:
                await client.call_tool(name, {})
            return caught.value

        error = served(use, server=server, era=era)

        assert error.code == -32602
        assert error.message == f"Unknown tool: {name}"
        assert error.data == {"tools": NAMES}

    def test_a_crash_keeps_its_details(self, server: str, era: str) -> None:
        """The details of a bug stay in the log; the connection lives on."""

        async def use(client: Client) -> Any:
            with pytest.raises(MCPError) as caught:
                await client.call_tool("note.crash", {})
            await client.call_tool("echo", {})
            return caught.value

        error = served(use, server=server, era=era)

        assert error.code == -32603
        assert "inner detail" not in str(error.error)


@pytest.mark.parametrize("server", SERVERS)
class TestOffer:
    def test_unlisted_tools_can_be_called(self, server: str) -> None:
        """They are left out for the sake of an agent's context, not because they are forbidden."""

        async def use(client: Client) -> Any:
            listed = [tool.name for tool in (await client.list_tools()).tools]
            return listed, (await client.call_tool("note.rare", {"a": 1})).structured_content["given"]

        listed, given = served(use, server=server)

        assert "note.rare" not in listed
        assert given == {"a": 1}

    def test_lists_full_output_schemas_on_request(self, server: str) -> None:
        """By a setting; otherwise the compact ones, where there are any."""

        async def use(client: Client) -> Any:
            return {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}

        library = FakeLibrary()
        library.settings = Settings(mcp=McpSettings(output_schemas="full"))

        assert served(use, server=server)["echo"] == {"type": "object", "anyOf": [{"required": ["given"]}]}
        assert len(served(use, server=server, library=library)["echo"]["anyOf"]) == 2

    @pytest.mark.parametrize("era", ["legacy", "auto"])
    def test_instructs(self, server: str, era: str) -> None:
        """The instructions are those of the chosen toolsets."""

        async def use(client: Client) -> Any:
            return client.instructions

        assert served(use, server=server, era=era).endswith("Search before you ask.\n\nLeave notes.")
        assert "Leave notes" not in served(use, server=server, era=era, names=("history",))


def test_passes_the_pattern_to_conversations_only() -> None:
    """Other toolsets have no use for it. Only `backstory mcp` has patterns."""
    library = FakeLibrary()

    async def main() -> None:
        async with Client(direct(cast("Library", library), ("history", "conversations"), pattern="-home-*")) as client:
            await client.list_tools()

    anyio.run(main)

    assert library.patterns == ["-home-*"]


class TestCancellation:
    """A cancelled call is not answered, and the connection goes on."""

    @pytest.mark.parametrize("era", ERAS)
    @pytest.mark.parametrize("server", SERVERS)
    def test_by_the_client(self, server: str, era: str) -> None:
        async def use(client: Client) -> Any:
            async with anyio.create_task_group() as group:
                group.start_soon(client.call_tool, "note.wait", {})
                await anyio.to_thread.run_sync(waiting.acquire)
                group.cancel_scope.cancel()
            return (await client.call_tool("echo", {"word": "still here"})).structured_content["given"]

        assert served(use, server=server, era=era) == {"word": "still here"}
