"""The plugin for Claude Code, the skill and the instructions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from backstory import __version__
from backstory.setup import instructions_text, skill_text

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "plugins" / "backstory"


def frontmatter(path: Path) -> dict[str, Any]:
    _, head, _ = path.read_text("utf-8").split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(head)
    return found


class TestPlugin:
    def test_the_marketplace_has_it(self) -> None:
        """Under a path that exists, with the version of the program."""
        marketplace = json.loads((ROOT / ".claude-plugin" / "marketplace.json").read_bytes())
        manifest = json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_bytes())

        assert [ROOT / plugin["source"] for plugin in marketplace["plugins"]] == [PLUGIN]
        assert (manifest["name"], manifest["version"]) == ("backstory", __version__)

    def test_it_starts_the_server(self) -> None:
        """By the name of the program: a plugin is the same on every machine."""
        servers = json.loads((PLUGIN / ".mcp.json").read_bytes())["mcpServers"]

        assert servers == {"backstory": {"command": "backstory", "args": ["mcp"]}}

    def test_commands_describe_themselves(self) -> None:
        """And take what the user types."""
        commands = sorted((PLUGIN / "commands").glob("*.md"))

        assert [path.stem for path in commands] == ["capsule", "recall"]
        for path in commands:
            assert frontmatter(path)["description"]
            assert "$ARGUMENTS" in path.read_text("utf-8")


class TestSkill:
    def test_is_the_same_everywhere(self) -> None:
        """In the plugin and in the package."""
        assert (PLUGIN / "skills" / "backstory" / "SKILL.md").read_text("utf-8") == skill_text()

    def test_follows_the_format(self) -> None:
        """A name like its folder, and a description that says when to use it, within the limits."""
        head = frontmatter(PLUGIN / "skills" / "backstory" / "SKILL.md")

        assert head["name"] == "backstory"
        assert "Use when" in head["description"]
        assert len(head["description"]) <= 1024

    def test_names_tools_that_exist(self) -> None:
        """Those that the server offers by default."""
        for name in ("search_sessions", "open", "moss.store"):
            assert f"`{name}`" in skill_text()
            assert f"`{name}`" in instructions_text()
