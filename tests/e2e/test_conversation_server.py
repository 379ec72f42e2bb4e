"""The conversations server as agents run it: a process beside Claude Code, while Claude Code writes."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client, StdioServerParameters

from tests.conversation_world import Json, Session, tool_use

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = CHECKOUT / "conversation_search.py"
BACKSTORY = ("-m", "backstory", "mcp", "--tools", "conversations")
PATTERN = "-home-dev-sites*"
SOON = 3.0
PATIENCE = 60.0


class Server:
    """Requests of a client to a running server."""

    def __init__(self, client: Client, home: Path) -> None:
        self.client = client
        self.home = home

    async def ask(self, tool: str, **arguments: Any) -> Json:
        """The client checks every answer against the tool's schema; the text beside it says the same."""
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error is False
        assert json.loads(result.content[0].text) == result.structured_content
        answer: Json = result.structured_content
        return answer

    async def search(self, query: str, **arguments: Any) -> list[Json]:
        results: list[Json] = (await self.ask("search_conversations", query=query, **arguments))["results"]
        return results

    async def found_after(self, word: str, *, hits: int = 1) -> float:
        """Seconds until a word is found."""
        started = time.monotonic()
        while len(await self.search(word)) < hits:
            assert time.monotonic() - started < PATIENCE, f"{word} was not found"
            await anyio.sleep(0.02)
        return time.monotonic() - started

    def append(self, session: Session, *said: str) -> None:
        """Claude Code goes on: a prompt and its answers."""
        written = len(session.records)
        session.prompt(said[0])
        for answer in said[1:]:
            session.answer(answer)
        with session.path(self.home).open("a") as file:
            file.write(session.text(written))


def serve(home: Path, use: Callable[[Server], Awaitable[Any]], *arguments: str) -> Any:
    async def main() -> Any:
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        parameters = StdioServerParameters(command=sys.executable, args=list(arguments), env=environment)
        with anyio.fail_after(2 * PATIENCE):
            async with Client(parameters) as client:
                return await use(Server(client, home))

    return anyio.run(main)


@pytest.fixture
def shop(tmp_path: Path) -> Session:
    session = Session("shop", "/home/dev/sites/shop").prompt("Where is the carburettor?").answer("Below the manifold.")
    session.write(tmp_path)
    return session


@pytest.fixture
def outside(tmp_path: Path) -> Session:
    session = Session("outside", "/home/dev/diary").prompt("A carburettor of my own").answer("Private.")
    session.write(tmp_path)
    return session


class TestSmoke:
    """It starts, indexes, and answers questions with what there is."""

    @pytest.mark.parametrize(
        ("start", "arguments"), [(BACKSTORY, ()), ((str(SCRIPT),), (PATTERN,))], ids=["command", "script"]
    )
    def test_starts(
        self, tmp_path: Path, shop: Session, outside: Session, start: tuple[str, ...], arguments: tuple[str, ...]
    ) -> None:
        expected = {"shop"} if arguments == (PATTERN,) else {"-home-dev-sites-shop", "-home-dev-diary"}

        async def use(server: Server) -> Any:
            tools = [tool.name for tool in (await server.client.list_tools()).tools]
            await server.found_after("carburettor", hits=len(expected))
            return tools, await server.search("carburettor"), await server.ask("list_conversations")

        tools, results, listed = serve(tmp_path, use, *start, *arguments)

        assert tools == ["search_conversations", "list_conversations", "read_turn", "read_conversation"]
        assert {result["project"] for result in results} == expected
        assert {conversation["project"] for conversation in listed["conversations"]} == expected

    def test_nothing_there(self, tmp_path: Path) -> None:
        """Claude Code was never used here; when it is, it is found."""

        async def use(server: Server) -> Any:
            nothing = await server.search("anything")
            Session("first", "/home/dev/sites/first").prompt("genesis").write(tmp_path)
            await server.found_after("genesis")
            return nothing

        assert serve(tmp_path, use, *BACKSTORY, PATTERN) == []


class TestScript:
    """conversation_search.py is run by uv with what its head says."""

    def test_metadata(self) -> None:
        """It needs the checkout it lies in, with the dependencies of that, and nothing else."""
        block = re.search(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$", SCRIPT.read_text("utf-8"))
        assert block is not None
        metadata = tomllib.loads("".join(line[2:] + "\n" for line in block["content"].splitlines()))
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]

        assert metadata == {
            "requires-python": project["requires-python"],
            "dependencies": [project["name"]],
            "tool": {"uv": {"sources": {project["name"]: {"path": ".", "editable": True}}}},
        }


