"""What an agent is offered when it connects: the real toolsets, through a real client."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from backstory.faces.http.mcp import build_server
from backstory.faces.offer import CHOICES, DEFAULT, make_offer
from backstory.library import TOOLSETS, Library

ELEVEN = [
    f"moss.{verb}" for verb in "store fetch fetch_many update delete latest list inventory export import purge".split()
]


def offered(home: Path, names: tuple[str, ...], era: str = "auto") -> tuple[str, dict[str, Any]]:
    async def main() -> tuple[str, dict[str, Any]]:
        with Library(home) as library:
            async with Client(build_server(library, names), mode=era) as client:
                tools = (await client.list_tools()).tools
                return client.instructions or "", {tool.name: tool for tool in tools}

    return anyio.run(main)


class TestInstructions:
    @pytest.mark.parametrize("names", [(name,) for name in CHOICES], ids=",".join)
    @pytest.mark.parametrize("era", ["legacy", "auto"])
    def test_fit_as_a_whole(self, tmp_path: Path, names: tuple[str, ...], era: str) -> None:
        """At most 2,000 characters, and nothing of what the toolsets say is lost."""
        text, _ = offered(tmp_path, names, era)

        assert len(text) <= 2000
        with Library(tmp_path) as library:
            for toolset in make_offer(library, names).toolsets:
                assert toolset.instructions.strip() in text

    def test_say_when_to_search(self, tmp_path: Path) -> None:
        """The first thing an agent must know."""
        text, _ = offered(tmp_path, (DEFAULT,))

        assert "search_sessions" in text

    @pytest.mark.parametrize("name", CHOICES)
    def test_name_no_tool_that_is_not_listed(self, tmp_path: Path, name: str) -> None:
        """Nor do the descriptions of the tools."""
        text, tools = offered(tmp_path, (name,))
        with Library(tmp_path) as library:
            every = {tool.name for toolset in TOOLSETS for tool in library.toolset(toolset).tools}
        words = " ".join([text, *(tool.description for tool in tools.values())])

        assert {word.rstrip(".") for word in re.findall(r"[\w.]+", words)} & every <= {*tools, "open"}


class TestTools:
    def test_of_the_default(self, tmp_path: Path) -> None:
        """Some of each: what an agent uses without being told to."""
        _, tools = offered(tmp_path, (DEFAULT,))

        assert list(tools) == [
            *("search_sessions", "open", "list_sessions"),
            *("moss.store", "moss.fetch", "moss.latest", "moss.search"),
            *("list_traces", "search_traces", "get_trace"),
        ]

    def test_of_named_toolsets(self, tmp_path: Path) -> None:
        """Capsules by name are the eleven of the specification, with those that are used daily."""
        _, tools = offered(tmp_path, ("capsules",))
        _, every = offered(tmp_path, ("capsules-all",))

        assert list(tools) == [*ELEVEN, "moss.search", "moss.append"]
        assert list(every) == [*ELEVEN, *(f"moss.{verb}" for verb in "search restore append compose history".split())]
        assert len(offered(tmp_path, ("all",))[1]) == 32

    def test_of_several_choices(self, tmp_path: Path) -> None:
        """Each tool once, as far as any of them goes."""
        _, tools = offered(tmp_path, (DEFAULT, "traces", "conversations"))

        assert {"search_spans", "moss.store", "read_turn"} <= set(tools)
        assert "moss.purge" not in tools

    @pytest.mark.parametrize("era", ["legacy", "auto"])
    def test_have_object_schemas(self, tmp_path: Path, era: str) -> None:
        """What clients of either era insist on."""
        _, tools = offered(tmp_path, ("all",), era)

        for name, tool in tools.items():
            assert tool.input_schema["type"] == "object", name
            assert tool.output_schema is None or tool.output_schema["type"] == "object", name
            assert tool.description, name

    def test_do_not_reach_out(self, tmp_path: Path) -> None:
        """No tool's world is open; none both reads only and destroys; those of history change nothing."""
        _, tools = offered(tmp_path, ("all",))

        for name, tool in tools.items():
            assert tool.annotations.open_world_hint is False, name
            assert not (tool.annotations.read_only_hint and tool.annotations.destructive_hint), name
        for name in ("search_sessions", "open", "list_sessions"):
            assert tools[name].annotations.read_only_hint is True
