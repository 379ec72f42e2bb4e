"""Starting an agent on the work of another one: its command, and the handoff as its first prompt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

# The command of each agent that begins an interactive session with a prompt, which is appended.
START: dict[str, tuple[str, ...]] = {
    "claude-code": ("claude",),
    "codex": ("codex",),
    "gemini-cli": ("gemini", "--prompt-interactive"),
    "qwen-code": ("qwen", "--prompt-interactive"),
    "opencode": ("opencode", "--prompt"),
    "copilot-cli": ("copilot", "--interactive"),
    "goose": ("goose", "run", "--interactive", "--text"),
    "cursor": ("cursor-agent",),
}
# One argument of a command may have 128 KiB on Linux and all of them 32 on Windows; a prompt should be read.
MOST_CHARS = 6_000
_MOST_PROMPT, _MOST_ANSWER, _MOST_FILES, _MOST_DECISIONS = 1_200, 1_500, 15, 8
_DECISION = re.compile(
    r"^\W*(?:decision|decided|we (?:decided|chose|keep|use)\b)[^\n]{5,}", re.IGNORECASE | re.MULTILINE
)
_PATH_KEYS = ("file_path", "filePath", "path", "notebook_path", "absolute_path", "filename")


class Step(Struct, frozen=True):
    """A turn of the session that is handed over."""

    prompt: str
    answer: str
    arguments: tuple[Any, ...] = ()
    """Those of its tool calls."""


class Session(Struct, frozen=True, kw_only=True):
    """The session that is handed over; its texts may leave the archive."""

    id: str
    title: str
    source: str
    branch: str | None
    completed: bool
    steps: Sequence[Step]


def handoff(session: Session) -> str:
    """The first prompt for another agent: task, latest prompt, decisions, files, last state."""
    first, last = session.steps[0], session.steps[-1]
    branch = f", on branch {session.branch}" if session.branch else ""
    opening = (
        f'Continue the work of an earlier session of {session.source}: "{session.title}"{branch}. What follows is a '
        "record of it, to be checked against the files. The whole of it is in Backstory: open it with the MCP server, "
        f"or run `backstory open {session.id}`."
    )
    parts = [opening, f"## Task\n{_cut(first.prompt, _MOST_PROMPT)}"]
    if len(session.steps) > 1:
        parts.append(f"## Latest prompt\n{_cut(last.prompt, _MOST_PROMPT)}")
    if decisions := list(dict.fromkeys(_decisions(session.steps)))[-_MOST_DECISIONS:]:
        parts.append("## Decisions\n" + "\n".join(f"- {_cut(line, 300)}" for line in decisions))
    if files := list(dict.fromkeys(_files(session.steps)))[-_MOST_FILES:]:
        parts.append("## Files\n" + "\n".join(f"- {_cut(file, 200)}" for file in files))
    answer = next((step.answer for step in reversed(session.steps) if step.answer), "")
    state = "finished" if session.completed else "not finished"
    parts.append(f"## Last state ({state})\n{_cut(answer, _MOST_ANSWER) or 'The agent gave no answer.'}")
    parts.append("First say in two sentences where the work stands and what you do next.")
    return _cut("\n\n".join(parts), MOST_CHARS)


def _decisions(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        yield from (found[0].strip(" -*#\t") for found in _DECISION.finditer(step.answer))


def _files(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        for arguments in step.arguments:
            if isinstance(arguments, dict):
                yield from (arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str))


def _cut(text: str, chars: int) -> str:
    text = text.strip()
    return text if len(text) <= chars else f"{text[: chars - 1]}…"