class TestTurns:
    """Turns read as they stand in the file."""

    def test_spot_check(self, tmp_path: Path) -> None:
        """Every turn of a long session, against the raw lines."""
        session = Session("raw", "/home/dev/sites/raw")
        for number in range(25):
            session.user("Injected context", isMeta=True)
            session.user(f"Question {number}\nwith  blanks, ñ and 日本語 \n")
            session.says({"type": "thinking", "thinking": "hm", "signature": "s"}, f"I look {number}.")
            session.call("Bash", {"command": f"grep -rn 'x' {'src/' * 60}"}, "output")
            session.call("Write", {"file_path": f"/f{number}", "content": "ab\n" * number}, "ok")
            session.says(
                tool_use("Task", {"subagent_type": "Explore", "description": "d", "prompt": "p"}, f"t{number}")
            )
            session.add("progress", data={"type": "hook_progress"})
            session.user("<command-name>/cost</command-name>").answer(f"Answer {number}.")
        path = session.write(tmp_path)

        async def use(server: Server) -> Any:
            await server.found_after("Question", hits=5)
            total = (await server.ask("read_conversation", session_id=session.id, limit=1))["total_turns"]
            return [await server.ask("read_turn", session_id=session.id, turn_number=n) for n in range(total)]

        turns = serve(tmp_path, use, *BACKSTORY)

        raw = raw_turns(path)
        assert len(turns) == len(raw) == 25
        for number, (turn, lines) in enumerate(zip(turns, raw, strict=True)):
            assert turn == {"session_id": session.id, "turn_number": number, **lines}


def raw_turns(path: Path) -> list[Json]:
    """The turns of a transcript by the rules as they are written, with nothing of ours."""
    turns: list[Json] = []
    for line in path.read_text("utf-8").splitlines():
        record = json.loads(line)
        if record["type"] not in ("user", "assistant") or record.get("isMeta"):
            continue
        content = record["message"]["content"]
        if record["type"] == "user":
            if isinstance(content, str) and not content.startswith("<command-name>"):
                turn = {"timestamp": record["timestamp"], "user_text": content, "assistant_text": "", "tools_used": []}
                turns.append(turn)
            continue
        for block in content:
            if block["type"] == "text":
                turns[-1]["assistant_text"] += ("\n" if turns[-1]["assistant_text"] else "") + block["text"]
            elif block["type"] == "tool_use":
                turns[-1]["tools_used"].append(raw_call(block["name"], block["input"]))
    return turns


def raw_call(tool: str, given: Json) -> Json:
    if tool == "Write":
        return {"tool": tool, "file": given["file_path"], "chars": len(given["content"])}
    if tool == "Task":
        return {"tool": tool, "type": given["subagent_type"], "description": given["description"]}
    return {"tool": tool, "command": given["command"][:200]}


class TestLive:
    """Records that Claude Code writes while the server runs are found."""

    def test_written_meanwhile(self, tmp_path: Path, shop: Session, outside: Session) -> None:
        """One server, to which everything happens one after the other."""

        async def use(server: Server) -> None:
            await server.found_after("carburettor")
            await appended_turns(server, shop)
            await a_turn_that_grows(server, shop)
            await half_a_line(server, shop)
            await new_projects(server)
            await projects_that_do_not_match(server, shop, outside)

        serve(tmp_path, use, *BACKSTORY, PATTERN)

    @pytest.mark.slow
    def test_soon(self, tmp_path: Path, shop: Session) -> None:
        """Within three seconds, on a machine that is not busy."""

        async def use(server: Server) -> Any:
            waits = []
            for word in ("aardvark", "bandicoot", "cassowary"):
                server.append(shop, f"And the {word}?", "Gone.")
                waits.append(await server.found_after(word))
            return waits

        assert max(serve(tmp_path, use, *BACKSTORY, PATTERN)) < SOON

    def test_unchanged_files_are_not_read_again(self, tmp_path: Path, shop: Session) -> None:
        """A file that looks untouched is not opened when others change, and neither after a restart: other words
        put in its place, by stealth, are not noticed."""
        still = Session("still", "/home/dev/sites/still").prompt("The word is original").answer("Yes.")
        path = still.write(tmp_path)

        async def use(server: Server) -> Any:
            await server.found_after("original")
            before = path.stat()
            path.write_text(path.read_text().replace("original", "replaced"))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert (path.stat().st_size, path.stat().st_ino) == (before.st_size, before.st_ino)
            server.append(shop, "first marker")
            await server.found_after("first")
            return await server.search("replaced")

        async def use_again(server: Server) -> Any:
            server.append(shop, "second marker")
            await server.found_after("second")
            return await server.search("replaced")

        assert serve(tmp_path, use, *BACKSTORY, PATTERN) == []
        assert serve(tmp_path, use_again, *BACKSTORY, PATTERN) == []

    def test_several_servers(self, tmp_path: Path, shop: Session, outside: Session) -> None:
        """One of them reads, each answers for its own projects."""

        async def use(server: Server) -> Any:
            environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
            arguments = [*BACKSTORY, "-home-dev-diary"]
            async with Client(StdioServerParameters(command=sys.executable, args=arguments, env=environment)) as client:
                other = Server(client, tmp_path)
                server.append(shop, "numbat")
                server.append(outside, "quoll")
                await server.found_after("numbat")
                await other.found_after("quoll")
                return await server.search("quoll"), await other.search("numbat")

        assert serve(tmp_path, use, *BACKSTORY, PATTERN) == ([], [])


