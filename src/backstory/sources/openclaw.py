"""OpenClaw: entries as Pi writes them, in a database for each of its agents, or, before that, in JSON Lines files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .base import Stored
from .database import has_table, open_database
from .decoding import decode
from .pi import Pi

_PAGE = 200
_MAX_ENTRY_BYTES = 64 << 20


class OpenClaw(Pi):
    name = "openclaw"

    def accepts(self, path: Path) -> bool:
        return path.name == "openclaw-agent.sqlite" or (path.suffix == ".jsonl" and ".checkpoint." not in path.name)

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return _sessions(path) if path.suffix == ".sqlite" else None

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        """Entries are only added. New ones are read from the prompt of their turn on. Some are compressed."""
        start = -1
        with open_database(path) as database:
            if since is not None:
                prompt = (
                    "SELECT max(seq) FROM transcript_events WHERE session_id = ? AND seq <= ?"
                    ' AND event_json LIKE \'%"role":"user"%\''
                )
                found = database.execute(prompt, (session, since.version + 1)).fetchone()[0]
                start = found - 1 if found is not None else start
                yield from _entries(
                    database.execute(_QUERY, (session, -1, 1)).fetchall()
                )  # the header, with the folder
            while True:
                rows = database.execute(_QUERY, (session, start, _PAGE)).fetchall()
                yield from _entries(rows)
                if len(rows) < _PAGE:
                    return
                start = rows[-1]["seq"]

    def resume(self, session: str) -> tuple[str, ...] | None:
        return ("openclaw", "agent", "--session-id", session)


def _sessions(path: Path) -> Iterator[Stored]:
    with open_database(path) as database:
        if not has_table(database, "transcript_events"):
            return
        # The primary key has both: the last entry of each session is found without a look at the others.
        latest = "SELECT session_id, max(seq) AS seq FROM transcript_events GROUP BY session_id"
        created = "SELECT created_at FROM transcript_events WHERE session_id = ? AND seq = ?"
        for row in database.execute(latest).fetchall():
            updated = database.execute(created, (row["session_id"], row["seq"])).fetchone()[0]
            yield Stored(session=str(row["session_id"]), updated=updated, version=row["seq"])


_QUERY = (
    "SELECT seq, event_json, event_zstd FROM transcript_events WHERE session_id = ? AND seq > ? ORDER BY seq LIMIT ?"
)


def _entries(rows: Iterable[Any]) -> Iterator[Any]:
    for row in rows:
        data = row["event_json"]
        if data is None and row["event_zstd"] is not None:
            import zstandard

            data = zstandard.ZstdDecompressor().decompress(row["event_zstd"], max_output_size=_MAX_ENTRY_BYTES)
        if data is not None:
            yield decode(data)
