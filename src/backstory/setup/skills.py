"""The skill and the instructions for agents: when to search, how to open, how to leave a capsule."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from ..sources.agents import expand_root
from .documents import Refused
from .files import Entry, Journal, Outcome, check_writable, read_text

# The folders where agents look for skills.
FOLDERS = {
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


def skill_text() -> str:
    return (_TEXTS / "SKILL.md").read_text("utf-8")


def instructions_text() -> str:
    return (_TEXTS / "AGENTS.md").read_text("utf-8")


def add_skill(
    journal: Journal, agent: str, *, home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Outcome:
    """Write the skill into an agent's folder of skills."""
    file = expand_root(FOLDERS[agent], home or Path.home(), environ)[0] / "backstory" / "SKILL.md"
    return _write(journal, Entry(agent), file, skill_text())


def add_instructions(
    journal: Journal, agent: str, *, home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Outcome:
    """Add the instructions to an agent's file of instructions, as a block between two marks."""
    file = expand_root(INSTRUCTIONS[agent], home or Path.home(), environ)[0]
    try:
        text = drop_block(read_text(file), _BLOCK)
    except Refused as refused:
        return Outcome(agent=agent, file=str(file), action="refused", reason=str(refused))
    gap = "\n" if text else ""
    ending = "" if not text or text.endswith("\n") else "\n"
    block = f"{text}{ending}{gap}{_BEGIN}\n{instructions_text()}{_END}\n"
    return _write(journal, Entry(agent, item=_BLOCK), file, block)


def drop_block(text: str, item: str) -> str:
    """A text without Backstory's block, and without the blank line before it."""
    return re.sub(rf"\n?{re.escape(_BEGIN)}\n.*?{re.escape(_END)}\n?", "", text, count=1, flags=re.DOTALL)


def _write(journal: Journal, entry: Entry, file: Path, text: str) -> Outcome:
    outcome = Outcome(agent=entry.agent, file=str(file), action="unchanged")
    try:
        before = read_text(file)
        if before != text:
            check_writable(file)
            journal.write(file, text, entry)
            outcome.action = "updated" if before and entry.item is None else "added"
    except Refused as refused:
        outcome.action, outcome.reason = "refused", str(refused)
    return outcome
