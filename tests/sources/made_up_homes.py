"""Homes of people who use an agent, made up in the shape of real ones: `stores/<agent>` with native paths.

A database is written as the SQL that builds it, in `<name>.sql`; `golden.txt` is what the archive holds after a sync.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from backstory.archive.base import EventRow, SessionsRequest
from backstory.library import Library
from backstory.model import rfc3339
from tests.archive_world import usage_of
from tests.sources.store_files import GOLDEN, STORES, paths, put


def golden(agent: str) -> str:
    return (STORES / agent / GOLDEN).read_text("utf-8")


class Home:
    """A home with an agent's sessions, and Backstory in it."""

    def __init__(self, agent: str, folder: Path, *, filled: bool = True) -> None:
        self.made_up = STORES / agent
        self.folder = folder
        backstory = folder / ".backstory"
        backstory.mkdir(parents=True)
        if agent == "aider":
            (backstory / "config.toml").write_text(f'[extra_roots]\naider = ["{folder / "demo"}"]\n')
        if filled:
            for path in self.paths():
                self.write(path)
        self.library = Library(backstory, agents_home=folder, environ={"BACKSTORY_REDACT": "off"})

    def paths(self) -> list[Path]:
        """The files of the made-up home, relative to it."""
        return paths(self.made_up)

    def write(self, path: Path) -> None:
        """Put a file where the agent has it."""
        put(self.made_up, path, self.folder)

    def show(self) -> str:
        """Everything the archive holds, for reading and comparing."""
        archive = self.library.archive
        sessions = archive.sessions(SessionsRequest(start=0, end=1 << 50, limit=1000))
        lines: list[str] = []
        for session in sorted(sessions, key=lambda session: session.key):
            state = "completed" if session.completed else "open"
            lines.append(f"{session.key} {json.dumps(session.title)} {state}")
            about = {
                name: value.replace(str(self.folder), "HOME")
                for name in ("cwd", "last_cwd", "branch", "version", "parent", "parent_call", "summary", "slug")
                if (value := getattr(session, name))
            }
            lines.append("  " + json.dumps(about))
            for turn in archive.turns(session.key):
                lines.append(f"  turn {turn.ordinal} {'completed' if turn.completed else 'open'}")
                lines += (f"    {_event(event)}" for event in archive.events(session.key, turn.ordinal))
            for usage in sorted(usage_of(archive, session.key), key=lambda usage: (usage.turn, usage.input_tokens)):
                tokens = {
                    name: value
                    for name in usage.__struct_fields__
                    if name.endswith("_tokens") and (value := getattr(usage, name))
                }
                cost = "" if usage.cost is None else f" ${usage.cost:g}"
                lines.append(f"  usage of turn {usage.turn} {usage.model} {json.dumps(tokens)}{cost}")
        return "\n".join(lines) + "\n"


def _event(event: EventRow) -> str:
    facts: dict[str, object] = {
        "tool": event.tool,
        "call": event.call_id,
        "model": event.model or event.originating_model,
        "exit": event.exit_code,
        "failed": event.failed,
        "arguments": event.arguments,
        "extra": event.extra,
    }
    said = {name: value for name, value in facts.items() if value is not None}
    return f"{rfc3339(event.ts)[11:]} {event.type} {json.dumps(event.text)} {json.dumps(said)}"


def statements(script: str) -> Iterator[str]:
    """The statements of a made-up database, one on each line."""
    return (line for line in script.splitlines() if line.strip())
