"""Additions to agents beside the MCP server: hooks, the skill, and instructions.

A hook reminds of earlier work when a session starts, and offers a capsule before the context is compacted. Claude Code
and Codex have the same format: per event a list of groups, each with a list of commands. The skill and the instructions
say when to search, how to open, and how to leave a capsule.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..sources.agents import expand_root
from .documents import Refused, read_entry
from .documents import json as json_text
from .files import Entry, Journal, Outcome, check_writable, read_text
from .server import own_command

# The file with the hooks of each agent that has them.
HOOK_FILES = {
    "claude-code": "${CLAUDE_CONFIG_DIR:-~/.claude}/settings.json",
    "codex": "${CODEX_HOME:-~/.codex}/hooks.json",
}
_COMMANDS = {"SessionStart": "session-start", "PreCompact": "pre-compact"}
# Codex runs the hook before a compaction, too, but gives nothing of it to the model.
EVENTS = {"claude-code": ("SessionStart", "PreCompact"), "codex": ("SessionStart",)}
_ITEM = "hook"
# Seconds after which the agent ends the command; it ends itself long before.
_TIMEOUT = 5
# The folders where agents look for skills.
SKILL_FOLDERS = {
    "claude-code": "${CLAUDE_CONFIG_DIR:-~/.claude}/skills",
    "codex": "${CODEX_HOME:-~/.codex}/skills",
    "gemini-cli": "${GEMINI_CLI_HOME:-~}/.gemini/skills",
    "qwen-code": "${QWEN_HOME:-~/.qwen}/skills",
    "opencode": "${XDG_CONFIG_HOME:-~/.config}/opencode/skills",
    "copilot-cli": "${COPILOT_HOME:-~/.copilot}/skills",
    "kimi-cli": "${KIMI_CODE_HOME:-~/.kimi-code}/skills",
}
# The files with instructions for every session of an agent.
INSTRUCTIONS = {"codex": "${CODEX_HOME:-~/.codex}/AGENTS.md"}
_TEXTS = Path(__file__).with_name("texts")
_BLOCK = "instructions"
_BEGIN, _END = "<!-- backstory: begin -->", "<!-- backstory: end -->"


class Additions:
    """The additions to the agents below a home. `command` is what starts Backstory; by default this installation."""

    def __init__(
        self,
        journal: Journal,
        *,
        home: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        command: Sequence[str] | None = None,
    ) -> None:
        self._journal = journal
        self._home = home or Path.home()
        self._environ = environ
        self._command = command or own_command()

    def add_hooks(self, agent: str) -> Outcome:
        """Add the hooks to the file of an agent; those of other programs stay."""
        file = self._path(HOOK_FILES[agent])
        try:
            text = read_text(file)
            for event in EVENTS[agent]:
                text = _with_hook(text, event, shlex.join([*self._command, "hook", _COMMANDS[event]]))
        except (Refused, ValueError) as refused:
            return Outcome(agent=agent, file=str(file), action="refused", reason=str(refused))
        return self._write(file, text, *(Entry(agent, "json", ("hooks", event), _ITEM) for event in EVENTS[agent]))

    def add_skill(self, agent: str) -> Outcome:
        """Write the skill into an agent's folder of skills."""
        return self._write(self._path(SKILL_FOLDERS[agent]) / "backstory" / "SKILL.md", skill_text(), Entry(agent))

    def add_instructions(self, agent: str) -> Outcome:
        """Add the instructions to an agent's file of instructions, as a block between two marks."""
        file = self._path(INSTRUCTIONS[agent])
        try:
            text = drop_block(read_text(file))
        except Refused as refused:
            return Outcome(agent=agent, file=str(file), action="refused", reason=str(refused))
        gap = "\n" if text else ""
        ending = "" if not text or text.endswith("\n") else "\n"
        block = f"{text}{ending}{gap}{_BEGIN}\n{instructions_text()}{_END}\n"
        return self._write(file, block, Entry(agent, item=_BLOCK))

    def _path(self, root: str) -> Path:
        return expand_root(root, self._home, self._environ)[0]

    def _write(self, file: Path, text: str, *entries: Entry) -> Outcome:
        outcome = Outcome(agent=entries[0].agent, file=str(file), action="unchanged")
        try:
            before = read_text(file)
            if before != text:
                check_writable(file)
                self._journal.write(file, text, *entries)
                outcome.action = "updated" if before and entries[0].item is None else "added"
        except Refused as refused:
            outcome.action, outcome.reason = "refused", str(refused)
        return outcome


def skill_text() -> str:
    return (_TEXTS / "SKILL.md").read_text("utf-8")


def instructions_text() -> str:
    return (_TEXTS / "AGENTS.md").read_text("utf-8")


def drop_block(text: str) -> str:
    """A text without Backstory's block, and without the blank line before it."""
    return re.sub(rf"\n?{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n?", "", text, count=1, flags=re.DOTALL)


def drop_hook(text: str, path: Sequence[str]) -> str:
    """A text without Backstory's hooks for an event; a list that is empty then is dropped, too."""
    text = json_text.drop_items(text, path, _is_own)
    return json_text.drop(text, path) if read_entry(text, "json", path) == [] else text


def _with_hook(text: str, event: str, command: str) -> str:
    path = ("hooks", event)
    groups = read_entry(text, "json", path)
    if groups is not None and not isinstance(groups, list):
        raise Refused(f"hooks.{event} is not a list")
    if any(_commands(group) == [command] for group in groups or ()):
        return text
    item = {"hooks": [{"type": "command", "command": command, "timeout": _TIMEOUT}]}
    return json_text.append(json_text.drop_items(text, path, _is_own), path, item)


def _is_own(group: Any) -> bool:
    """True if a group has nothing but a hook of Backstory."""
    commands = _commands(group)
    return len(commands) == 1 and _is_hook(commands[0])


def _is_hook(command: str) -> bool:
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    own = words[-1:] and words[-1] in _COMMANDS.values() and words[-2:-1] == ["hook"]
    return bool(own) and any(Path(word).stem == "backstory" for word in words[:-2])


def _commands(group: Any) -> list[str]:
    hooks = group.get("hooks") if isinstance(group, dict) else None
    return [str(hook.get("command")) for hook in hooks or () if isinstance(hook, dict)]
