"""Wiring: the MCP server, hooks, the skill and instructions in the files of agents, and taking them back.

A hook reminds of earlier work when a session starts, and offers a capsule before the context is compacted. Claude Code
and Codex have the same format: per event a list of groups, each with a list of commands. The skill and the instructions
say when to search, how to open, and how to leave a capsule.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from ..sources.agents import expand_root
from . import json_text
from .agents import QUIET, WIRABLE, Wirable, command_in, environment_in, version_of
from .documents import Refused, drop_entry, read_entry, set_entry
from .files import Entry, Journal, Outcome, check_writable, read_bytes, read_text, replace_file
from .server import Probe, own_command, probe

_ADD_SECONDS = 60

State = Literal["wired", "not wired", "outdated", "refused"]
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


class Target(Struct):
    """A configuration file of an agent."""

    file: Path
    state: State
    """`outdated`: its entry starts another installation. `refused`: the file cannot be edited, see `reason`."""
    reason: str | None = None


class FoundAgent(Struct):
    """An agent on this machine."""

    agent: Wirable
    program: str | None
    version: str | None
    targets: list[Target]


class _AgentFiles:
    """The files of the agents below a home. `command` is what starts Backstory; by default this installation."""

    def __init__(
        self,
        journal: Journal,
        *,
        home: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        command: Sequence[str] | None = None,
    ) -> None:
        self.journal = journal
        self.home = home or Path.home()
        self._environ = environ
        self._command = command or own_command()


class Wiring(_AgentFiles):
    """The agents below a home, and the MCP server in their files."""

    @property
    def server(self) -> tuple[str, ...]:
        """The command of the MCP server."""
        return (*self._command, "mcp")

    @cached_property
    def _probes(self) -> dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], Probe]:
        """The tests of servers that were made, by command and environment."""
        return {}

    def find(self, *, versions: bool = True) -> list[FoundAgent]:
        """The agents that are here. `versions`: their programs are asked for their version."""
        found = []
        for agent in WIRABLE:
            files = agent.files(self.home, self._environ)
            if files:
                found.append(FoundAgent(agent, agent.installed(), None, [self._look(agent, file) for file in files]))
        if versions:
            with ThreadPoolExecutor() as pool:
                for one, version in zip(found, pool.map(lambda one: version_of(one.program), found), strict=True):
                    one.version = version
        return found

    def wire(self, found: FoundAgent, target: Target) -> Outcome:
        """Register the server in a file, by the agent's own command where that works."""
        agent, file = found.agent, target.file
        outcome = Outcome(agent=agent.name, file=str(file), action="unchanged")
        if target.state == "wired":
            return outcome
        try:
            if target.state == "refused":
                raise Refused(target.reason or "it cannot be edited")
            check_writable(file)
            outcome.by = self._add_by_program(found, file) if target.state == "not wired" else None
            if outcome.by is None:
                text, format = read_text(file), agent.format_of(file)
                entry = agent.updated(read_entry(text, format, agent.path), self.server)
                self.journal.write(file, set_entry(text, format, agent.path, entry), self._entry(agent, file))
        except Refused as refused:
            outcome.action, outcome.reason = "refused", str(refused)
            return outcome
        outcome.action = "updated" if target.state == "outdated" else "added"
        written = self.journal.files.get(str(file))
        if written is not None and written.backup is not None:
            outcome.backup = str(self.journal.folder / written.backup)
        target.state = "wired"
        return outcome

    def verify(self, agent: Wirable, file: Path) -> Probe:
        """Start the server from the entry in the file, as the agent does, and call a tool."""
        try:
            entry = read_entry(read_text(file), agent.format_of(file), agent.path)
        except Refused as refused:
            return Probe(False, problem=str(refused))
        command = command_in(entry)
        if not command:
            return Probe(False, problem="there is no entry")
        environment = environment_in(entry)
        key = (command, tuple(sorted(environment.items())))
        if key not in self._probes:
            self._probes[key] = probe(command, environment)
        return self._probes[key]

    def remove(self, agents: Iterable[str] | None = None) -> list[Outcome]:
        """Take back what was written, for some agents or all."""
        names = None if agents is None else set(agents)
        outcomes = []
        for name, written in list(self.journal.files.items()):
            own = [entry for entry in written.entries if names is None or entry.agent in names]
            if own:
                outcomes.append(self._take_back(Path(name), own))
        outcomes += [
            self._take_back(target.file, [self._entry(found.agent, target.file)])
            for found in self.find(versions=False)
            for target in found.targets
            if target.state == "wired" and (names is None or found.agent.name in names)
        ]
        return outcomes

    def _take_back(self, file: Path, entries: list[Entry]) -> Outcome:
        written = self.journal.files.get(str(file))
        outcome = Outcome(agent=entries[0].agent, file=str(file), action="restored")
        try:
            check_writable(file)
            if written is not None and written.entries == entries and self.journal.restore(file):
                return outcome
            outcome.action = "removed"
            text = read_text(file)
            for entry in entries:
                text = without(text, entry)
            replace_file(file, text.encode())
            if written is not None:
                written.entries = [entry for entry in written.entries if entry not in entries]
                written.exact, written.backup = False, None
                if written.entries:
                    self.journal.save()
                else:
                    self.journal.forget(file)
        except Refused as refused:
            outcome.action, outcome.reason = "refused", str(refused)
        return outcome

    def _look(self, agent: Wirable, file: Path) -> Target:
        try:
            text, format = read_text(file), agent.format_of(file)
            entry = read_entry(text, format, agent.path)
            if entry is not None and command_in(entry)[: len(self.server)] == self.server:
                return Target(file, "wired")
            check_writable(file)
            set_entry(text, format, agent.path, agent.entry(self.server))  # refuses what cannot be edited
            return Target(file, "not wired" if entry is None else "outdated")
        except Refused as refused:
            return Target(file, "refused", str(refused))

    def _add_by_program(self, found: FoundAgent, file: Path) -> str | None:
        """Let the agent's program add the server; None if there is none, or if it has not done exactly that. Then
        the file is as it was."""
        agent = found.agent
        if not agent.add or found.program is None:
            return None
        before = read_bytes(file)
        text = read_text(file)
        argv = [found.program, *agent.add, *self.server]
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                argv,
                cwd=self.home,
                env={**self._environ, **QUIET},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_ADD_SECONDS,
                check=False,
            )
        if self._is_added(agent, file, text):
            self.journal.note(file, before, self._entry(agent, file))
            return " ".join([agent.program or "", *agent.add]).removesuffix(" --")
        if before is not None and read_bytes(file) != before:
            replace_file(file, before)
        return None

    def _is_added(self, agent: Wirable, file: Path, before: str) -> bool:
        """True if the entry is there, and all that was there before: settings, and comments."""
        format = agent.format_of(file)
        try:
            after = read_text(file)
            if command_in(read_entry(after, format, agent.path)) != self.server:
                return False
            rest = read_entry(drop_entry(after, format, agent.path), format, ())
            return _holds(rest, read_entry(before, format, ())) and _comments(before) <= _comments(after)
        except Refused:
            return False

    @staticmethod
    def _entry(agent: Wirable, file: Path) -> Entry:
        return Entry(agent.name, agent.format_of(file), agent.path)


def without(text: str, entry: Entry) -> str:
    """A text without an entry of Backstory."""
    if entry.item is not None:
        return drop_block(text) if entry.format is None else drop_hook(text, entry.path)
    return "" if entry.format is None else drop_entry(text, entry.format, entry.path)


def _holds(after: Any, before: Any) -> bool:
    """True if everything in `before` is in `after`, too."""
    if isinstance(before, dict):
        return isinstance(after, dict) and all(key in after and _holds(after[key], before[key]) for key in before)
    return bool(after == before)


def _comments(text: str) -> set[str]:
    """The lines that may have a comment: a comment is unchanged if its line is."""
    return {line.strip().rstrip(",") for line in text.splitlines() if re.search(r"(^|\s)(#|//|/\*)", line)}


# Hooks, the skill, and instructions


class Additions(_AgentFiles):
    """The additions to the agents below a home: hooks, the skill, and instructions."""

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
        return expand_root(root, self.home, self._environ)[0]

    def _write(self, file: Path, text: str, *entries: Entry) -> Outcome:
        outcome = Outcome(agent=entries[0].agent, file=str(file), action="unchanged")
        try:
            before = read_text(file)
            if before != text:
                check_writable(file)
                self.journal.write(file, text, *entries)
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
