"""Codex's own database of turns, `thread_history_<n>.sqlite` beside the sessions: made from the rollouts, mostly.

When Codex is killed, the turn it was in has no end in the rollout. Codex notices when it opens the session again, and
notes the turn as interrupted here alone. The database is only read, never written or waited for, and may be missing.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

__all__ = ["ThreadHistory"]

_NAME = re.compile(r"thread_history_(\d{1,6})\.sqlite")
_SELECT = """
SELECT t.status, t.rollout_end_ordinal, p.next_rollout_ordinal
FROM thread_turns t LEFT JOIN thread_history_projection_state p USING (thread_id)
WHERE t.thread_id = ? AND t.turn_id = ?
"""


class ThreadHistory:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def was_interrupted(self, thread: str, turn: str, ordinal: int, *, is_last: bool) -> bool:
        """Whether the turn is noted as interrupted, as of the record with the number `ordinal`.

        If the database knows later records of the turn, or of the session whose last turn it is, the rollout goes on
        after what was read of it, and may tell of the end itself.
        """
        path = self._newest()
        if path is None:
            return False
        try:
            with closing(_connect(path)) as database:
                row = database.execute(_SELECT, (thread, turn)).fetchone()
        except sqlite3.Error:  # locked, damaged, or of another version
            return False
        if row is None or row[0] != "interrupted":
            return False
        _, end, following = row
        if isinstance(end, int) and end > ordinal:
            return False
        return not (is_last and isinstance(following, int) and following > ordinal + 1)

    def _newest(self) -> Path | None:
        try:
            found = [path for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        except OSError:
            return None
        return max(found, key=lambda path: int(path.stem.rpartition("_")[2]), default=None)


def _connect(path: Path) -> sqlite3.Connection:
    """A database without a write-ahead log, or with an empty one, is opened as a file that does not change: any other
    way, reading would leave files beside it."""
    try:
        log = path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:
        log = 0
    options = "mode=ro" if log else "mode=ro&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?{options}", uri=True, timeout=0)
