"""Registering the server with agents: found, wired, and taken back to the byte."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from backstory.setup import Additions, FoundAgent, Outcome, Wiring
from backstory.setup.agents import WIRABLE, command_in
from backstory.setup.documents import read_entry
from backstory.setup.files import Journal

COMMAND = ("/opt/backstory/bin/backstory",)
SERVER = (*COMMAND, "mcp")
JSON = '{\n  // mine\n  "theme": "dark",\n  "%s": {\n    "docs": {"command": "docs"}\n  }\n}\n'
# A configuration of each agent, at its place below the home.
CONFIGURATIONS = {
    "claude-code": (".claude.json", '{"numStartups": 3, "mcpServers": {"docs": {"command": "docs"}}}'),
    "codex": (".codex/config.toml", '# mine\nmodel = "gpt-5.4"\n\n[mcp_servers.docs]\ncommand = "docs"\n'),
    "gemini-cli": (".gemini/settings.json", JSON % "mcpServers"),
    "qwen-code": (".qwen/settings.json", JSON % "mcpServers"),
    "opencode": (".config/opencode/opencode.json", JSON % "mcp"),
    "cursor": (".cursor/mcp.json", JSON % "mcpServers"),
    "copilot-chat": (".config/Code/User/mcp.json", JSON % "servers"),
    "copilot-cli": (".copilot/mcp-config.json", '{"mcpServers": {}}\n'),
    "cline": (
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        JSON % "mcpServers",
    ),
    "roo-code": (
        ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
        JSON % "mcpServers",
    ),
    "windsurf": (".codeium/windsurf/mcp_config.json", JSON % "mcpServers"),
    "zed": (".config/zed/settings.json", JSON % "context_servers"),
    "kimi-cli": (".kimi-code/mcp.json", JSON % "mcpServers"),
    "goose": (".config/goose/config.yaml", "# mine\nGOOSE_MODE: auto\nextensions:\n  memory:\n    enabled: true\n"),
    "amp": (".config/amp/settings.json", JSON % "amp.mcpServers"),
    "crush": (".config/crush/crush.json", JSON % "mcp"),
    "continue": (
        ".continue/config.yaml",
        "name: Mine # mine\nmcpServers:\n  - name: docs\n    command: docs\nrules: []\n",
    ),
    "claude-desktop": (".config/Claude/claude_desktop_config.json", JSON % "mcpServers"),
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    for name, text in CONFIGURATIONS.values():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, newline="")
    (tmp_path / ".claude").mkdir()
    return tmp_path


@pytest.fixture(autouse=True)
def bin_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of programs, in which there are none."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def wiring(home: Path) -> Wiring:
    return Wiring(Journal(home / ".backstory"), home=home, environ={"PATH": os.environ["PATH"]}, command=COMMAND)


def additions(journal: Journal, home: Path) -> Additions:
    return Additions(journal, home=home, environ={}, command=COMMAND)


def wire(home: Path, *names: str) -> list[Outcome]:
    wires = wiring(home)
    found = [one for one in wires.find() if not names or one.agent.name in names]
    return [wires.wire(one, target) for one in found for target in one.targets]


def one_of(home: Path, name: str) -> FoundAgent:
    return next(one for one in wiring(home).find() if one.agent.name == name)


def is_wired(home: Path, name: str) -> bool:
    return all(target.state == "wired" for target in one_of(home, name).targets)


def contents(home: Path) -> dict[str, bytes]:
    """Every file below the home but Backstory's own, and every empty folder."""
    return {
        str(path.relative_to(home)): path.read_bytes() if path.is_file() else b"/"
        for path in sorted(home.rglob("*"))
        if ".backstory" not in path.parts and (path.is_file() or not any(path.iterdir()))
    }


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(
        f"#!{sys.executable}\nimport json, os, pathlib, sys\nhome = pathlib.Path({str(folder.parent)!r})\n{script}"
    )
    path.chmod(0o755)


