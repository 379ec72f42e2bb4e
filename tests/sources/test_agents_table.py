"""The table of agents: names, roots, and sources that are imported when they are needed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from backstory.sources import SOURCES, load_sources, title_of
from backstory.sources.agents import AGENTS, expand_root

NAMES = """
    claude-code codex gemini-cli opencode cursor copilot-cli pi qwen-code kimi-cli cline roo-code aider goose amp
    factory-droid kilo continue grok-build mistral-vibe openhands gptme openclaw oh-my-pi hermes auggie crush zed kiro
    kiro-ide copilot-chat windsurf warp antigravity letta-code claude-ai chatgpt live otel
""".split()
LIST_ALL = """
import sys
from pathlib import Path
from backstory.sources import load_sources
for source in load_sources():
    if source.name not in ("claude-code", "live"):
        source.roots(Path("/nowhere"), {})
    if source.name in ("codex", "gemini-cli", "opencode"):
        source.resume("one")
print([name for name in sys.modules if name.startswith("backstory.sources.")])
"""


ASK_CLAUDE_CODE = """
import sys
from pathlib import Path
from backstory.sources import load_sources
(source,) = load_sources(["claude-code"])
print(source.roots(Path("/nowhere"), {})[0], *source.resume("one"))
print([name for name in sys.modules if name.startswith("backstory.sources.claude_code.")])
"""


class TestTable:
    """Every agent has a row, and every row an agent."""

    def test_every_name_is_there(self) -> None:
        assert set(NAMES) <= set(SOURCES)
        assert len(set(SOURCES)) == len(SOURCES)

    def test_commands_that_continue_a_session(self) -> None:
        """The id is one word, whatever it holds; a subagent is not continued by itself."""
        codex, gptme, kiro, cline = load_sources(["codex", "gptme", "kiro", "cline"])
        assert codex.resume("one") == ("codex", "resume", "one")
        assert gptme.resume("a walk") == ("gptme", "--name", "a walk", "--resume")
        assert codex.resume("one/two") is None
        assert kiro.resume("/home/ada/shop") == ("kiro-cli", "chat", "--resume")
        assert (cline.resume("abc"), cline.resume("123")) == (("cline", "--id", "abc"), None)

    def test_folders_and_commands_of_claude_code_load_no_parser(self) -> None:
        """Every search asks for both, before and after it."""
        done = subprocess.run([sys.executable, "-c", ASK_CLAUDE_CODE], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [
            "/nowhere/.claude/projects claude --resume one",
            "['backstory.sources.claude_code.layout']",
        ]

    @pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.name)
    def test_every_source_can_be_loaded(self, agent: object, tmp_path: Path) -> None:
        """A source takes any path, and is named as in the table."""
        source = load_sources([agent.name])[0]  # type: ignore[attr-defined]
        assert not source.accepts(tmp_path / "README.unrelated")
        assert not source.gathers(tmp_path)
        assert source._loaded.name == source.name  # type: ignore[attr-defined]

    def test_people_read_another_name(self) -> None:
        assert (title_of("gemini-cli"), title_of("from-a-plugin")) == ("Gemini CLI", "from-a-plugin")

    def test_no_parser_is_imported_for_its_roots_and_command(self) -> None:
        """Asking every agent for its roots imports none of them, where none exists; nor does the command that continues
        a session, which every search shows."""
        listed = subprocess.run([sys.executable, "-c", LIST_ALL], capture_output=True, text=True, check=True).stdout
        imported = set(re.findall(r"backstory\.sources\.(\w+)", listed))
        assert imported <= {"agents", "base"}


class TestRoots:
    """A root is written as in a shell."""

    home = Path("/home/ann")

    @pytest.mark.parametrize(
        ("root", "environ", "paths"),
        [
            ("~/.thing/sessions", {}, ["/home/ann/.thing/sessions"]),
            ("${THING:-~/.thing}/sessions", {}, ["/home/ann/.thing/sessions"]),
            ("${THING:-~/.thing}/sessions", {"THING": "/srv/thing"}, ["/srv/thing/sessions"]),
            ("${THING:-~/.thing}/sessions", {"THING": "~/elsewhere"}, ["/home/ann/elsewhere/sessions"]),
            ("${THING}/sessions", {"THING": "/srv"}, ["/srv/sessions"]),
            ("${THING}/sessions", {}, []),
            ("${THING}", {"THING": ""}, []),
            ("${THING:-~/.thing}/sessions", {"THING": "~"}, ["/home/ann/sessions"]),
            ("${THING:-~/.thing}/sessions", {"THING": "elsewhere"}, ["/home/ann/.thing/sessions"]),
            ("${THING}/sessions", {"THING": "~nobody-of-that-name"}, []),
        ],
    )
    def test_variables(self, root: str, environ: dict[str, str], paths: list[str]) -> None:
        assert [str(path) for path in expand_root(root, self.home, environ)] == paths

    def test_patterns_give_what_exists(self, tmp_path: Path) -> None:
        for name in ("one/chats", "two/chats", "three/else"):
            (tmp_path / ".thing" / name).mkdir(parents=True)
        found = expand_root("~/.thing/*/chats", tmp_path, {})
        assert [path.parent.name for path in found] == ["one", "two"]
