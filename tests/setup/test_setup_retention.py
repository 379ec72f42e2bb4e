"""Agents that delete transcripts: after how many days, and how many are next."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from backstory.setup.agents import retentions

DAY = 86_400


def write(home: Path, name: str, days_old: float) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}\n")
    changed = time.time() - days_old * DAY
    os.utime(path, (changed, changed))


class TestRetentions:
    @pytest.mark.parametrize(
        ("settings", "days", "soon"),
        [
            (None, 30, 2),
            ('{\n  // long\n  "cleanupPeriodDays": 365\n}', 365, 0),
            ('{"cleanupPeriodDays": true}', 30, 2),
            ("{broken", 30, 2),
        ],
    )
    def test_claude_code(self, tmp_path: Path, settings: str | None, days: float, soon: int) -> None:
        """Its setting, or 30 days; due within a week are those that are nearly as old."""
        for number, days_old in enumerate((1, 25, 31)):
            write(tmp_path, f".claude/projects/-shop/{number}.jsonl", days_old)
        if settings is not None:
            (tmp_path / ".claude/settings.json").write_text(settings)

        (found,) = retentions(tmp_path, {})

        assert (found.agent, found.days, found.files, found.soon) == ("claude-code", days, 3, soon)
        assert "cleanupPeriodDays" in found.setting

    def test_gemini_cli(self, tmp_path: Path) -> None:
        """Only where it is enabled."""
        write(tmp_path, ".gemini/tmp/shop/chats/session-1.json", 10)
        assert retentions(tmp_path, {}) == []

        settings = '{"general": {"sessionRetention": {"enabled": true, "maxAge": "2w"}}}'
        (tmp_path / ".gemini/settings.json").write_text(settings)

        (found,) = retentions(tmp_path, {})
        assert (found.agent, found.days, found.soon) == ("gemini-cli", 14, 1)

    def test_nothing_to_delete(self, tmp_path: Path) -> None:
        """An agent without transcripts, or none at all."""
        assert retentions(tmp_path, {}) == []