class TestFind:
    def test_every_agent(self, home: Path) -> None:
        """By its folder, at the place where it keeps its servers."""
        found = {one.agent.name: one for one in wiring(home).find()}

        assert set(found) == set(CONFIGURATIONS) == {agent.name for agent in WIRABLE}
        for name, one in found.items():
            assert [target.state for target in one.targets] == ["not wired"], name
            assert one.targets[0].file == home / CONFIGURATIONS[name][0]

    def test_a_program_without_folders(self, tmp_path: Path, bin_folder: Path) -> None:
        """An agent that was installed and never started, with the version it prints."""
        program(bin_folder, "codex", "print('codex-cli 0.166.0')")

        (found,) = wiring(tmp_path).find()

        assert (found.agent.name, found.version) == ("codex", "0.166.0")
        assert found.targets[0].file == tmp_path / ".codex" / "config.toml"

    def test_continue_without_its_configuration(self, tmp_path: Path) -> None:
        """A file of its own in the folder that the extension reads; a configuration that comes later is left alone."""
        (tmp_path / ".continue").mkdir()
        wire(tmp_path)
        file = tmp_path / ".continue/mcpServers/backstory.json"
        assert json.loads(file.read_text())["mcpServers"]["backstory"]["command"] == COMMAND[0]

        (tmp_path / ".continue/config.yaml").write_text("name: Mine\n")

        assert [outcome.action for outcome in wire(tmp_path)] == ["unchanged"]

    def test_nothing(self, tmp_path: Path) -> None:
        """A machine without agents."""
        assert wiring(tmp_path).find() == []


