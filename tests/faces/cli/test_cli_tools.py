"""`tools`, `call` and what `mcp` makes of its arguments."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from backstory.library import TOOLSETS

from .conftest import Program, World


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[str, ...], str | None]]:
    """The toolsets and patterns of the calls that would serve."""
    calls: list[tuple[tuple[str, ...], str | None]] = []

    def serve(library: object, names: tuple[str, ...], *, pattern: str | None = None) -> None:
        calls.append((names, pattern))

    monkeypatch.setattr("backstory.faces.mcp.serve_stdio", serve)
    return calls


class TestTools:
    def test_shows_names_and_arguments(self, world: World, backstory: Program) -> None:
        """Each tool with what it takes."""
        out = backstory("tools").out

        assert "  search_sessions\n" in out
        assert "      query string, required" in out
        assert "      n_hits integer or null" in out

    def test_json_has_the_schemas(self, world: World, backstory: Program) -> None:
        """Everything an MCP client receives, and the toolset."""
        tools = {tool["name"]: tool for tool in backstory("tools", "--json").json["tools"]}

        assert {tool["toolset"] for tool in tools.values()} == set(TOOLSETS)
        assert tools["open"]["read_only"] is True
        assert tools["open"]["input_schema"]["required"] == ["id"]
        assert tools["open"]["output_schema"]["type"] == "object"

    def test_cost_is_the_table_of_the_docs(self, world: World, backstory: Program) -> None:
        """docs/mcp.md has it as the command prints it."""
        table = backstory("tools", "--cost").out
        page = Path(__file__).parents[3] / "docs" / "mcp.md"

        assert table in page.read_text("utf-8"), "run `backstory tools --cost` and put its table into docs/mcp.md"

    def test_cost_of_the_default_is_low(self, world: World, backstory: Program) -> None:
        """An agent carries it in every prompt."""
        costs = backstory("tools", "--cost", "--json").json["costs"]

        assert costs["default"]["total"] <= 2_500
        assert costs["default"]["total"] == sum(
            costs["default"][part] for part in ("definitions", "output_schemas", "instructions")
        )


class TestCall:
    def test_with_an_argument(self, world: World, backstory: Program) -> None:
        """Prints the structured result, which is JSON anyway."""
        result = backstory("call", "search_sessions", '{"query": "login", "n_hits": 1}')

        assert (result.code, result.err) == (0, "")
        assert result.json["request"]["n_hits"] == 1
        assert result.json["data"]["result_count"] == 1

    @pytest.mark.parametrize("data", [b"\xff\xfe", b'{"query": "\xe9"}', b"[" * 5000])
    def test_with_stdin_that_is_no_text(
        self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch, data: bytes
    ) -> None:
        """Wrong usage, like anything else that is not JSON."""
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))

        result = backstory("call", "search_sessions")

        assert (result.code, result.out) == (2, "")
        assert "the arguments are not" in result.err

    @pytest.mark.parametrize("arguments", [[], ["-"]])
    def test_with_stdin(
        self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
    ) -> None:
        """The arguments may come through a pipe."""
        monkeypatch.setattr("sys.stdin", io.StringIO('{"query": "login"}'))

        assert backstory("call", "search_sessions", *arguments).json["request"]["query"] == "login"

    def test_without_arguments(self, world: World, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nothing on stdin is an empty object, and the tool says what is missing."""
        monkeypatch.setattr("sys.stdin", io.StringIO(""))

        result = backstory("call", "open")

        assert result.code == 2
        assert result.json["error"]["code"] == "invalid_request"

    def test_not_found(self, world: World, backstory: Program) -> None:
        """The error of the tool is the output, and the exit code shows it."""
        result = backstory("call", "open", json.dumps({"id": "event:AAAAAAAAAAAAAAAAAAAAAA"}))

        assert (result.code, result.json["error"]["code"]) == (1, "not_found")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["open", "{"], "the arguments are not JSON"),
            (["open", "[1]"], "the arguments must be a JSON object"),
            (["open", '{"id": "\\ud800"}'], "the arguments are not JSON"),
            (["open_", "{}"], "no tool 'open_'; did you mean open?"),
            (["nope", "{}"], "no tool 'nope'; backstory tools shows them all"),
        ],
    )
    def test_wrong_usage(self, world: World, backstory: Program, arguments: list[str], message: str) -> None:
        """Wrong arguments are refused before the tool is called."""
        result = backstory("call", *arguments)

        assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)
        assert message in result.err


class TestMcp:
    @pytest.mark.parametrize(
        ("arguments", "names"),
        [
            ([], ("default",)),
            (["--tools", "history"], ("history",)),
            (["--tools", "capsules, history,history"], ("capsules", "history")),
            (["--tools=all"], ("all",)),
            (["--tools", "default,live"], ("default", "live")),
            (["--tools", "capsules-all"], ("capsules-all",)),
        ],
    )
    def test_chooses_toolsets(
        self, world: World, backstory: Program, served: list[Any], arguments: list[str], names: tuple[str, ...]
    ) -> None:
        """By name, in the order given, each once; by default the most useful tools of some."""
        assert backstory("mcp", *arguments) == (0, "", "")
        assert served == [(names, None)]

    @pytest.mark.parametrize("pattern", ["*", "-home-me-work*", "--home--x", "-t", "-home-json"])
    def test_passes_the_pattern(
        self,
        world: World,
        backstory: Program,
        served: list[Any],
        monkeypatch: pytest.MonkeyPatch,
        pattern: str,
    ) -> None:
        """Also one that looks like an option."""
        monkeypatch.setattr("backstory.library.TOOLSETS", ("history", "conversations"))

        assert backstory("mcp", "--tools", "conversations", pattern).code == 0
        assert served == [(("conversations",), pattern)]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--tools", "histry"], "no toolset 'histry'; there are history"),
            (["--tools", ","], "no toolset named; there are history"),
            (["*"], "unexpected '*': a PATTERN goes with --tools conversations"),
            (["--tool", "history"], "unexpected"),
        ],
    )
    def test_wrong_usage(
        self, world: World, backstory: Program, served: list[Any], arguments: list[str], message: str
    ) -> None:
        """Nothing is served."""
        result = backstory("mcp", *arguments)

        assert (result.code, result.out, served) == (2, "", [])
        assert message in result.err

    def test_json_is_a_clients_configuration(self, world: World, backstory: Program, served: list[Any]) -> None:
        """Ready to be pasted: an agent that starts it has a search path of its own, so the path is absolute."""
        server = backstory("mcp", "--json", "--tools", "history").json["mcpServers"]["backstory"]

        assert server["args"] == ["mcp", "--tools", "history"]
        assert Path(server["command"]).is_absolute()
        assert subprocess.run([server["command"], "--version"], check=True, capture_output=True).stdout
        assert served == []
