"""Our MCP server on stdio, message by message: it answers as the official SDK's server does."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared.message import SessionMessage

from backstory.faces.http.mcp import build_server
from backstory.faces.mcp import Connection
from backstory.faces.offer import make_listing, make_offer
from backstory.toolsets.base import Arguments, Reply, Tool, Toolset
from tests.faces.test_mcp import FakeLibrary

if TYPE_CHECKING:
    from backstory.library import Library

Json = dict[str, Any]
VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
INFO = "io.modelcontextprotocol/clientInfo"
CLIENT = {"name": "test", "version": "1"}
META: Json = {VERSION: "2026-07-28", CAPABILITIES: {}, INFO: CLIENT}


def ask(id: Any, method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def note(method: str, **params: Any) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def initialize(version: Any = "2025-06-18", **more: Any) -> Json:
    return ask("init", "initialize", **{"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT, **more})


def bare(method: str, **more: Any) -> Json:
    return {"jsonrpc": "2.0", "id": 5, "method": method, **more}


READY = [initialize(), note("notifications/initialized")]
DISCOVER = ask("first", "server/discover", _meta=META)

# What a client sends, one conversation each.
HANDSHAKE: list[list[Json]] = [
    *([initialize(version)] for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")),
    *([initialize(version)] for version in ("2026-07-28", "1999-01-01", "", 1, None)),
    [initialize(capabilities=[])],
    [initialize(clientInfo={"name": "test"})],
    [initialize(_meta=META)],
    [bare("initialize")],
    [initialize(), initialize("2025-11-25")],
    [ask(1, "tools/list")],
    [ask(1, "tools/call", name="echo")],
    [ask(1, "ping")],
    [ask(1, "nonsense/list")],
    [ask(1, "server/discover")],
    *(
        [*READY, message]
        for message in (
            bare("tools/list"),
            bare("tools/list", params=None),
            ask(1, "tools/list", cursor="x"),
            ask(1, "tools/list", cursor=3),
            ask(1, "tools/list", _meta=META),
            ask(1, "nonsense/list", _meta={VERSION: "2026-07-28"}),
            ask(1, "tools/call", name="echo", arguments={"word": "hi"}),
            ask(1, "tools/call", name="echo_alias", arguments={}),
            ask(1, "tools/call", name="echo"),
            ask(1, "tools/call", name="echo", arguments=None),
            ask(1, "tools/call", name="echo", arguments=[1]),
            ask(1, "tools/call", name="echo", arguments={}, more=1),
            ask(1, "tools/call", name="echo", arguments={}, _meta={"progressToken": "p"}),
            ask(1, "tools/call", name="echo", arguments={}, _meta={"progressToken": [1]}),
            ask(1, "tools/call", name="echo", arguments={}, _meta=3),
            ask(1, "tools/call", name=3),
            ask(1, "tools/call"),
            ask(1, "tools/call", name="nonsense", arguments={}),
            ask(1, "tools/call", name="note.refuse", arguments={}),
            ask(1, "tools/call", name="note.deny", arguments={}),
            ask(1, "tools/call", name="note.crash", arguments={}),
            ask("one", "ping"),
            ask(10**29, "ping"),
            bare("ping"),
            ask(1, "server/discover"),
            ask(1, "prompts/list"),
            ask(1, "resources/list"),
            ask(1, "logging/setLevel", level="info"),
            ask(1, "nonsense/list"),
        )
    ),
    [*READY, note("nonsense"), note("notifications/cancelled", requestId=77), ask(9, "ping")],
    [*READY, {"jsonrpc": "2.0", "id": 1, "result": {}}, ask(9, "ping")],
    [*READY, {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}}, ask(9, "ping")],
]
MODERN: list[list[Json]] = [
    [DISCOVER],
    [note("notifications/initialized"), DISCOVER],
    *(
        [ask(1, method, _meta=META, **params)]
        for method, params in (
            ("tools/list", {}),
            ("tools/list", {"cursor": "x"}),
            ("tools/list", {"cursor": 3}),
            ("tools/call", {"name": "echo", "arguments": {"word": "hi"}}),
            ("tools/call", {"name": "echo"}),
            ("tools/call", {"name": "echo", "arguments": [1]}),
            ("tools/call", {"name": "nonsense"}),
            ("tools/call", {"name": "note.refuse"}),
            ("tools/call", {"name": "note.deny"}),
            ("tools/call", {"name": "note.crash"}),
            ("tools/call", {}),
            ("ping", {}),
            ("prompts/list", {}),
            ("logging/setLevel", {"level": "info"}),
            ("nonsense/list", {}),
        )
    ),
    *(
        [ask(1, "tools/list", _meta=meta)]
        for meta in (
            {VERSION: "2026-07-28"},
            {VERSION: "2027-01-01", CAPABILITIES: {}},
            {VERSION: 7, CAPABILITIES: {}},
            {VERSION: "2026-07-28", CAPABILITIES: {}},
            {**META, CAPABILITIES: 3},
            {**META, INFO: 3},
        )
    ),
    *(
        [DISCOVER, message]
        for message in (
            initialize(),
            initialize(3),
            ask(2, "tools/list"),
            bare("tools/list"),
            ask(2, "tools/list", _meta=3),
            ask(2, "tools/list", _meta={CAPABILITIES: {}}),
            ask(2, "tools/list", _meta={VERSION: "2025-06-18", CAPABILITIES: {}}),
        )
    ),
]


def by_sdk(conversation: list[Json]) -> list[Json]:
    """The answers of the SDK's server."""

    async def main() -> list[Json]:
        server = build_server(cast("Library", FakeLibrary()), ("history", "capsules"))
        requests, requested = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        answers, answered = anyio.create_memory_object_stream[SessionMessage](100)
        expected = sum("id" in message and "method" in message for message in conversation)
        async with anyio.create_task_group() as group:
            group.start_soon(server.run, requested, answers, server.create_initialization_options())
            for message in conversation:
                decoded = types.jsonrpc_message_adapter.validate_python(message, by_name=False)
                await requests.send(SessionMessage(decoded))
            received = [await answered.receive() for _ in range(expected)]
            group.cancel_scope.cancel()
        for stream in (requests, requested, answers, answered):
            stream.close()
        return [json.loads(item.message.model_dump_json(by_alias=True, exclude_unset=True)) for item in received]

    return anyio.run(main)