class TestWire:
    def test_every_agent(self, home: Path) -> None:
        """Each file starts the server now, and has what it had before."""
        outcomes = wire(home)

        assert {outcome.action for outcome in outcomes} == {"added"}
        for one in wiring(home).find():
            (target,) = one.targets
            assert target.state == "wired", one.agent.name
            text = target.file.read_text()
            assert command_in(read_entry(text, one.agent.format_of(target.file), one.agent.path)) == SERVER
        for name, text in CONFIGURATIONS.values():
            assert ("// mine" in text) == ("// mine" in (home / name).read_text())
            assert ("docs" in text) == ("docs" in (home / name).read_text())

    def test_cline_waits_for_the_server(self, home: Path) -> None:
        """Its own limit is three seconds, which a busy machine does not keep."""
        wire(home, "cline")
        (target,) = one_of(home, "cline").targets
        assert read_entry(target.file.read_text(), "json", ("mcpServers", "backstory"))["timeout"] == 60

    def test_twice_is_once(self, home: Path) -> None:
        """The second time nothing is written."""
        wire(home)
        before = contents(home)

        assert {outcome.action for outcome in wire(home)} == {"unchanged"}
        assert contents(home) == before

    def test_another_installation(self, home: Path) -> None:
        """Its entry is replaced, and what the user added to it stays."""
        (home / ".cursor/mcp.json").write_text(
            '{"mcpServers": {"backstory": {"command": "/old/backstory", "args": ["mcp"], "env": {"A": "1"}}}}'
        )

        assert [outcome.action for outcome in wire(home, "cursor")] == ["updated"]
        entry = read_entry((home / ".cursor/mcp.json").read_text(), "json", ("mcpServers", "backstory"))
        assert entry == {"command": SERVER[0], "args": ["mcp"], "env": {"A": "1"}}

    def test_options_of_the_user_stay(self, home: Path) -> None:
        """An entry with further arguments is wired."""
        wire(home, "cursor")
        file = home / ".cursor/mcp.json"
        file.write_text(file.read_text().replace('"mcp"\n', '"mcp", "--tools", "all"\n'))

        assert is_wired(home, "cursor")

    def test_a_file_that_cannot_be_edited_is_known_before(self, home: Path) -> None:
        """One that can be parsed, with something else where the servers belong, is not promised to be written."""
        (home / ".cursor/mcp.json").write_text('{"mcpServers": "none"}')
        (home / ".continue/config.yaml").write_text("mcpServers: [{name: docs, command: docs}]\n")

        assert {one_of(home, name).targets[0].state for name in ("cursor", "continue")} == {"refused"}

    def test_broken_files_are_left_alone(self, home: Path) -> None:
        """To the byte, with the reason."""
        (home / ".cursor/mcp.json").write_bytes(b'{"mcpServers": {')
        (home / ".codex/config.toml").write_bytes(b"model = \xff")
        before = contents(home)

        outcomes = wire(home, "cursor", "codex")

        assert [outcome.action for outcome in outcomes] == ["refused", "refused"]
        assert all(outcome.reason for outcome in outcomes)
        assert contents(home) == before

    def test_links_stay_links(self, home: Path) -> None:
        """Dotfiles that are kept elsewhere: the file behind the link is written."""
        real = home / "dotfiles" / "config.toml"
        real.parent.mkdir()
        (home / ".codex/config.toml").rename(real)
        (home / ".codex/config.toml").symlink_to(real)

        wire(home, "codex")

        assert (home / ".codex/config.toml").is_symlink()
        assert "backstory" in real.read_text()
        wiring(home).remove()
        assert (home / ".codex/config.toml").is_symlink()
        assert real.read_text() == CONFIGURATIONS["codex"][1]

    def test_a_link_to_no_file_is_one_again(self, home: Path) -> None:
        """The file that was made behind it is taken back, the link is not."""
        link, real = home / ".cursor/mcp.json", home / "dotfiles" / "mcp.json"
        link.unlink()
        link.symlink_to(real)

        wire(home, "cursor")

        assert "backstory" in real.read_text()
        wiring(home).remove()
        assert link.is_symlink()
        assert not real.parent.exists()

    @pytest.mark.parametrize(
        ("agent", "table", "old", "new"),
        [
            (
                "kimi-cli",
                "mcpServers",
                {"command": "/old/backstory", "args": ["mcp", "--tools", "all"]},
                {"command": COMMAND[0], "args": ["mcp", "--tools", "all"]},
            ),
            (
                "opencode",
                "mcp",
                {"type": "local", "command": ["uvx", "backstory", "mcp", "--tools", "all"], "enabled": False},
                {"type": "local", "command": [*SERVER, "--tools", "all"], "enabled": False},
            ),
            (
                "zed",
                "context_servers",
                {"source": "custom", "command": "/old/backstory", "args": ["mcp"], "env": {"BACKSTORY_HOME": "/b"}},
                {"source": "custom", "command": COMMAND[0], "args": ["mcp"], "env": {"BACKSTORY_HOME": "/b"}},
            ),
            (
                "copilot-cli",
                "mcpServers",
                {"type": "http", "url": "http://127.0.0.1:7717/mcp", "tools": ["open"]},
                {
                    "type": "local",
                    "url": "http://127.0.0.1:7717/mcp",
                    "tools": ["open"],
                    "command": COMMAND[0],
                    "args": ["mcp"],
                },
            ),
        ],
    )
    def test_an_update_keeps_what_was_added(
        self, home: Path, agent: str, table: str, old: dict[str, object], new: dict[str, object]
    ) -> None:
        """Arguments, variables and other settings of an entry that starts another installation."""
        file = home / CONFIGURATIONS[agent][0]
        file.write_text(json.dumps({table: {"backstory": old}}))

        (outcome,) = wire(home, agent)

        assert outcome.action == "updated"
        assert json.loads(file.read_text()) == {table: {"backstory": new}}

    def test_read_only_files_are_reported(self, home: Path) -> None:
        """They stay as they are."""
        file = home / ".cursor/mcp.json"
        file.chmod(0o400)

        (outcome,) = wire(home, "cursor")

        assert (outcome.action, outcome.reason) == ("refused", "it is read-only")
        assert file.read_text() == CONFIGURATIONS["cursor"][1]

    def test_permissions_stay(self, home: Path) -> None:
        """A file that others may read stays so."""
        file = home / ".cursor/mcp.json"
        file.chmod(0o644)

        wire(home, "cursor")

        assert stat.S_IMODE(file.stat().st_mode) == 0o644


class TestOwnCommand:
    """An agent's own command goes first, and its work is checked."""

    ADD = """
if sys.argv[1] == "--version":
    print("1.2.3")
else:
    file = home / ".qwen/settings.json"
    servers = {"backstory": {"command": sys.argv[-2], "args": sys.argv[-1:]}}
"""

    def test_is_used(self, home: Path, bin_folder: Path) -> None:
        """Where it adds the server and keeps the rest."""
        (home / ".qwen/settings.json").write_text('{"theme": "dark"}')
        program(
            bin_folder, "qwen", self.ADD + "    file.write_text(json.dumps({'theme': 'dark', 'mcpServers': servers}))\n"
        )

        (outcome,) = wire(home, "qwen-code")

        assert outcome.by == "qwen mcp add --scope user backstory"
        assert is_wired(home, "qwen-code")
        wiring(home).remove()
        assert (home / ".qwen/settings.json").read_text() == '{"theme": "dark"}'

    @pytest.mark.parametrize(
        "damage",
        [
            "file.write_text(json.dumps({'mcpServers': servers}))",  # other settings are gone
            "file.write_text(json.dumps({'theme': 'dark', 'mcpServers': {'docs': {'command': 'docs'}, **servers}}))",
            "file.write_text('')",
            "pass",
            "sys.exit(1)",
        ],
        ids=["drops settings", "drops comments", "empties the file", "does nothing", "fails"],
    )
    def test_is_undone(self, home: Path, bin_folder: Path, damage: str) -> None:
        """Where it does anything else, the file is put back and edited instead."""
        program(bin_folder, "qwen", f"{self.ADD}    {damage}\n")

        (outcome,) = wire(home, "qwen-code")

        text = (home / ".qwen/settings.json").read_text()
        assert (outcome.action, outcome.by) == ("added", None)
        assert "// mine" in text
        assert '"docs"' in text
        assert is_wired(home, "qwen-code")


