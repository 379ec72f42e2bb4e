"""Agents that delete their transcripts: after how many days, and how many are next."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from ..sources.agents import expand_root
from .documents import Refused, read_entry
from .files import read_text

_DAY = 86_400
_SOON_DAYS = 7
_DAYS_OF = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0}


class Retention(Struct, frozen=True, kw_only=True):
    """The transcripts of an agent that deletes them."""

    agent: str
    title: str
    days: float
    setting: str
    """The setting that changes it, with its file."""
    files: int
    soon: int
    """Transcripts that it deletes within a week, or when it starts next."""


def retentions(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> list[Retention]:
    """The agents here that delete transcripts."""
    home = home or Path.home()
    claude = expand_root("${CLAUDE_CONFIG_DIR:-~/.claude}", home, environ)[0]
    gemini = expand_root("${GEMINI_CLI_HOME:-~}/.gemini", home, environ)[0]
    found = []
    for agent, title, folder, pattern, days, setting in (
        ("claude-code", "Claude Code", claude, "projects/*/*.jsonl", claude_days(claude), "cleanupPeriodDays"),
        ("gemini-cli", "Gemini CLI", gemini, "tmp/*/chats/session-*", _gemini_days(gemini), "general.sessionRetention"),
    ):
        times = [path.stat().st_mtime for path in folder.glob(pattern)]
        if days is None or not times:
            continue
        limit = time.time() + (_SOON_DAYS - days) * _DAY
        found.append(
            Retention(
                agent=agent,
                title=title,
                days=days,
                setting=f"{setting} in {folder / 'settings.json'}",
                files=len(times),
                soon=sum(changed < limit for changed in times),
            )
        )
    return found


def claude_days(folder: Path) -> float:
    """The days after which Claude Code deletes the transcripts below its folder."""
    days = _setting(folder, "cleanupPeriodDays")
    return float(days) if isinstance(days, int | float) and not isinstance(days, bool) else 30.0


def _gemini_days(folder: Path) -> float | None:
    """It deletes sessions only where it is set to."""
    if _setting(folder, "general", "sessionRetention", "enabled") is not True:
        return None
    age = re.fullmatch(r"(\d+)([hdwm])", str(_setting(folder, "general", "sessionRetention", "maxAge")))
    return int(age[1]) * _DAYS_OF[age[2]] if age else None


def _setting(folder: Path, *path: str) -> object:
    try:
        value: object = read_entry(read_text(folder / "settings.json"), "json", path)
        return value
    except Refused:
        return None
