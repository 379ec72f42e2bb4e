"""Registering the MCP server with agents, and taking it back."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from .additions import drop_block, drop_hook
from .agents import WIRABLE, Wirable, command_in, environment_in
from .documents import Refused, drop_entry, read_entry, set_entry
from .files import Entry, Journal, Outcome, check_writable, read_bytes, read_text, replace_file
from .server import Probe, own_command, probe

_VERSION_SECONDS = 5
_ADD_SECONDS = 60
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")
# An agent that is only asked for its version, or to add a server, has no reason to use the network.
_QUIET = {
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "COPILOT_AUTO_UPDATE": "false",
    "CLINE_NO_AUTO_UPDATE": "1",
    "NO_UPDATE_NOTIFIER": "1",
}

State = Literal["wired", "not wired", "outdated", "refused"]


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

    @property
    def is_wired(self) -> bool:
        return all(target.state == "wired" for target in self.targets)


class Wiring:
    """The agents below a home. `command` is what starts Backstory; by default this installation."""

    def __init__(
        self,
        journal: Journal,
        *,
        home: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        command: Sequence[str] | None = None,
    ) -> None:
        self.journal = journal
        self.server = (*(command or own_command()), "mcp")
        self.home = home or Path.home()
        self._environ = environ
        self._probes: dict[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], Probe] = {}

    def find(self, *, versions: bool = True) -> list[FoundAgent]:
        """The agents that are here. `versions`: their programs are asked for their version."""
        found = []
        for agent in WIRABLE:
            files = agent.files(self.home, self._environ)
            if files:
                found.append(FoundAgent(agent, agent.installed(), None, [self._look(agent, file) for file in files]))
        if versions:
            with ThreadPoolExecutor() as pool:
                for one, version in zip(found, pool.map(_version, found), strict=True):
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
                text = set_entry(read_text(file), agent.format_of(file), agent.path, agent.entry(self.server))
                self.journal.write(file, text, self._entry(agent, file))
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
                env={**self._environ, **_QUIET},
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
    """The lines that have or may have a comment; where one of them is gone or changed, so may be a comment."""
    return {line.strip().rstrip(",") for line in text.splitlines() if re.search(r"(^|\s)(#|//|/\*)", line)}


def _version(found: FoundAgent) -> str | None:
    """The version that a program prints, or that of its npm package if it takes too long."""
    if found.program is None:
        return None
    try:
        done = subprocess.run(
            [found.program, "--version"],
            env={**os.environ, **_QUIET},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_SECONDS,
            check=False,
        )
        if number := _VERSION.search(done.stdout):
            return number[0]
    except (OSError, subprocess.TimeoutExpired):
        pass
    for folder in Path(found.program).resolve().parents[:3]:
        try:
            return str(json.loads((folder / "package.json").read_bytes())["version"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