class Conversation:
    """A connection to our server, spoken to in lines."""

    def __init__(self, load: Callable[[str], Toolset] | None = None) -> None:
        library = cast("Library", FakeLibrary())
        self.output = io.BytesIO()
        listing = make_listing(make_offer(library, ("history", "capsules")), full_output=False)
        self.connection = Connection(listing, load or library.toolset, self.output)

    def send(self, *lines: Json | bytes) -> list[Json]:
        """All answers so far."""
        for line in lines:
            self.connection.receive(line if isinstance(line, bytes) else json.dumps(line).encode())
        self.connection.finish()
        return [json.loads(line) for line in self.output.getvalue().splitlines()]


def ordered(answers: list[Json]) -> list[Json]:
    return sorted(answers, key=lambda answer: str(answer["id"]))


@pytest.mark.filterwarnings("ignore")
class TestLikeTheSdk:
    """Versions, capabilities, instructions, annotations, results, error codes and messages are those of the SDK."""

    @pytest.mark.parametrize("conversation", HANDSHAKE, ids=lambda conversation: json.dumps(conversation[-1])[-60:])
    def test_handshake_era(self, conversation: list[Json]) -> None:
        assert ordered(Conversation().send(*conversation)) == ordered(by_sdk(conversation))

    @pytest.mark.parametrize("conversation", MODERN, ids=lambda conversation: json.dumps(conversation[-1])[-60:])
    def test_modern_era(self, conversation: list[Json]) -> None:
        assert ordered(Conversation().send(*conversation)) == ordered(by_sdk(conversation))