async def appended_turns(server: Server, shop: Session) -> None:
    for word in ("aardvark", "bandicoot", "cassowary"):
        server.append(shop, f"And the {word}?", "Gone.")
        await server.found_after(word)
    conversation = await server.ask("read_conversation", session_id=shop.id)
    assert conversation["total_turns"] == 4
    assert conversation["turns"][3]["user_text"] == "And the cassowary?"


async def a_turn_that_grows(server: Server, shop: Session) -> None:
    """It is found by what came later, once."""
    written = len(shop.records)
    shop.answer("On second thought: ask the wombat.")
    with shop.path(server.home).open("a") as file:
        file.write(shop.text(written))
    await server.found_after("wombat")
    assert [result["turn_number"] for result in await server.search("cassowary wombat")] == [3]


async def half_a_line(server: Server, shop: Session) -> None:
    """A line counts when it is complete."""
    written = len(shop.records)
    line = shop.prompt("A dingo?").text(written)
    with shop.path(server.home).open("a") as file:
        file.write(line[:-20])
        file.flush()
        Session("other", "/home/dev/sites/other").prompt("meanwhile").write(server.home)
        await server.found_after("meanwhile")
        assert await server.search("dingo") == []
        file.write(line[-20:])
    await server.found_after("dingo")


async def new_projects(server: Server) -> None:
    """A folder that comes with its first transcript at once, and one that is moved here with all it has."""
    for number in range(5):
        Session(f"new {number}", f"/home/dev/sites/new{number}").prompt(f"greenfield{number}").write(server.home)
        await server.found_after(f"greenfield{number}")
    moved = Session("moved", "/home/dev/sites/moved").prompt("transplanted")
    source = moved.write(server.home / "elsewhere").parent
    source.rename(moved.path(server.home).parent)
    await server.found_after("transplanted")
    (result,) = await server.search("transplanted")
    assert result["project"] == "moved"


async def projects_that_do_not_match(server: Server, shop: Session, outside: Session) -> None:
    """They do not exist for this server: neither those that were there, nor new ones, nor by their ids."""
    new = Session("new", "/home/dev/sitz").prompt("A carburettor elsewhere")
    new.write(server.home)
    server.append(outside, "carburettor again")
    server.append(shop, "marker")
    await server.found_after("marker")
    assert {result["session_id"] for result in await server.search("carburettor")} == {shop.id}
    listed = (await server.ask("list_conversations", limit=50))["conversations"]
    assert {outside.id, new.id}.isdisjoint(conversation["session_id"] for conversation in listed)
    assert await server.search("carburettor", session_id=outside.id) == []
    assert await server.search("carburettor", project="diary") == []
    for tool, id, place in (("read_turn", outside.id, {"turn_number": 0}), ("read_conversation", new.id, {})):
        assert await server.ask(tool, session_id=id, **place) == {"error": f"Unknown session_id: {id}"}


class TestGone:
    """Full fidelity, over the wire."""

    def test_a_large_turn_without_its_file(self, tmp_path: Path) -> None:
        """Two megabytes, to the last character, after Claude Code has purged the transcript."""
        text = "".join(f'line {number}: ñandú = "and so on";\n' for number in range(60_000))
        assert len(text.encode()) > 2_000_000
        session = Session("large", "/home/dev/sites/large").prompt(text).answer(text)
        path = session.write(tmp_path)

        async def use(server: Server) -> Any:
            await server.found_after("ñandú")
            path.unlink()
            other = Session("other", "/home/dev/sites/other").prompt("afterwards")
            other.write(tmp_path)
            await server.found_after("afterwards")
            return await server.ask("read_turn", session_id=session.id, turn_number=0)

        turn = serve(tmp_path, use, *BACKSTORY, PATTERN)

        assert turn["user_text"] == text
        assert turn["assistant_text"] == text
