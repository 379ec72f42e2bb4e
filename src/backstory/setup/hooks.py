"""Hooks in agents: a reminder when a session starts, an offer of a capsule before the context is compacted.

Claude Code and Codex have the same format: per event a list of groups, each with a list of commands.
"""

from __future__ import annotations

import os
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
FILES = {
    "claude-code": "${CLAUDE_CONFIG_DIR:-~/.claude}/settings.json",
    "codex": "${CODEX_HOME:-~/.codex}/hooks.json",
}
_COMMANDS = {"SessionStart": "session-start", "PreCompact": "pre-compact"}
# Codex runs the hook before a compaction, too, but gives nothing of it to the model.
EVENTS = {"claude-code": ("SessionStart", "PreCompact"), "codex": ("SessionStart",)}
_ITEM = "hook"
# Seconds after which the agent ends the command; it ends itself long before.
_TIMEOUT = 5


def hook_command(event: str, command: Sequence[str] | None = None) -> str:
    """The shell command of a hook."""
    return shlex.join([*(command or own_command()), "hook", event])


def add_hooks(
    journal: Journal,
    agent: str,
    *,
    home: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    command: Sequence[str] | None = None,
) -> Outcome:
    """Add the hooks to the file of an agent; those of other programs stay."""
    file = expand_root(FILES[agent], home or Path.home(), environ)[0]
    outcome = Outcome(agent=agent, file=str(file), action="unchanged")
    try:
        before = text = read_text(file)
        for event in EVENTS[agent]:
            path = ("hooks", event)
            groups = read_entry(text, "json", path)
            if groups is not None and not isinstance(groups, list):
                raise Refused(f"hooks.{event} is not a list")
            own = hook_command(_COMMANDS[event], command)
            if any(_commands(group) == [own] for group in groups or ()):
                continue
            text = json_text.drop_items(text, path, is_own)
            item = {"hooks": [{"type": "command", "command": own, "timeout": _TIMEOUT}]}
            text = json_text.append(text, path, item)
        if text != before:
            check_writable(file)
            journal.write(file, text, *(Entry(agent, "json", ("hooks", event), _ITEM) for event in EVENTS[agent]))
            outcome.action = "added"
    except (Refused, ValueError) as refused:
        outcome.action, outcome.reason = "refused", str(refused)
    return outcome


def drop_hook(text: str, path: Sequence[str]) -> str:
    """A text without Backstory's hooks for an event; a list that is empty then is dropped, too."""
    text = json_text.drop_items(text, path, is_own)
    return json_text.drop(text, path) if read_entry(text, "json", path) == [] else text


def is_own(group: Any) -> bool:
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
