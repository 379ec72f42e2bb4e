"""What an agent is offered when it connects: the real toolsets, through a real client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from backstory.faces.mcp import build_server
from backstory.library import TOOLSETS, Library

DEFAULT = tuple(name for name in ("history", "capsules", "traces") if name in TOOLSETS)


def offered(home: Path, names: tuple[str, ...], era: str = "auto") -> tuple[str, dict[str, Any]]:
    async def main() -> tuple[str, dict[str, Any]]:
        with Library(home) as library:
            async with Client(build_server(library, names), mode=era) as client:
                tools = (await client.list_tools()).tools
                return client.instructions or "", {tool.name: tool for tool in tools}

    return anyio.run(main)


class TestInstructions:
    @pytest.mark.parametrize("names", [DEFAULT, TOOLSETS, *((name,) for name in TOOLSETS)], ids=",".join)
    @pytest.mark.parametrize("era", ["legacy", "auto"])
    def test_fit_as_a_whole(self, tmp_path: Path, names: tuple[str, ...], era: str) -> None:
        """At most 2,000 characters, and nothing of what the toolsets say is lost."""
        text, _ = offered(tmp_path, names, era)

        assert len(text) <= 2000
        with Library(tmp_path) as library:
            for name in names:
                assert library.toolset(name).instructions.strip() in text

    def test_say_when_to_search(self, tmp_path: Path) -> None:
        """The first thing an agent must know."""
        text, _ = offered(tmp_path, DEFAULT)

        assert "search_sessions" in text


class TestTools:
    @pytest.mark.parametrize("era", ["legacy", "auto"])
    def test_have_object_schemas(self, tmp_path: Path, era: str) -> None:
        """What clients of either era insist on."""
        _, tools = offered(tmp_path, TOOLSETS, era)

        for name, tool in tools.items():
            assert tool.input_schema["type"] == "object", name
            assert tool.output_schema is None or tool.output_schema["type"] == "object", name
            assert tool.description, name

    def test_do_not_reach_out(self, tmp_path: Path) -> None:
        """No tool's world is open; none both reads only and destroys; those of history change nothing."""
        _, tools = offered(tmp_path, TOOLSETS)

        for name, tool in tools.items():
            assert tool.annotations.open_world_hint is False, name
            assert not (tool.annotations.read_only_hint and tool.annotations.destructive_hint), name
        for name in ("search_sessions", "open", "list_sessions"):
            assert tools[name].annotations.read_only_hint is True
