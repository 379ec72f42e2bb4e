"""What the record knows of sessions: by key, by time, by folder, and what is beside them."""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterable
from itertools import islice

from ...model import session_id
from ..base import Folders, SessionRow, SessionsRequest
from .connections import Connections
from .rows import SESSION_COLUMNS, read_session

__all__ = ["Sessions"]

_SESSION = ", ".join(f"s.{name}" for name in SESSION_COLUMNS)
# What the index `session_folder` is of.
_IN_FOLDERS = "source = :source AND folder IS NOT NULL AND parent IS NULL AND last_at > 0"


class Sessions(Connections):
    def session(self, key: str) -> SessionRow | None:
        row = self._db.execute(f"SELECT {_SESSION} FROM session s WHERE s.key = ?", (key,)).fetchone()
        return read_session(row) if row else None

    def sessions(self, request: SessionsRequest) -> list[SessionRow]:
        order, beyond = ("ASC", ">") if request.ascending else ("DESC", "<")
        conditions = ["s.event_count > 0", "s.updated_at >= ?", "s.started_at < ?"]
        parameters: list[object] = [request.start, request.end]
        if request.after is not None:
            conditions.append(f"(s.updated_at, s.public_id) {beyond} (?, ?)")
            parameters.extend(request.after)
        if request.mode is not None:
            conditions.append("s.mode = ?")
            parameters.append(request.mode)
        if request.source is not None:
            conditions.append("s.source = ?")
            parameters.append(request.source)
        if request.project is not None:
            conditions.append("instr(casefold(s.cwd), casefold(?)) > 0")
            parameters.append(request.project)
        with self._until(request.deadline) as db:
            rows = db.execute(
                f"SELECT {_SESSION} FROM session s WHERE {' AND '.join(conditions)} "
                f"ORDER BY s.updated_at {order}, s.public_id {order} LIMIT ?",
                (*parameters, request.limit),
            ).fetchall()
        return [read_session(row) for row in rows]

    def conversations(self, source: str, folders: Folders | None, limit: int) -> list[SessionRow]:
        db = self._db
        latest = f"SELECT last_at, id FROM session WHERE {_IN_FOLDERS}"
        order = "ORDER BY last_at DESC, id DESC"
        if folders is None:
            found: Iterable[tuple[int, int]] = db.execute(f"{latest} {order}", {"source": source})
        else:
            # Each folder has its sessions in order in the index, and is asked for no more of them than are needed.
            per_folder = f"{latest} AND folder = :folder {order}"
            names = filter(folders, self._folders(source))
            cursors = [db.execute(per_folder, {"source": source, "folder": folder}) for folder in names]
            found = heapq.merge(*cursors, reverse=True)
        ids = [id for _, id in islice(found, min(limit, sys.maxsize))]
        rows = self._in(db, f"SELECT s.id, {_SESSION} FROM session s WHERE s.id IN ({{}})", ids)
        sessions = {id: read_session(values) for id, *values in rows}
        return [sessions[id] for id in ids if id in sessions]

    def _folders(self, source: str) -> list[str]:
        # From one folder straight to the next in the index: there are many more sessions than folders.
        rows = self._db.execute(
            f"WITH RECURSIVE step (folder) AS (SELECT min(folder) FROM session WHERE {_IN_FOLDERS} UNION ALL "
            f"SELECT (SELECT min(folder) FROM session WHERE {_IN_FOLDERS} AND folder > step.folder) FROM step "
            "WHERE step.folder IS NOT NULL) SELECT folder FROM step WHERE folder IS NOT NULL",
            {"source": source},
        )
        return [folder for (folder,) in rows]

    def neighbours(self, session: SessionRow) -> tuple[str | None, str | None]:
        place = (session.source, session.cwd, session.started_at, session_id(session.key))
        found = []
        for beyond, order in (("<", "DESC"), (">", "ASC")):
            row = self._db.execute(
                "SELECT key FROM session WHERE event_count > 0 AND source = ? AND cwd IS ? "
                f"AND (started_at, public_id) {beyond} (?, ?) ORDER BY started_at {order}, public_id {order} LIMIT 1",
                place,
            ).fetchone()
            found.append(row[0] if row else None)
        return found[0], found[1]

    def children(self, key: str) -> list[SessionRow]:
        rows = self._db.execute(
            f"SELECT {_SESSION} FROM session s WHERE s.parent = ? AND s.event_count > 0 "
            "ORDER BY s.started_at, s.public_id",
            (key,),
        )
        return [read_session(row) for row in rows]
