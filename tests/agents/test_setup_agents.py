"""Real agents from npm, without a network: `backstory setup` gives each the server, and they use it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.agents,
    pytest.mark.skipif(shutil.which("unshare") is None, reason="network namespaces are Linux's"),
]

HERE = Path(__file__).parent
PROGRAMS = HERE.parents[1] / ".agents" / "node_modules" / ".bin"
MODEL = "http://127.0.0.1:8080"
CODEX = f"""model = "gpt-5.4"
model_provider = "scripted" # on loopback
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{MODEL}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"

[analytics]
enabled = false
"""
CLAUDE = {
    "hasCompletedOnboarding": True,
    "theme": "dark",
    "customApiKeyResponses": {"approved": ["scripted-key"], "rejected": []},
}
CLAUDE_RUN = ("claude", "--output-format", "json", "--allowedTools", "mcp__backstory__search_sessions,ToolSearch", "-p")
CODEX_RUN = ("codex", "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check")


class Machine:
    """A home with agents, in a network of its own where nothing is but the scripted model."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.project = home / "shop"
        self.project.mkdir()
        self._log = home / "requests.jsonl"
        self._write(".claude.json", json.dumps(CLAUDE))
        self._write(".codex/config.toml", CODEX)
        self._write(".gemini/settings.json", '{\n  // mine\n  "security": {"folderTrust": {"enabled": false}}\n}\n')
        self._write(".qwen/settings.json", '{\n  // mine\n  "privacy": {"usageStatisticsEnabled": false}\n}\n')
        self._write(".config/opencode/opencode.json", '{\n  "autoupdate": false\n}\n')

    def _write(self, name: str, text: str) -> None:
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command, which must succeed."""
        environ = {
            "HOME": str(self.home),
            "PATH": f"{PROGRAMS}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "ANTHROPIC_BASE_URL": MODEL,
            "ANTHROPIC_API_KEY": "scripted-key",
            "SCRIPTED_KEY": "scripted-key",
            "SCRIPTED_LOG": str(self._log),
            "GEMINI_API_KEY": "scripted-key",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        }
        isolated = ["unshare", "--map-root-user", "--net", sys.executable, str(HERE / "scripted_model.py")]
        done = subprocess.run(
            [*isolated, *command],
            cwd=self.project,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done

    def requests(self) -> str:
        """The requests of the agents to the model since the last time, with the escapes of JSON."""
        text = self._log.read_text()
        self._log.write_text("")
        return text

    def backstory(self, *arguments: str) -> Any:
        return json.loads(self.run(sys.executable, "-m", "backstory", *arguments, "--json").stdout)

    def claude(self, *arguments: str) -> Any:
        return json.loads(self.run(*CLAUDE_RUN, *arguments).stdout)

    def codex(self, *arguments: str) -> str:
        return self.run(*CODEX_RUN, *arguments).stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine on which setup has run."""
    made = Machine(tmp_path_factory.mktemp("home"))
    done = made.backstory("setup", "--yes", "--hooks")
    refused = [change for change in done["changes"] if change["action"] == "refused"]
    assert refused == []
    return made


class TestSetup:
    @pytest.mark.parametrize(
        ("program", "sign"),
        [
            ("claude", "✔ Connected"),
            ("codex", "enabled"),
            ("gemini", "Connected"),
            ("qwen", "Connected"),
            ("opencode", "connected"),
        ],
    )
    def test_the_agent_lists_the_server(self, machine: Machine, program: str, sign: str) -> None:
        """Connected, where it tries."""
        done = machine.run(program, "mcp", "list")
        line = next(line for line in (done.stdout + done.stderr).splitlines() if "backstory" in line)

        assert sign in line

    def test_comments_stay(self, machine: Machine) -> None:
        """Whichever way the file was edited."""
        for name in (".codex/config.toml", ".gemini/settings.json", ".qwen/settings.json"):
            assert "# on loopback" in (text := (machine.home / name).read_text()) or "// mine" in text


class TestMemory:
    def test_agents_find_what_the_other_one_did(self, machine: Machine) -> None:
        """Claude Code finds a session that Codex has just written, and the other way round."""
        machine.codex("Remember that the pelican cache needs a warmup.")
        found = machine.claude("FIND pelican cache warmup")["result"]
        assert found.startswith("FOUND")
        assert "the pelican cache needs a warmup" in found
        assert '"source":"codex"' in found

        machine.claude("Remember that the ibis migration must run twice.")
        found = machine.codex("-c", "mcp_servers.backstory.required=true", "FIND ibis migration")
        assert "FOUND" in found
        assert "the ibis migration must run twice" in found

    def test_a_purged_session_is_resumed(self, machine: Machine) -> None:
        """Restored byte for byte, Claude Code itself continues it."""
        session = machine.claude("Remember the heron budget.")["session_id"]
        machine.backstory("sync")
        (transcript,) = machine.home.glob(f".claude/projects/*/{session}.jsonl")
        data = transcript.read_bytes()
        transcript.unlink()

        machine.backstory("restore", session)
        assert transcript.read_bytes() == data
        machine.claude("And go on.", "--resume", session)
        assert b"And go on." in transcript.read_bytes()


class TestHooks:
    """The output of the hooks is in the requests to the model."""

    def test_at_the_start(self, machine: Machine) -> None:
        """A reminder of the last session in this project, in Claude Code and in Codex."""
        machine.claude("Remember the stork invoice.")
        machine.backstory("sync")
        machine.requests()
        machine.claude("Hello.")
        assert "Remember the stork invoice." in _after(machine.requests(), "earlier work on this project")

        machine.codex("--dangerously-bypass-hook-trust", "Hello.")
        assert "Last session here:" in _after(machine.requests(), "earlier work on this project")

    def test_around_a_compaction(self, machine: Machine) -> None:
        """Claude Code learns what the summary should keep, and then where to read what was dropped."""
        session = machine.claude("Remember the grebe ledger.")["session_id"]
        machine.backstory("sync")
        machine.requests()
        machine.claude("/compact", "--resume", session)
        assert "Keep in the summary: the objective" in machine.requests()

        machine.claude("And go on.", "--resume", session)
        assert "call search_sessions with within_id session:" in machine.requests()


def _after(text: str, words: str) -> str:
    return text.partition(words)[2]


class TestPlugin:
    def test_is_valid_and_starts(self, tmp_path: Path) -> None:
        """The repository is a marketplace from which Claude Code installs it."""
        machine = Machine(tmp_path)
        root = str(HERE.parents[1])
        assert "passed" in machine.run("claude", "plugin", "validate", root).stdout
        machine.run("claude", "plugin", "marketplace", "add", root)
        assert "Successfully installed" in machine.run("claude", "plugin", "install", "backstory@backstory").stdout


class TestRemove:
    def test_to_the_byte(self, tmp_path: Path) -> None:
        """Right after setup, every configuration is what it was."""
        machine = Machine(tmp_path)
        names = (".codex/config.toml", ".gemini/settings.json", ".qwen/settings.json", ".config/opencode/opencode.json")
        before = {name: (machine.home / name).read_bytes() for name in names}
        machine.backstory("setup", "--yes")
        assert {name: (machine.home / name).read_bytes() for name in names} != before

        machine.backstory("setup", "--yes", "--remove")

        assert {name: (machine.home / name).read_bytes() for name in names} == before
        assert not os.access(machine.home / ".claude.json.backup", os.F_OK)