class TestRemove:
    def test_to_the_byte(self, home: Path) -> None:
        """Every file and folder is as it was, also where there was none."""
        before = contents(home)
        wire(home)
        journal = Journal(home / ".backstory")
        for name in ("claude-code", "codex"):
            assert additions(journal, home).add_hooks(name).action == "added"
            assert additions(journal, home).add_skill(name).action == "added"
        assert additions(journal, home).add_instructions("codex").action == "added"
        assert contents(home) != before

        outcomes = wiring(home).remove()

        assert {outcome.action for outcome in outcomes} == {"restored"}
        assert contents(home) == before
        assert wiring(home).remove() == []

    def test_a_file_that_another_program_changed(self, home: Path) -> None:
        """Only the entry goes."""
        wire(home, "cursor")
        file = home / ".cursor/mcp.json"
        file.write_text(file.read_text().replace('"dark"', '"light"'))

        assert [outcome.action for outcome in wiring(home).remove()] == ["removed"]
        assert file.read_text() == CONFIGURATIONS["cursor"][1].replace('"dark"', '"light"')

    @pytest.mark.parametrize(
        ("agent", "file", "events"),
        [
            ("claude-code", ".claude/settings.json", ["SessionStart", "PreCompact"]),
            ("codex", ".codex/hooks.json", ["SessionStart"]),
        ],
    )
    def test_hooks_for_what_reaches_the_model(self, home: Path, agent: str, file: str, events: list[str]) -> None:
        """Codex gives the model nothing of a hook that runs before a compaction."""
        additions(Journal(home / ".backstory"), home).add_hooks(agent)

        assert list(read_entry((home / file).read_text(), "json", ("hooks",))) == events

    def test_hooks_beside_those_of_others(self, home: Path) -> None:
        """Only Backstory's go, also when others were added since."""
        file = home / ".claude/settings.json"
        file.write_text('{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}]}}')
        journal = Journal(home / ".backstory")
        additions(journal, home).add_hooks("claude-code")
        file.write_text(file.read_text() + "\n")

        wiring(home).remove()

        assert read_entry(file.read_text(), "json", ("hooks",)) == {
            "SessionStart": [{"hooks": [{"type": "command", "command": "date"}]}]
        }

    def test_some_agents(self, home: Path) -> None:
        """The others stay wired."""
        wire(home)

        wiring(home).remove(["codex"])

        assert not is_wired(home, "codex")
        assert is_wired(home, "cursor")

    def test_without_the_journal(self, home: Path) -> None:
        """An entry that starts this installation is removed all the same."""
        wire(home, "cursor")
        (home / ".backstory/setup/journal.json").unlink()

        wiring(home).remove()

        assert (home / ".cursor/mcp.json").read_text() == CONFIGURATIONS["cursor"][1]


class TestInstructions:
    def test_beside_what_is_there(self, home: Path) -> None:
        """A block of its own, once, and gone without a trace."""
        file = home / ".codex/AGENTS.md"
        file.write_text("# Mine\n\nNo tabs.\n")
        journal = Journal(home / ".backstory")

        assert additions(journal, home).add_instructions("codex").action == "added"
        assert additions(journal, home).add_instructions("codex").action == "unchanged"
        assert file.read_text().startswith("# Mine\n\nNo tabs.\n\n<!-- backstory: begin -->\n")
        file.write_text(file.read_text() + "\nMore.\n")
        wiring(home).remove()

        assert file.read_text() == "# Mine\n\nNo tabs.\n\nMore.\n"
