"""OpenCode at work: a database that is written as the agent writes it, a row at a time, with the times of now."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, parent_id text, directory text, title text, version text,
    time_created integer, time_updated integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, time_updated integer, data text);
CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, time_created integer,
    time_updated integer, data text);
CREATE INDEX message_session_time_created_id_idx ON message (session_id, time_created, id);
CREATE INDEX part_message_id_id_idx ON part (message_id, id);
CREATE INDEX part_session_idx ON part (session_id);
CREATE TABLE event_sequence (aggregate_id text PRIMARY KEY, seq integer NOT NULL);
"""


class OpenCode:
    """Holds its connection open, as the agent does: new rows are in the write-ahead log."""

    def __init__(self, path: Path, *, mode: str = "wal", counts: bool = True) -> None:
        """`counts`: as newer versions, which count the changes of a session."""
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        self.path = path
        self.database = sqlite3.connect(path, isolation_level=None, timeout=10)
        self.database.execute(f"PRAGMA journal_mode = {mode}")
        if is_new:
            self.database.executescript(SCHEMA)
        if not counts:
            self.database.execute("DROP TABLE event_sequence")
        self._counts = counts

    def session(self, session: str, title: str = "") -> None:
        now = _now()
        self._write("session", id=session, directory="/home/ann/demo", title=title, time_created=now, time_updated=now)

    def prompt(self, session: str, number: int, text: str) -> None:
        self.message(session, f"msg_{number:04}", role="user")
        self.part(session, f"msg_{number:04}", f"prt_{number:04}", type="text", text=text)

    def answer(self, session: str, number: int, text: str, *, to: int, done: bool = True) -> None:
        finish = {"finish": "stop", "time": {"created": _now(), "completed": _now()}} if done else {}
        self.message(session, f"msg_{number:04}", role="assistant", parentID=f"msg_{to:04}", modelID="m", **finish)
        self.part(session, f"msg_{number:04}", f"prt_{number:04}", type="text", text=text)

    def message(self, session: str, message: str, **data: Any) -> None:
        now = _now()
        row = {"id": message, "session_id": session, "time_created": now, "time_updated": now}
        self._write("message", **row, data=json.dumps({"time": {"created": now}, **data}))
        self._changed(session)

    def part(self, session: str, message: str, part: str, **data: Any) -> None:
        now = _now()
        row = {"id": part, "message_id": message, "session_id": session, "time_created": now, "time_updated": now}
        self._write("part", **row, data=json.dumps(data))
        self._changed(session)

    def _changed(self, session: str) -> None:
        if self._counts:
            count = "INSERT INTO event_sequence VALUES (?, 1) ON CONFLICT DO UPDATE SET seq = seq + 1"
            self.database.execute(count, (session,))
        self.database.execute("UPDATE session SET time_updated = ? WHERE id = ?", (_now(), session))

    def _write(self, table: str, **row: Any) -> None:
        """Write a row, or what it has become, in its place."""
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        values = ", ".join(f"{name} = excluded.{name}" for name in row if name not in ("id", "time_created"))
        query = f"INSERT INTO {table} ({names}) VALUES ({marks}) ON CONFLICT DO UPDATE SET {values}"
        self.database.execute(query, tuple(row.values()))

    def close(self) -> None:
        self.database.close()


def _now() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":  # another process, which writes so many turns as fast as it can
    agent = OpenCode(Path(sys.argv[1]))
    agent.session("ses_busy")
    for turn in range(int(sys.argv[2])):
        agent.prompt("ses_busy", 2 * turn, f"question {turn}")
        for length in (1, 2, 3):
            agent.answer("ses_busy", 2 * turn + 1, " ".join(["answer"] * length) + f" {turn}", to=2 * turn)
    agent.close()