class TestLines:
    """A line that is no message gets an error, with the id of its request if it has one."""

    @pytest.mark.parametrize(
        ("line", "code", "id"),
        [
            (b"garbage", -32700, None),
            (b"\xff\xfe", -32700, None),
            (b'{"jsonrpc": "2.0", "id": 1, "method"', -32700, None),
            (b"[" * 100_000, -32700, None),
            (b'{"id": 7, "method": "x", "params": ' + b"[" * 300 + b"]" * 300 + b"}", -32700, 7),
            (b"[1, 2]", -32600, None),
            (b'"text"', -32600, None),
            (b"null", -32600, None),
            (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', -32600, None),
            (b'{"id": 1, "method": "ping"}', -32600, 1),
            (b'{"jsonrpc": "1.0", "id": "a", "method": "ping"}', -32600, "a"),
            (b'{"jsonrpc": "2.0", "id": 1}', -32600, None),
            (b'{"jsonrpc": "2.0", "id": 1, "method": 3}', -32600, 1),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}', -32600, 1),
            (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"}', -32600, 1),
            (b'{"jsonrpc": "2.0", "id": 1, "result": 3}', -32600, None),
        ],
    )
    def test_refused(self, line: bytes, code: int, id: Any) -> None:
        (answer,) = Conversation().send(line)
        assert (answer["error"]["code"], answer["id"]) == (code, id)

    @given(
        st.binary()
        | st.text().map(str.encode)
        | st.builds(
            lambda id, params, depth: f'{{"id": {id}, "method": "x", "params": {params}{"[" * depth}'.encode(),
            st.text('0123456789-.e"\\ud8a', max_size=8),
            st.text('{}[]",:1', max_size=20),
            st.sampled_from([0, 250]),
        )
    )
    def test_any_line(self, line: bytes) -> None:
        """No line ends the conversation."""
        answers = Conversation().send(line.replace(b"\n", b" "), ask("last", "ping"))
        assert answers[-1] == {"jsonrpc": "2.0", "id": "last", "result": {}}

    @pytest.mark.parametrize("id", [b"null", b"true", b"1.5", b"[1]"])
    def test_a_request_without_a_usable_id_is_a_notification(self, id: bytes) -> None:
        assert Conversation().send(b'{"jsonrpc": "2.0", "id": ' + id + b', "method": "ping"}') == []

    @pytest.mark.parametrize("line", [b"", b"  \r"])
    def test_blank(self, line: bytes) -> None:
        assert Conversation().send(line) == []

    def test_half_a_character_is_replaced(self) -> None:
        line = b'{"jsonrpc": "2.0", "id": "\\ud83d", "method": "pi\xed\xa0\xbdng"}'
        (answer,) = Conversation().send(line)
        assert (answer["id"], answer["error"]["data"]) == ("?", "pi\ufffd\ufffd\ufffdng")

    def test_numbers_that_only_python_reads(self) -> None:
        call = ask(1, "tools/call", name="echo", arguments={"big": 10**30})
        answers = Conversation().send(*READY, json.dumps(call).replace('"big"', '"n": NaN, "big"').encode())
        assert answers[-1]["result"]["structuredContent"]["given"]["big"] == 10**30


class TestCancellation:
    """A cancelled call is not answered, whether it runs or waits; its id may come as text."""

    @pytest.mark.parametrize("id", [1, "1"])
    def test_not_answered(self, id: Any) -> None:
        running, release = threading.Event(), threading.Event()

        def wait(arguments: Arguments) -> Reply:
            running.set()
            release.wait(60)
            return Reply.of({})

        tool = Tool(name="echo", description="-", input=lambda: {"type": "object"}, handler=wait)
        conversation = Conversation(lambda name: Toolset(name=name, tools=(tool,)))
        conversation.send(*READY)
        conversation.connection.receive(json.dumps(ask(1, "tools/call", name="echo")).encode())
        assert running.wait(60)
        answers = conversation.send(note("notifications/cancelled", requestId=id), ask(2, "ping"))
        release.set()

        assert [answer["id"] for answer in answers] == ["init", 2]
