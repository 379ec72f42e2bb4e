"""Tool calls in a line: the tool, and the arguments that tell what the call was about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...archive.base import EventRow

__all__ = ["summarise"]

# Tool -> the names its summary has, and the arguments they are taken from. All other tools are told by name alone.
_TOLD = {
    "Read": {"file": "file_path"},
    "Write": {"file": "file_path"},
    "Edit": {"file": "file_path"},
    "Bash": {"command": "command"},
    "Grep": {"pattern": "pattern"},
    "Glob": {"pattern": "pattern"},
    "Task": {"type": "subagent_type", "description": "description"},
}
_COMMAND_CHARS = 200


def summarise(call: EventRow, head: Callable[[str, int], str]) -> dict[str, Any]:
    """What the call lacks is null. `head` cuts a text for those who may see it."""
    tool = call.tool or ""
    given = call.arguments if isinstance(call.arguments, dict) else {}
    summary: dict[str, Any] = {"tool": tool}
    for name, argument in _TOLD.get(tool, {}).items():
        summary[name] = _text(given.get(argument))
    if tool == "Write":
        summary["chars"] = len(_text(given.get("content")) or "")
    if tool == "Bash" and summary["command"] is not None:
        summary["command"] = head(summary["command"], _COMMAND_CHARS)
    return summary


def _text(value: object) -> str | None:
    """Agents get arguments wrong now and then; what is no text is told as it was written."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
