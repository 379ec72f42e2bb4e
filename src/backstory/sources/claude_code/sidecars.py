"""Small files beside a transcript that tell what it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..base import About
from .content import string
from .layout import agent_id, desktop_session

__all__ = ["read_sidecar"]

_MAX_BYTES = 1 << 20


def read_sidecar(path: Path) -> About | None:
    """A subagent's `agent-<id>.meta.json`, or Claude Desktop's `local_<id>.json`, of which only the title is read."""
    if agent_id(path):
        meta = _table(path.with_suffix(".meta.json"))
        title, call = string(meta, "description"), string(meta, "toolUseId")
        return About(title=title, title_rank=2 if title else 0, parent_call=call) if title or call else None
    if folder := desktop_session(path):
        title = string(_table(folder.with_name(f"{folder.name}.json")), "title")
        return About(title=title, title_rank=3) if title else None
    return None


def _table(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            value = msgspec.json.decode(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
