"""The frame of all capsule tools: names, annotations, schemas, errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from backstory.config import CapsuleSettings
from backstory.library import Library
from backstory.toolsets.base import Toolset
from backstory.toolsets.capsules.tools import toolset
from tests.capsule_world import GOOD, World, capsule_text

ELEVEN = (
    "store",
    "fetch",
    "fetch_many",
    "update",
    "delete",
    "latest",
    "list",
    "inventory",
    "export",
    "import",
    "purge",
)
MORE = ("search", "restore", "append", "compose", "history")
READING = {"fetch", "fetch_many", "latest", "list", "inventory", "search", "history"}


@pytest.fixture
def tools(tmp_path: Path) -> Toolset:
    return toolset(tmp_path, CapsuleSettings())


class TestNames:
    def test_are_those_of_the_specification(self, tools: Toolset) -> None:
        """The eleven come first, in their order; the others follow."""
        assert [tool.name for tool in tools.tools] == [f"moss.{verb}" for verb in (*ELEVEN, *MORE)]

    def test_have_other_spellings(self, served_world: World) -> None:
        """Clients that cannot send a dot, or know later versions of Moss, are understood."""
        for name in ("moss_store", "capsule_store", "capsule.store"):
            assert not served_world.call(name, {"capsule_text": GOOD, "name": name}).is_error
        assert served_world.ok("inventory")["pagination"]["total"] == 3

    def test_are_named_with_underscores_everywhere(self, tmp_path: Path) -> None:
        """Descriptions, schemas and instructions use the listed names."""
        listed = toolset(tmp_path, CapsuleSettings(underscore_names=True))

        assert "moss." not in listed.instructions
        for tool in listed.tools:
            assert "moss." not in tool.description + str(tool.input_schema)

    def test_can_be_listed_with_underscores(self, tmp_path: Path) -> None:
        """A setting for clients that refuse dots; the dotted names still work."""
        tools = toolset(tmp_path, CapsuleSettings(underscore_names=True)).tools

        assert [tool.name for tool in tools] == [f"moss_{verb}" for verb in (*ELEVEN, *MORE)]
        assert all(f"moss.{tool.name.removeprefix('moss_')}" in tool.aliases for tool in tools)
        assert not any("moss." in tool.description for tool in tools)

    def test_never_clash(self, tmp_path: Path) -> None:
        """No name or alias stands for two tools, with any other toolset in the same server."""
        library = Library(tmp_path)
        names = [name for tool in library.toolset("capsules").tools for name in (tool.name, *tool.aliases)]

        assert len(names) == len(set(names))


class TestAnnotations:
    def test_say_what_a_tool_may_do(self, tools: Toolset) -> None:
        """Reading tools are read-only; deleting and purging are destructive, nothing else is."""
        assert {tool.name for tool in tools.tools if tool.read_only} == {f"moss.{verb}" for verb in READING}
        assert {tool.name for tool in tools.tools if tool.destructive} == {"moss.delete", "moss.purge"}


class TestDescriptions:
    def test_tell_how_to_distill(self, tmp_path: Path) -> None:
        """The description alone tells an agent the sections, the limit, and the parts to keep."""
        tools = {tool.name: tool for tool in toolset(tmp_path, CapsuleSettings(max_chars=4321)).tools}
        description = tools["moss.store"].description

        for section in ("Objective", "Current status", "Decisions", "Next actions", "Key locations", "Open questions"):
            assert f"## {section}" in description
        assert "State, not story".lower() in description.lower()
        assert "4321" in description
        assert "never drop decisions or next actions" in description
        assert "as for moss.store" in tools["moss.update"].description

    def test_every_argument_is_described(self, tools: Toolset) -> None:
        """The list describes the fields of the references in it."""
        for tool in tools.tools:
            for name, schema in tool.input_schema["properties"].items():
                assert schema.get("description"), f"{tool.name} {name}"


class TestSchemas:
    def test_are_valid_and_self_contained(self, tools: Toolset) -> None:
        """No reference to follow, no field beyond those that are listed."""
        for tool in tools.tools:
            for schema in (tool.input_schema, tool.output_schema):
                assert schema is not None
                jsonschema.Draft202012Validator.check_schema(schema)
                assert "$ref" not in json.dumps(schema)
            assert tool.input_schema["additionalProperties"] is False

    def test_answers_keep_to_them(self, tmp_path: Path, tools: Toolset) -> None:
        """Every success of every tool is what its output schema says."""
        by_verb = {tool.name.removeprefix("moss."): tool for tool in tools.tools}

        def check(verb: str, **arguments: Any) -> dict[str, Any]:
            tool = by_verb[verb]
            jsonschema.validate(arguments, tool.input_schema)
            reply = tool.handler(arguments)
            assert not reply.is_error, reply.text
            assert tool.output_schema is not None
            jsonschema.validate(reply.data, tool.output_schema)
            return reply.data

        check("store", capsule_text=GOOD, name="a", tags=["t"], source="s", run_id="r", phase="p", role="x")
        check("store", capsule_text=GOOD, source_session="session:x")
        check("fetch", name="a")
        check("fetch_many", items=[{"name": "a"}, {"name": "missing"}])
        check("update", name="a", title="b")
        check("append", name="a", section="Decisions", content="- c")
        check("latest")
        check("latest", workspace="empty")
        check("list")
        check("inventory", tag="t")
        check("search", query="work")
        check("compose", items=[{"name": "a"}], store_as={"name": "both"})
        check("history", name="a")
        check("history", name="a", version=1)
        exported = check("export")
        check("import", path=exported["path"])
        check("delete", name="a")
        check("restore", name="a")
        check("purge")


class TestSuccess:
    def test_is_the_object_twice(self, served_world: World) -> None:
        """As structured content and as the same object in compact JSON."""
        answer = served_world.call("moss.store", {"capsule_text": GOOD, "name": "a"})

        assert json.loads(answer.text) == answer.data
        assert ": " not in answer.text
        assert "\n" not in answer.text


class TestWrongArguments:
    CASES: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("fetch", {"name": "a", "nmae": "b"}, "nmae"),
        ("fetch", {"name": 5}, "name"),
        ("fetch", {"name": "a", "include_text": "yes"}, "include_text"),
        ("list", {"limit": "20"}, "limit"),
        ("list", {"limit": 2.5}, "limit"),
        ("list", {"limit": True}, "limit"),
        ("list", {"offset": []}, "offset"),
        ("inventory", {"tag": ["a"]}, "tag"),
        ("store", {"capsule_text": GOOD, "tags": "a"}, "tags"),
        ("store", {"capsule_text": GOOD, "tags": ["a", 1]}, "tags"),
        ("store", {"capsule_text": GOOD, "mode": "overwrite"}, "mode"),
        ("store", {"capsule_text": {"objective": 1}}, "capsule_text"),
        ("import", {"path": "x.jsonl", "mode": "merge"}, "mode"),
        ("import", {"path": "x.jsonl", "format": "csv"}, "format"),
        ("purge", {"older_than_days": "7"}, "older_than_days"),
        ("purge", {"older_than_days": -1}, "older_than_days"),
        ("compose", {"items": [{"name": "a"}], "format": "html"}, "format"),
        ("fetch_many", {"items": "a"}, "items"),
        ("fetch_many", {}, "items"),
        ("search", {}, "query"),
        ("import", {}, "path"),
        ("append", {"name": "a"}, "section"),
    )

    def test_name_the_field(self, served_world: World) -> None:
        """Unknown arguments, wrong types and unknown values are refused with the field they are in."""
        for verb, arguments, field in self.CASES:
            error = served_world.refused(verb, **arguments)

            assert (error["code"], error["status"]) == ("INVALID_REQUEST", 400), (verb, arguments)
            assert error["details"]["field"].startswith(field)
            assert field in error["message"]

    def test_null_is_absent(self, world: World) -> None:
        """Some clients send every field they know."""
        world.ok("store", capsule_text=GOOD, name="a", title=None, tags=None, mode=None, allow_thin=None)

        assert world.ok("fetch", id=None, name="a", workspace=None, include_text=None)["title"] == "a"
        assert world.refused("update", name="a", title=None)["code"] == "INVALID_REQUEST"

    def test_half_a_surrogate_pair(self, tmp_path: Path) -> None:
        """Text that is not Unicode is a wrong argument, and is not echoed."""
        call = Library(tmp_path).reply
        for arguments in ({"capsule_text": "\ud800"}, {"\ud800": 1}, {"capsule_text": GOOD, "tags": ["\udfff"]}):
            reply = call("moss.store", arguments)
            assert reply.is_error
            assert reply.data["error"]["code"] == "INVALID_REQUEST"
            reply.text.encode()

    def test_something_else_than_an_object(self, tools: Toolset) -> None:
        """The handlers never raise."""
        for given in (None, [], "x", 3):
            reply = tools.tools[0].handler(given)  # type: ignore[arg-type]
            assert reply.data["error"]["code"] == "INVALID_REQUEST"

    def test_bottomless_nesting(self, tools: Toolset) -> None:
        """Arguments nested deeper than a parser goes are refused."""
        nested: list[Any] = []
        for _ in range(5000):
            nested = [nested]
        assert tools.tools[0].handler({"tags": nested}).data["error"]["code"] == "INVALID_REQUEST"


class TestInternal:
    def test_shows_no_internals(self, served_world: World) -> None:
        """A broken store is named with its cure: no path, no SQL, no exception."""
        (served_world.home / "capsules.db").write_bytes(b"this is no database, " * 100)
        error = served_world.refused("inventory")

        assert error == {
            "code": "INTERNAL",
            "message": "capsules.db is damaged: restore it from a backup, or move it away and import an export "
            "(backstory capsule import FILE)",
            "status": 500,
        }

    def test_a_store_of_a_later_version(self, world: World) -> None:
        """It is refused, not changed."""
        import sqlite3
        from contextlib import closing

        with closing(sqlite3.connect(world.home / "capsules.db")) as connection:
            connection.execute("PRAGMA user_version = 99")

        assert world.refused("store", capsule_text=GOOD)["code"] == "INTERNAL"


class TestLimits:
    def test_labels_are_short(self, world: World) -> None:
        """Listings show them, so they are no place for text."""
        for field in ("name", "workspace", "title", "source", "run_id", "phase", "role"):
            world.ok("store", capsule_text=GOOD, mode="replace", **{field: "x" * 1000})
            error = world.refused("store", capsule_text=GOOD, **{field: "x" * 1001})

            assert error["details"]["field"] == field

    def test_the_largest_capsule_is_set(self, new_world: Callable[..., World]) -> None:
        """The limit is set in `config.toml` and counts code points."""
        world = new_world(settings="max_chars = 400")
        text = capsule_text()
        fitting = text + "\U0001f600" * (400 - len(text))

        world.ok("store", capsule_text=fitting)
        error = world.refused("store", capsule_text=fitting + "x")
        assert error["details"] == {"max_chars": 400, "actual_chars": 401}
