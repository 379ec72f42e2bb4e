"""`backstory setup` from the terminal: what it shows, asks, changes and takes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from backstory.setup.server import own_command
from tests.transcripts import Transcript

from .conftest import Program

CURSOR = '{"mcpServers": {"docs": {"command": "docs"}}}\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with Claude Code, which has a session, and Cursor; no program of an agent is installed."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "BACKSTORY_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "no-programs"))
    Transcript("setup", start_ms=1_790_000_000_000).prompt("Fix the flaky checkout test").answer("Fixed.").write(
        tmp_path
    )
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor/mcp.json").write_text(CURSOR)
    return tmp_path


class TestSetup:
    def test_from_install_to_search(self, home: Path, backstory: Program) -> None:
        """Agents are wired and tested, sessions read, and a search shows one; run twice it changes nothing."""
        done = backstory("setup", "--yes", "--json")

        assert done.code == 0
        assert {agent["agent"] for agent in done.json["agents"]} == {"claude-code", "cursor"}
        for change in done.json["changes"]:
            assert change["action"] == "added"
            assert change["probe"]["works"], change["probe"]
        assert done.json["sync"]["sessions"] == 1
        assert done.json["search"]["hit"]["session"]["title"] == "Fix the flaky checkout test"
        assert str(own_command()[0]) in (home / ".cursor/mcp.json").read_text()

        again = backstory("setup", "--yes", "--json")
        assert {change["action"] for change in again.json["changes"]} == {"unchanged"}

        removed = backstory("setup", "--remove", "--yes")
        assert removed.code == 0
        assert (home / ".cursor/mcp.json").read_text() == CURSOR
        assert not (home / ".claude.json").exists()
        assert backstory("setup", "--remove", "--yes").out == "Nothing to take back.\n"

    def test_dry_run(self, home: Path, backstory: Program) -> None:
        """Nothing is written."""
        done = backstory("setup", "--dry-run", "--hooks", "--skill")

        assert done.code == 0
        assert "Would write Cursor: the MCP server, in ~/.cursor/mcp.json" in done.out
        assert "Would write Claude Code: hooks, in ~/.claude/settings.json" in done.out
        assert (home / ".cursor/mcp.json").read_text() == CURSOR
        assert [path for path in (home / ".backstory").rglob("*") if path.is_file()] == []

    def test_dry_run_foresees_what_is_refused(self, home: Path, backstory: Program) -> None:
        """The exit code says so, as that of the run itself does."""
        (home / ".cursor/mcp.json").chmod(0o400)
        (home / ".codex").mkdir(mode=0o500)
        done = backstory("setup", "--dry-run")

        assert done.code == 1
        assert "~/.cursor/mcp.json is left as it is: it is read-only" in done.err
        assert f"config.toml is left as it is: the folder {home / '.codex'} is read-only" in done.err

    def test_asks(self, home: Path, backstory: Program) -> None:
        """Without a terminal it wants --yes."""
        done = backstory("setup")

        assert done.code == 2
        assert "--yes" in done.err
        assert (home / ".cursor/mcp.json").read_text() == CURSOR

    def test_some_agents(self, home: Path, backstory: Program) -> None:
        """Only those named, and at the end a sentence to say to them; others are an error."""
        done = backstory("setup", "--yes", "--agents", "cursor")
        assert done.code == 0
        assert "Now say to your agent: Search Backstory" in done.out
        assert not (home / ".claude.json").exists()
        assert backstory("setup", "--yes", "--agents", "codex").code == 1
        assert backstory("setup", "--yes", "--agents", "nonsense").code == 2

    def test_a_broken_file(self, home: Path, backstory: Program) -> None:
        """It is named, left as it is, and the exit code is 1."""
        (home / ".cursor/mcp.json").write_text("{broken")

        done = backstory("setup", "--yes", "--agents", "cursor")

        assert done.code == 1
        assert "~/.cursor/mcp.json is left as it is" in done.out
        assert (home / ".cursor/mcp.json").read_text() == "{broken"

    def test_hooks_skill_and_instructions(self, home: Path, backstory: Program) -> None:
        """Only where they are asked for."""
        (home / ".codex").mkdir()

        done = backstory("setup", "--yes", "--hooks", "--skill", "--instructions", "--json")

        assert done.code == 0
        assert "hook session-start" in (home / ".claude/settings.json").read_text()
        assert (home / ".claude/skills/backstory/SKILL.md").is_file()
        assert "search_sessions" in (home / ".codex/AGENTS.md").read_text()
        assert backstory("setup", "--remove", "--yes").code == 0
        assert list((home / ".codex").iterdir()) == []
        assert not (home / ".claude/skills").exists()
