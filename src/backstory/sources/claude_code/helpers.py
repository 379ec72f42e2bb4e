"""Runs that Claude Code starts for itself: to compact (`acompact`), to guess the next prompt (`aprompt_suggestion`).

They are no sessions anybody had. A compaction's result stands in the session it summarises; a guess was never said.
What remains of them is what they cost, which counts for their session.

One thing in them does matter. Versions up to 2.1.30 or so wrote a record that was pending when such a run started into
the run's file, and then left it out of the session's own: the answer that ended a turn, or a tool's response, stands
nowhere else. The next record of the session names it as its parent; there the parser puts it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from ...model import parse_time
from ..base import Item
from .content import readable
from .layout import is_helper, parts_of
from .usage import read_usage, usage_key

__all__ = ["HelperParser", "displaced_records", "holds_displaced"]

_MAX_LINE = 1 << 20
_MAX_RECORDS = 32
_ASSIGNMENTS = ("[SUGGESTION MODE:", "Your task is to create a detailed summary", "CRITICAL: Respond with TEXT ONLY")


class HelperParser:
    """Tells what the run cost, and nothing else."""

    def parse(self, record: Any) -> Iterable[Item]:
        if not isinstance(record, dict):
            raise ValueError("not a JSON object")
        message = record.get("message")
        if record.get("type") != "assistant" or not isinstance(message, dict):
            return ()
        usage = read_usage(message, record, usage_key(message, record, str(record.get("uuid") or "")))
        if usage is None:
            return ()
        usage.ts, usage.by_time = parse_time(record.get("timestamp")), True
        return (usage,)

    def finish(self) -> Iterable[Item]:
        return ()

    def state(self) -> dict[str, Any]:
        return {}


def displaced_records(folder: Path) -> dict[str, dict[str, Any]]:
    """Records of the session that stand in the files of its helpers, by uuid: what comes before their assignment."""
    found: dict[str, dict[str, Any]] = {}
    for place in parts_of(folder):
        try:
            paths = [path for path in (place / "subagents").iterdir() if is_helper(path)]
        except OSError:
            continue
        for path in sorted(paths):
            for record in _before_assignment(path):
                if isinstance(uuid := record.get("uuid"), str):
                    found[uuid] = record
    return found


def holds_displaced(path: Path) -> bool:
    """Whether a helper's file holds records of the session."""
    return bool(_before_assignment(path))


def _before_assignment(path: Path) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    try:
        with path.open("rb") as file:
            for _ in range(_MAX_RECORDS):
                record = msgspec.json.decode(file.readline(_MAX_LINE))
                message = record.get("message") if isinstance(record, dict) else None
                content = message.get("content") if isinstance(message, dict) else None
                if record.get("type") == "user" and readable(content).startswith(_ASSIGNMENTS):
                    return records
                if isinstance(message, dict):
                    records.append(record)
    except (OSError, ValueError, AttributeError):  # torn, or not what it seems: then nothing in it is trusted
        return []
    return []
