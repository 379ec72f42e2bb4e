"""A glance at the archive: the last session of a project, with nothing imported but SQLite.

Hooks run at the start of every session of an agent and must not be felt there. Opening the archive takes a tenth of a
second of imports; this takes a hundredth.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

_BUSY_SECONDS = 0.05


class Glance(NamedTuple):
    """A session as one line tells of it. Times are milliseconds since the epoch."""

    id: str
    source: str
    title: str
    branch: str | None
    updated_at: int
    turns: int
    completed: bool


def last_session(home: Path, folders: Sequence[str], besides: str) -> Glance | None:
    """The latest session in one of these folders that has a title; not that with the agent's own id `besides`."""
    marks = ", ".join("?" * len(folders))
    query = f"""
        SELECT public_id, source, title, branch, updated_at, turn_count, completed FROM session
        WHERE event_count > 0 AND parent IS NULL AND title != '' AND (cwd IN ({marks}) OR last_cwd IN ({marks}))
        AND substr(key, instr(key, '/') + 1) != ? ORDER BY updated_at DESC LIMIT 1
    """
    return _one(home, query, (*folders, *folders, besides))


def this_session(home: Path, native_id: str) -> Glance | None:
    """The session with the agent's own id."""
    query = """
        SELECT public_id, source, title, branch, updated_at, turn_count, completed FROM session
        WHERE substr(key, instr(key, '/') + 1) = ? ORDER BY updated_at DESC LIMIT 1
    """
    return _one(home, query, (native_id,))


def _one(home: Path, query: str, values: Sequence[str]) -> Glance | None:
    with closing(connect(home / "archive.db")) as database:
        row = database.execute(query, values).fetchone()
    return Glance(*row) if row else None


def connect(path: Path) -> sqlite3.Connection:
    """A database to read from. Raises sqlite3.Error when there is none."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
