"""`backstory mcp` as agents run it: a process that is spoken to on stdin and stdout."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from mcp import Client, StdioServerParameters

from backstory.library import Library
from tests.transcripts import Transcript

SERVER = [sys.executable, "-m", "backstory", "mcp"]
ERAS = ("legacy", "auto", "2026-07-28")
INITIALIZE = {
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    transcript = Transcript("numbat").prompt("What does a numbat eat?")
    transcript.call("WebSearch", {"query": "numbat diet"}, "Termites, up to 20,000 a day").answer("Termites.")
    transcript.write(tmp_path)
    return tmp_path


def environment(home: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home)}


def talk(home: Path, use: Callable[[Client], Awaitable[Any]], era: str = "auto", *arguments: str) -> Any:
    async def main() -> Any:
        server = StdioServerParameters(command=SERVER[0], args=[*SERVER[1:], *arguments], env=environment(home))
        with anyio.fail_after(60):
            async with Client(server, mode=era) as client:
                return await use(client)

    return anyio.run(main)


async def hits(client: Client, query: str) -> list[dict[str, Any]]:
    result = await client.call_tool("search_sessions", {"query": query})
    found: list[dict[str, Any]] = result.structured_content["data"]["results"]
    return found


async def hits_soon(client: Client, query: str) -> list[dict[str, Any]]:
    """The hits, once there are any: reading goes on in the background."""
    while not (found := await hits(client, query)):
        await anyio.sleep(0.05)
    return found


@contextmanager
def running(home: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server spoken to by hand."""
    process = subprocess.Popen(
        [*SERVER, *arguments],
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


def send(process: subprocess.Popen[bytes], **message: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    process.stdin.flush()


def receive(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    message: dict[str, Any] = json.loads(process.stdout.readline())
    return message


def ask(process: subprocess.Popen[bytes], number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    send(process, id=number, method="tools/call", params={"name": tool, "arguments": arguments})
    answer = receive(process)
    assert answer["id"] == number
    result: dict[str, Any] = answer["result"]["structuredContent"]
    return result


def ask_early(process: subprocess.Popen[bytes], number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer to a call that is sent before the greeting is answered."""
    send(process, method="notifications/initialized")
    send(process, id=number, method="tools/call", params={"name": tool, "arguments": arguments})
    assert receive(process)["id"] == 0
    result: dict[str, Any] = receive(process)["result"]["structuredContent"]
    return result


def greet(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    send(process, id=0, **INITIALIZE)
    greeting: dict[str, Any] = receive(process)["result"]
    send(process, method="notifications/initialized")
    return greeting


def piped(home: Path, lines: list[bytes | dict[str, Any]], *arguments: str) -> tuple[list[dict[str, Any]], bytes]:
    """Everything at once into the server, as from a file; its messages and what it logged."""
    text = b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)
    result = subprocess.run(
        [*SERVER, *arguments], env=environment(home), input=text, capture_output=True, timeout=60, check=True
    )
    return [json.loads(line) for line in result.stdout.splitlines()], result.stderr


def request(number: int | str | None, method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", **({} if number is None else {"id": number}), "method": method, "params": params}


OPENING: list[bytes | dict[str, Any]] = [
    {"jsonrpc": "2.0", "id": 0, **INITIALIZE},
    request(None, "notifications/initialized"),
]


class TestEras:
    @pytest.mark.parametrize("era", ERAS)
    def test_search_and_open(self, home: Path, era: str) -> None:
        """A fresh machine: what agents wrote is found while the server runs, and can be opened; the client checks
        every answer against the tool's schema."""

        async def use(client: Client) -> Any:
            tools = [tool.name for tool in (await client.list_tools()).tools]
            found = await hits_soon(client, '"20,000 a day"')
            opened = await client.call_tool("open", {"id": found[0]["open"]["event_id"]})
            refused = await client.call_tool("open", {"id": "nonsense"})
            return tools, opened, refused, await forty_at_once(client)

        tools, opened, refused, requests = talk(home, use, era, "--tools", "history")

        assert tools == ["search_sessions", "open", "list_sessions"]
        assert opened.structured_content["data"]["content"]["text"] == "Termites, up to 20,000 a day"
        assert json.loads(opened.content[0].text) == opened.structured_content
        assert refused.is_error is False
        assert refused.structured_content["error"]["code"] == "invalid_id"
        for number, asked in requests.items():
            assert (asked["query"], asked["n_hits"]) == (f"termites {number}", number)


async def forty_at_once(client: Client) -> dict[int, Any]:
    """Many questions at once: the request that each answer repeats, by its number."""
    answers: dict[int, Any] = {}

    async def one(number: int) -> None:
        result = await client.call_tool("search_sessions", {"query": f"termites {number}", "n_hits": number})
        answers[number] = result.structured_content["request"]

    async with anyio.create_task_group() as group:
        for number in range(1, 41):
            group.start_soon(one, number)
    return answers


class TestPattern:
    def test_narrows_conversations(self, home: Path) -> None:
        """A pattern that begins with a dash is a pattern all the same."""
        Transcript("engine", "/srv/engine").prompt("Start the engine").answer("It runs.").write(home)

        async def use(client: Client) -> Any:
            while True:
                listed = (await client.call_tool("list_conversations", {})).structured_content["conversations"]
                if listed:
                    return listed
                await anyio.sleep(0.05)

        listed = talk(home, use, "auto", "--tools", "conversations", "-home-dev*")

        assert [conversation["session_id"] for conversation in listed] == [Transcript("numbat").id]


class TestBackground:
    def test_says_when_the_first_sync_is_not_through(self, home: Path) -> None:
        """It answers at once with what is there, and warns that it is not everything."""
        with Library(home / ".backstory") as library:
            writer = library.archive.writer()  # in the place of another process
            try:
                with running(home) as process:
                    greet(process)
                    answer = ask(process, 1, "search_sessions", query="termites")
            finally:
                writer.close()

        assert answer["data"]["results"] == []
        assert answer["warnings"]

    def test_the_first_answer_has_the_latest_session(self, home: Path) -> None:
        """A record that an agent wrote after the last sync is found by a search that comes with the greeting, or the
        answer warns that it may be missing; the warning ends when it is read."""
        with Library(home / ".backstory", agents_home=home) as library:
            library.sync()
        Transcript("quoll").prompt("What does a quoll eat at noon?").write(home)
        with running(home) as process:
            send(process, id=0, **INITIALIZE)
            answer = ask_early(process, 1, "search_sessions", query="quoll noon")
            assert bool(answer["data"]["results"]) or "being read" in answer["warnings"][0]
            number = _ask_until_found(process, 2, "quoll noon")
            while warnings := ask(process, number, "search_sessions", query="quoll noon")["warnings"]:
                assert "being read" in warnings[0]
                number += 1

    def test_warns_of_news_that_another_process_is_to_read(self, home: Path) -> None:
        """The first answer comes without them, and says so; the next ones have them."""
        with Library(home / ".backstory", agents_home=home) as library:
            library.sync()
            writer = library.archive.writer()
            Transcript("quoll").prompt("What does a quoll eat at noon?").write(home)
            with running(home) as process:
                greet(process)
                answer = ask(process, 1, "search_sessions", query="quoll noon")
                writer.close()
                _ask_until_found(process, 2, "quoll noon")

        assert answer["data"]["results"] == []
        assert "being read" in answer["warnings"][0]

    def test_does_not_warn_where_nothing_is_new(self, home: Path) -> None:
        """Also while another process is the writer."""
        with Library(home / ".backstory", agents_home=home) as library:
            library.sync()
            writer = library.archive.writer()
            with running(home) as process:
                greet(process)
                number = 1
                while warnings := ask(process, number, "search_sessions", query="termites")["warnings"]:
                    assert "being read" in warnings[0]  # a busy machine looks late
                    number += 1
            writer.close()

    def test_a_signal_while_the_first_call_waits(self, home: Path) -> None:
        """Ends the process at once."""
        with Library(home / ".backstory", agents_home=home) as library:
            library.sync()
        Transcript("quoll").prompt("What does a quoll eat at noon?").write(home)
        with running(home) as process:
            greet(process)
            send(process, id=1, method="tools/call", params={"name": "search_sessions", "arguments": {"query": "q"}})
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0

    def test_finds_what_is_appended(self, home: Path) -> None:
        """While it runs, news are found within moments."""
        transcript = Transcript("quoll").prompt("And a quoll?")
        path = transcript.write(home)
        with running(home) as process:
            greet(process)
            number = _ask_until_found(process, 1, "quoll")
            written = len(transcript.records)
            transcript.answer("Insects, birds and small mammals: a hunting marsupial.")
            with path.open("a") as stream:
                stream.write(transcript.text(written))
            _ask_until_found(process, number, "marsupial")

    def test_takes_over_from_a_killed_server(self, home: Path) -> None:
        """Two servers, one of them reads; when that one is killed the other goes on."""
        with running(home) as first:
            greet(first)
            _ask_until_found(first, 1, "termites")
            with running(home) as second:
                greet(second)
                assert ask(second, 1, "search_sessions", query="termites")["data"]["results"]
                first.kill()
                Transcript("late").prompt("Do bandicoots dig?").answer("They do.").write(home)
                _ask_until_found(second, 2, "bandicoots")


def _ask_until_found(process: subprocess.Popen[bytes], number: int, query: str) -> int:
    deadline = time.monotonic() + 60
    while not ask(process, number, "search_sessions", query=query)["data"]["results"]:
        assert time.monotonic() < deadline, f"{query} not found"
        time.sleep(0.05)
        number += 1
    return number + 1


DEPTHS = (190, 900, 5_000)


class Answers(NamedTuple):
    """The messages of a server, by the ids of their requests."""

    by_id: dict[Any, dict[str, Any]]
    without_id: list[dict[str, Any]]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """One conversation, with lines and calls of all wrong kinds in it."""
    early = '{"jsonrpc": "2.0", "id": "ID", "method": "tools/call", "params": {"name": "open", "arguments": DEEP}}'
    late = '{"jsonrpc": "2.0", "params": {"id": 3, "arguments": DEEP}, "method": "x", "id": "ID"}'
    nested = [
        line.replace("ID", f"{name} {depth}").replace("DEEP", "[" * depth + "]" * depth).encode() + b"\n"
        for depth in DEPTHS
        for name, line in (("early", early), ("late", late))
    ]
    lines: list[bytes | dict[str, Any]] = [
        *OPENING,
        b"garbage\n",
        b"\n",
        b"[1, 2]\n",
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        *nested,
        request("half", "tools/call", name="search_sessions", arguments={"query": "termites \ud83d"}),
        request("no tool", "tools/call", name="nonsense", arguments={}),
        request("no object", "tools/call", name="open", arguments=[1]),
        request("no method", "nonsense/list"),
        request("ping", "ping"),
    ]
    messages, _ = piped(tmp_path_factory.mktemp("home"), lines)
    by_id = {message["id"]: message for message in messages if message["id"] is not None}
    return Answers(by_id, [message for message in messages if message["id"] is None])


class TestPipe:
    def test_answers_everything_before_it_ends(self, home: Path) -> None:
        """Requests piped in from a file, the last of them just before the end."""
        calls: list[bytes | dict[str, Any]] = [
            request(number, "tools/call", name="search_sessions", arguments={"query": "termites"})
            for number in range(1, 21)
        ]

        messages, log = piped(home, [*OPENING, *calls])

        assert sorted(message["id"] for message in messages) == list(range(21))
        assert all("result" in message for message in messages)
        assert log == b""

    def test_the_modern_era_by_hand(self, home: Path) -> None:
        """No handshake: every request brings what the server must know."""
        messages, _ = piped(
            home,
            [
                request(1, "server/discover", _meta=MODERN),
                request(2, "tools/call", _meta=MODERN, name="open", arguments={"id": ""}),
            ],
        )

        discovered, opened = sorted(messages, key=lambda message: message["id"])
        assert "2026-07-28" in discovered["result"]["supportedVersions"]
        assert "search_sessions" in discovered["result"]["instructions"]
        assert opened["result"]["structuredContent"]["error"]["code"] == "invalid_request"

    def test_lines_that_are_no_messages(self, answers: Answers) -> None:
        """Each gets its error, and the conversation goes on; blank lines are nothing."""
        codes = [message["error"]["code"] for message in answers.without_id]
        assert sorted(codes) == [-32700, -32700, -32700, -32600]
        assert answers.by_id["ping"] == {"jsonrpc": "2.0", "id": "ping", "result": {}}

    @pytest.mark.parametrize("depth", DEPTHS)
    def test_nested_without_end(self, answers: Answers, depth: int) -> None:
        """A message that is too deep to be read is refused by its id, wherever that stands in the line."""
        early, late = answers.by_id[f"early {depth}"], answers.by_id[f"late {depth}"]
        assert "error" in late
        if depth > 190:
            assert early["error"] == {"code": -32700, "message": "nested too deeply"}

    def test_half_a_character(self, answers: Answers) -> None:
        """A query cut in the middle of an emoji is still a query."""
        answer = answers.by_id["half"]["result"]["structuredContent"]
        assert answer["request"]["query"] == "termites ?"

    def test_calls_that_cannot_be(self, answers: Answers) -> None:
        """An unknown tool, arguments that are no object, an unknown method: protocol errors all."""
        codes = [answers.by_id[name]["error"]["code"] for name in ("no tool", "no object", "no method")]
        assert codes == [-32602, -32602, -32601]

    def test_nothing_at_all(self, home: Path) -> None:
        """A client that leaves at once."""
        assert piped(home, []) == ([], b"")


class TestStart:
    def test_imports_no_command_line(self, home: Path) -> None:
        """Every session of an agent waits for the first answer."""
        command = [SERVER[0], "-X", "importtime", *SERVER[1:]]
        request = json.dumps({"jsonrpc": "2.0", "id": 1, **INITIALIZE}).encode()
        ended = subprocess.run(command, input=request, env=environment(home), capture_output=True, check=True)

        imported = {line.rpartition(b"|")[2].strip() for line in ended.stderr.splitlines()}
        assert json.loads(ended.stdout)["result"]["serverInfo"]["name"] == "backstory"
        assert b"backstory.faces.mcp" in imported
        assert not {b"click", b"rich", b"mcp", b"asyncio", b"starlette"} & imported

    def test_a_broken_setting_is_named(self, home: Path) -> None:
        """In one line, as by every other command."""
        (home / ".backstory").mkdir()
        (home / ".backstory" / "config.toml").write_text("redact = 5\n")
        ended = subprocess.run(SERVER, input=b"", env=environment(home), capture_output=True)

        assert (ended.returncode, ended.stdout) == (1, b"")
        assert ended.stderr.startswith(b"error: ")
        assert b"redact" in ended.stderr
        assert ended.stderr.count(b"\n") == 1


class TestStreams:
    """Stdin and stdout carry the protocol and nothing else."""

    STRAY = """
import os
from backstory import open_archive
from backstory.faces.mcp import serve_stdio
from backstory.library import Library

def watch(self, stop, **_):
    print("stray", flush=True)
    os.system("echo stray; cat")

Library.watch = watch
serve_stdio(open_archive(), ["history"])
"""

    def test_stray_output_goes_to_stderr(self, home: Path) -> None:
        """And a child process that reads gets nothing of what the client sends."""
        lines = [*OPENING, request(1, "tools/call", name="open", arguments={"id": ""}), request(2, "ping")]
        done = subprocess.run(
            [sys.executable, "-c", self.STRAY],
            env=environment(home),
            input=b"".join(json.dumps(line).encode() + b"\n" for line in lines),
            capture_output=True,
            timeout=60,
            check=True,
        )

        assert sorted(json.loads(line)["id"] for line in done.stdout.splitlines()) == [0, 1, 2]
        assert done.stderr == b"stray\nstray\n"


class TestEnd:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_signals(self, home: Path, number: signal.Signals) -> None:
        """A clean end at once, although the client keeps its end open; and nobody has to wait for the lock."""
        with running(home) as process:
            greet(process)
            _ask_until_found(process, 1, "termites")
            process.send_signal(number)
            code = process.wait(timeout=60)
            assert process.stderr is not None
            log = process.stderr.read()

        assert (code, log) == (0, b"")
        with Library(home / ".backstory", agents_home=home, environ={}) as library:
            library.sync()

    def test_a_signal_that_another_thread_receives(self, home: Path) -> None:
        """It does not interrupt the main thread, which handles it all the same."""
        script = """
import signal, threading
from backstory import open_archive
from backstory.faces.mcp import serve_stdio
from backstory.library import Library

def watch(self, stop, **_):
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
    stop.wait()

Library.watch = watch
serve_stdio(open_archive(), ["history"])
"""
        with subprocess.Popen(
            [sys.executable, "-c", script], env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            try:
                assert process.wait(60) == 0
            finally:
                process.kill()

    def test_the_client_closes_its_end(self, home: Path) -> None:
        """End of input is the end, also while nothing was asked."""
        with running(home) as process:
            greet(process)
            assert process.stdin is not None
            process.stdin.close()
            code = process.wait(timeout=60)

        assert code == 0

    def test_the_client_is_gone(self, home: Path) -> None:
        """The client no longer reads answers: nothing is logged."""
        with running(home) as process:
            greet(process)
            assert process.stdout is not None
            assert process.stdin is not None
            process.stdout.close()
            for number in range(1, 4):
                send(process, id=number, method="ping")
            process.stdin.close()
            process.wait(timeout=60)
            assert process.stderr is not None
            log = process.stderr.read()

            code = process.returncode

        assert (code, log) == (0, b"")
