"""Capsules, handoff notes between sessions: the newest one of a workspace, for hooks.

A hook has 150 milliseconds: nothing is imported here but SQLite.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ...archive.glance import connect


class CapsuleGlance(NamedTuple):
    """The facts about a capsule in one line of a hook."""

    id: str
    title: str
    updated_at: int
    """Milliseconds since the epoch."""


def newest_capsule(home: Path, workspace: str) -> CapsuleGlance | None:
    """The newest capsule of a workspace, by its normalized name."""
    query = """
        SELECT id, COALESCE(title, name_raw, ''), updated_us / 1000 FROM capsules
        WHERE workspace_norm = ? AND deleted_us IS NULL ORDER BY updated_us DESC LIMIT 1
    """
    if not (home / "capsules.db").exists():
        return None
    with closing(connect(home / "capsules.db")) as database:
        row = database.execute(query, (workspace,)).fetchone()
    return CapsuleGlance(*row) if row else None
