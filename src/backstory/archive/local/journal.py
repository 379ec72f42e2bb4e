"""The journal of the local engine: the numbers that every change of a turn or an exchange has in the record."""

from __future__ import annotations

from pathlib import Path

from ...model import TurnRef
from ...sqlite import connect
from ..journal import Mark
from ..projection import Changes
from .database import newest_change

_CHANGED = """
SELECT change, session, ordinal FROM turn WHERE change > :after
UNION ALL SELECT change, session, 0 FROM exchange WHERE change > :after
"""


class LocalJournal:
    """Reads archive.db through a connection of its own."""

    def __init__(self, home: Path) -> None:
        path = home / "archive.db"
        self._db = connect(path, writable=False)
        file = path.stat()
        self._archive = f"{file.st_dev}:{file.st_ino}"

    def mark(self) -> Mark:
        (commit,) = self._db.execute("PRAGMA data_version").fetchone()
        return Mark(self._archive, newest_change(self._db), commit)

    def changes(self, after: int, limit: int) -> Changes | None:
        (until,) = self._db.execute(
            f"SELECT max(change) FROM (SELECT change FROM ({_CHANGED}) ORDER BY change LIMIT :limit)",
            {"after": after, "limit": limit},
        ).fetchone()
        if until is None:
            return None
        rows = self._db.execute(
            f"SELECT DISTINCT s.key, c.ordinal FROM ({_CHANGED}) c JOIN session s ON s.id = c.session "
            "WHERE c.change <= :until",
            {"after": after, "until": until},
        )
        return Changes(until, [TurnRef(key, ordinal) for key, ordinal in rows])

    def folders(self, key: str, turn: int) -> dict[bytes, str]:
        rows = self._db.execute(
            "SELECT e.uid, p.path FROM session s JOIN event e ON e.session = s.id JOIN project p ON p.id = e.project "
            "WHERE s.key = ? AND e.turn = ?",
            (key, turn),
        )
        return dict(rows.fetchall())

    def close(self) -> None:
        self._db.close()
