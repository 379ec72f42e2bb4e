"""Wrong arguments, and what the tools say of themselves."""

from __future__ import annotations

import shutil
from itertools import product
from typing import Any

import jsonschema
import pytest

from backstory.library import Library
from tests.conversation_world import Session, World

SESSION = Session("s")
TOOLS = ("search_conversations", "list_conversations", "read_turn", "read_conversation")
ENOUGH: dict[str, dict[str, Any]] = {
    "search_conversations": {"query": "hello"},
    "list_conversations": {},
    "read_turn": {"session_id": SESSION.id, "turn_number": 0},
    "read_conversation": {"session_id": SESSION.id},
}
NUMBERS = {
    "search_conversations": ["limit"],
    "list_conversations": ["limit"],
    "read_turn": ["turn_number"],
    "read_conversation": ["offset", "limit"],
}
TEXTS = {
    "search_conversations": ["query", "session_id", "project"],
    "list_conversations": ["project"],
    "read_turn": ["session_id"],
    "read_conversation": ["session_id"],
}


def refused(world: World, tool: str, arguments: dict[str, Any]) -> str:
    answer = world.ask(tool, **arguments)
    assert list(answer) == ["error"]
    error: str = answer["error"]
    return error


class TestWrong:
    """An answer that says which argument and why; never anything else."""

    def test_no_number(self, world: World) -> None:
        """The error names the argument, and the type that it has."""
        kinds = {"NoneType": "null", "list": "array", "dict": "object"}
        arguments = [(tool, name) for tool in TOOLS for name in NUMBERS[tool]]
        for (tool, name), value in product(arguments, (True, 1.0, 1.5, "1", [1], {}, None)):
            kind = kinds.get(type(value).__name__, type(value).__name__)
            error = refused(world, tool, {**ENOUGH[tool], name: value})
            assert error.startswith(f"{name}: expected int, got {kind}")
            assert ("sent as a string" in error) == isinstance(value, str)

    def test_no_text(self, world: World) -> None:
        """Likewise where a text is expected."""
        arguments = [(tool, name) for tool in TOOLS for name in TEXTS[tool]]
        for (tool, name), value in product(arguments, (True, 1, ["a"], {"a": 1})):
            assert refused(world, tool, {**ENOUGH[tool], name: value}).startswith(f"{name}: expected str")

    def test_limit_too_small(self, world: World) -> None:
        """A page has one entry at least."""
        limited = [tool for tool in TOOLS if "limit" in NUMBERS[tool]]
        for tool, value in product(limited, (0, -1, -(10**30))):
            assert refused(world, tool, {**ENOUGH[tool], "limit": value}) == "limit: expected int >= 1"

    def test_offset_too_small(self, world: World) -> None:
        arguments = {"session_id": SESSION.id, "offset": -1}

        assert refused(world, "read_conversation", arguments) == "offset: expected int >= 0"

    def test_empty_query(self, world: World) -> None:
        """Blanks are no query."""
        for query in ("", " ", "\n\t"):
            assert refused(world, "search_conversations", {"query": query}) == "query must not be empty"

    def test_unknown_field(self, world: World) -> None:
        """A field that the tool does not have is not passed over."""
        for tool, name in product(TOOLS, ("n", "Limit", "sessionId", "", "\ud800", "a\x1bb")):
            assert refused(world, tool, {**ENOUGH[tool], name: 1}).startswith("unknown field: ")

    def test_missing(self, world: World) -> None:
        """The error names what is required."""
        for tool in TOOLS:
            for missing in ENOUGH[tool]:
                arguments = {name: value for name, value in ENOUGH[tool].items() if name != missing}
                assert refused(world, tool, arguments) == f"{missing} is required"

    def test_null_is_no_filter(self, world: World) -> None:
        world.read(Session("s").prompt("hello"))

        assert len(world.search("hello", session_id=None, project=None)) == 1
        assert len(world.list(project=None)) == 1


class TestTools:
    """Descriptions of the tools for agents."""

    def test_names_and_defaults(self, world: World) -> None:
        tools = world.library.toolset("conversations").tools

        assert tuple(tool.name for tool in tools) == TOOLS
        assert {
            tool.name: {name: field.get("default", "-") for name, field in tool.input_schema["properties"].items()}
            for tool in tools
        } == {
            "search_conversations": {"query": "-", "limit": 10, "session_id": None, "project": None},
            "list_conversations": {"project": None, "limit": 50},
            "read_turn": {"session_id": "-", "turn_number": "-"},
            "read_conversation": {"session_id": "-", "offset": 0, "limit": 10},
        }

    def test_schemas(self, world: World) -> None:
        """They are valid, flat, and say what each argument is for; nothing is changed by calling."""
        for tool in world.library.toolset("conversations").tools:
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            jsonschema.Draft202012Validator.check_schema(tool.output_schema)
            assert all(field["description"] for field in tool.input_schema["properties"].values())
            assert tool.input_schema["additionalProperties"] is False
            assert (tool.read_only, tool.destructive, tool.idempotent) == (True, False, True)
            jsonschema.validate(ENOUGH[tool.name], tool.input_schema)

    def test_empty_archive(self, world: World) -> None:
        """Nothing was ever read: nothing is found, at once."""
        assert (world.search("hello"), world.list()) == ([], [])
        assert "Unknown session_id" in refused(world, "read_conversation", ENOUGH["read_conversation"])

    @pytest.mark.parametrize("prepare_home", ["local"], indirect=True)
    def test_an_index_that_is_gone(self, world: World) -> None:
        """Nothing is found until a sync has built it again."""
        world.read(Session("s").prompt("hello"))
        shutil.rmtree(world.home / "backstory" / "index")

        assert world.search("hello") == []
        world.library.sync()
        assert len(world.search("hello")) == 1

    @pytest.mark.parametrize("prepare_home", ["local"], indirect=True)
    def test_a_broken_archive(self, world: World) -> None:
        """It says so, without details."""
        library: Library = world.library
        library.archive.close()
        (world.home / "backstory" / "archive.db").write_bytes(b"not a database, not at all" * 1_000)

        reply = library.reply("list_conversations")

        assert reply.is_error
        assert reply.data == {"error": "list_conversations failed unexpectedly; `backstory doctor` may tell why"}
