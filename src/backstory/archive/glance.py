"""A glance at the archive: the last session of a project, with nothing imported but SQLite.

Hooks run at the start of every session of an agent and must not be felt there. Opening the archive takes a tenth of a
second of imports; this takes a hundredth. With an engine on a server, its writer keeps the newest sessions of this
machine in a small file for it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

_BUSY_SECONDS = 0.05
_ARCHIVE = "archive.db"
GLANCES = "glances.db"
"""The file with the newest sessions of this machine, where the archive is on a server."""


class Glance(NamedTuple):
    """The facts about a session in one line of a hook. Times are milliseconds since the epoch."""

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
    """The newest session of the files that there are."""
    found = []
    for path in (home / _ARCHIVE, home / GLANCES):
        if path.exists():
            with closing(connect(path)) as database:
                found += database.execute(query, values).fetchall()
    return max((Glance(*row) for row in found), key=lambda glance: glance.updated_at, default=None)


def connect(path: Path) -> sqlite3.Connection:
    """A database to read from. Raises sqlite3.Error when there is none."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS)
