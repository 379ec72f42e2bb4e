"""Reads of the record: rows by their keys and places, shared by the archive and its writer."""

from __future__ import annotations

import heapq
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
from typing import Any

import msgspec

from ...model import EVENT_TYPES, EventType, session_mark
from ...sqlite import TimeoutExceeded, select_in, time_limit
from ..base import (
    ALL_FILES,
    EVERYTHING,
    ArchiveError,
    DeadlineExceeded,
    EventRow,
    Exchange,
    ExchangesRequest,
    FileRow,
    FilesRequest,
    FolderRow,
    Folders,
    Head,
    Part,
    SessionRow,
    SessionsRequest,
    TurnRow,
    any_folder,
)
from ..exchanges import with_events
from ..rows import STAMP_COLUMNS, read_stamp
from .bodies import Bodies
from .database import mark, stored_dictionary
from .rows import (
    EVENT_COLUMNS,
    EXCHANGE_COLUMNS,
    FILE_COLUMNS,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
    columns,
    read_event,
    read_exchange,
    read_file,
    read_session,
    read_turn,
    read_usage,
    split,
)

SESSION = columns("s", SESSION_COLUMNS)
TURN = columns("t", TURN_COLUMNS)
EVENT = columns("e", EVENT_COLUMNS)
_BARE_EVENT = EVENT.removesuffix("e.body") + "NULL"
_MAX_NUMBER = (1 << 63) - 1  # of SQLite
EXCHANGES_AT_ONCE = 100
_LAST_CHARACTER = chr(sys.maxunicode)
_ordinal = attrgetter("ordinal")

# The condition of the index `session_folder`.
_IN_FOLDERS = "source = :source AND folder IS NOT NULL AND parent IS NULL AND last_at > 0"
_LATEST = f"SELECT last_at, id FROM session WHERE {_IN_FOLDERS}"
_LATEST_FIRST = "ORDER BY last_at DESC, id DESC"
# From one folder straight to the next in the index: there are many more sessions than folders.
_FOLDERS = (
    f"WITH RECURSIVE step (folder) AS (SELECT min(folder) FROM session WHERE {_IN_FOLDERS} UNION ALL "
    f"SELECT (SELECT min(folder) FROM session WHERE {_IN_FOLDERS} AND folder > step.folder) FROM step "
    "WHERE step.folder IS NOT NULL) SELECT folder FROM step WHERE folder IS NOT NULL"
)
_EXCHANGES_OF = (
    f"SELECT {columns('x', EXCHANGE_COLUMNS)}, {SESSION} FROM exchange x JOIN session s ON s.id = x.session "
    "WHERE s.key = ? AND x.number >= ? ORDER BY x.number LIMIT ?"
)
# Nearly all prompts begin their turn, and nearly all responses end it. Those lie beside one another, while uids are
# all over the archive. Both have their text as the body.
HEADS = ", ".join(
    f"coalesce((SELECT h.body FROM event h WHERE h.session = t.session AND h.turn = t.ordinal AND h.ordinal = {place} "
    f"AND h.uid = t.{uid}), (SELECT h.body FROM event h WHERE h.uid = t.{uid}))"
    for place, uid in (("1", "prompt"), ("t.event_count", "terminal"))
)


class Reading:
    """`connection` gives the connection to read with: of this thread, or of the writer."""

    def __init__(self, connection: Callable[[], sqlite3.Connection]) -> None:
        self._connection = connection
        self._bodies = Bodies(lambda: stored_dictionary(connection()))

    @property
    def _db(self) -> sqlite3.Connection:
        return self._connection()

    @contextmanager
    def _until(self, deadline: float | None) -> Iterator[sqlite3.Connection]:
        try:
            with time_limit(self._db, deadline):
                yield self._db
        except TimeoutExceeded:
            raise DeadlineExceeded("the request took too long") from None

    # Sessions

    def session(self, key: str) -> SessionRow | None:
        return next(iter(self.sessions(SessionsRequest(keys=(key,), empty=True))), None)

    def sessions(self, request: SessionsRequest) -> list[SessionRow]:
        if request.folders is not None:
            return self._in_folders(request.source or "", request.folders, request.limit)
        conditions, parameters = _session_conditions(request)
        order = "ASC" if request.ascending else "DESC"
        with self._until(request.deadline) as db:
            rows = db.execute(
                f"SELECT {SESSION} FROM session s WHERE {' AND '.join(conditions)} "
                f"ORDER BY s.{request.order} {order}, s.public_id {order} LIMIT :limit",
                {**parameters, "limit": _MAX_NUMBER if request.limit is None else request.limit},
            ).fetchall()
        return [read_session(row) for row in rows]

    def _in_folders(self, source: str, folders: Folders, limit: int | None) -> list[SessionRow]:
        db = self._db
        if folders is any_folder:
            found: Iterable[tuple[int, int]] = db.execute(f"{_LATEST} {_LATEST_FIRST}", {"source": source})
        else:
            # Each folder has its sessions in order in the index, and is asked for no more of them than are needed.
            per_folder = f"{_LATEST} AND folder = :folder {_LATEST_FIRST}"
            names = [name for (name,) in db.execute(_FOLDERS, {"source": source}) if folders(name)]
            cursors = [db.execute(per_folder, {"source": source, "folder": folder}) for folder in names]
            found = heapq.merge(*cursors, reverse=True)
        ids = [id for _, id in islice(found, min(limit or sys.maxsize, sys.maxsize))]
        sessions = self._sessions_by_number(ids)
        return [sessions[id] for id in ids if id in sessions]

    def _sessions_by_number(self, ids: Sequence[int]) -> dict[int, SessionRow]:
        rows = select_in(self._db, f"SELECT s.id, {SESSION} FROM session s WHERE s.id IN ({{}})", ids)
        return {id: read_session(values) for id, *values in rows}

    # Turns

    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]:
        rows = self._part(
            f"SELECT {TURN}, {HEADS if part.heads else 'NULL, NULL'} FROM turn t JOIN session s ON s.id = t.session "
            "WHERE s.key = :key",
            {"key": key},
            part,
            "t.ordinal",
            having(part.types),
            "SELECT a.turn FROM event a WHERE a.session = s.id AND a.uid = :around"
            if isinstance(part.around, bytes)
            else "SELECT a.ordinal FROM turn a WHERE a.session = s.id AND a.ordinal = :around",
        )
        turns = sorted((self._turn(key, row, part.heads) for row in rows), key=_ordinal)
        if part.usage:
            self._add_usage(key, turns)
        return turns

    def _turn(self, key: str, row: Sequence[Any], heads: int) -> TurnRow:
        values, (prompt, response) = split(row, TURN_COLUMNS)
        turn = read_turn(key, values)
        if heads:
            turn.prompt_head = self._head(prompt, heads) if turn.prompt is not None else None
            turn.response_head = self._head(response, heads) if turn.response is not None else None
        return turn

    def _head(self, body: str | bytes | None, chars: int) -> Head:
        text = self._bodies.unpack(body)
        return Head(text[:chars], len(text) > chars)

    def _add_usage(self, key: str, turns: Sequence[TurnRow]) -> None:
        rows = self._db.execute(
            f"SELECT {columns('u', USAGE_COLUMNS)} FROM usage u JOIN session s ON s.id = u.session WHERE s.key = ? "
            "ORDER BY u.turn, u.ts",
            (key,),
        )
        by_ordinal = {turn.ordinal: turn for turn in turns}
        for usage in (read_usage(key, row) for row in rows):
            if (turn := by_ordinal.get(max(usage.turn, 1))) is not None:
                turn.usage.append(usage)

    def turn_keys(self, key: str) -> frozenset[str]:
        rows = self._db.execute(
            "SELECT t.turn_key FROM turn t JOIN session s ON s.id = t.session "
            "WHERE s.key = ? AND t.turn_key IS NOT NULL UNION SELECT turn_key FROM forgotten_turn WHERE session = ?",
            (key, mark(session_mark(key))),
        )
        return frozenset(turn_key for (turn_key,) in rows)

    # Events

    def events(self, key: str | None = None, turn: int | None = None, part: Part = EVERYTHING) -> list[EventRow]:
        select = f"SELECT s.key, {EVENT if part.texts else _BARE_EVENT} FROM event e JOIN session s ON s.id = e.session"
        if part.uids is not None:
            rows = select_in(self._db, f"{select} WHERE e.uid IN ({{}}) AND {of_types(part.types)}", part.uids)
            return self._read_events(rows, part)
        rows = self._part(
            f"{select} WHERE s.key = :key AND e.turn = :turn",
            {"key": key, "turn": turn},
            part,
            "e.ordinal",
            of_types(part.types),
            "SELECT a.ordinal FROM event a WHERE a.session = s.id AND a.turn = :turn AND a."
            + ("uid = :around" if isinstance(part.around, bytes) else "ordinal = :around"),
        )
        return sorted(self._read_events(rows, part), key=_ordinal)

    def _read_events(self, rows: Iterable[Sequence[Any]], part: Part) -> list[EventRow]:
        events = [read_event(key, values, self._bodies) for key, *values in rows]
        if not part.texts:
            for event in events:
                event.text = ""  # a call without arguments reads `Bash()`
        return events

    def _part(
        self, select: str, parameters: dict[str, Any], part: Part, ordinal: str, types: str, anchor: str
    ) -> list[Any]:
        """The rows of a part; `anchor` selects the ordinal of the row that `part.around` names, or nothing."""
        if part.around is None:
            return self._db.execute(
                f"{select} AND {ordinal} > :above AND {ordinal} < :below AND {types} ORDER BY {ordinal} LIMIT :limit",
                {
                    **parameters,
                    "above": part.above,
                    "below": _MAX_NUMBER if part.below is None else part.below,
                    "limit": _MAX_NUMBER if part.limit is None else part.limit,
                },
            ).fetchall()
        before = f"{select} AND {ordinal} < ({anchor}) AND {types} ORDER BY {ordinal} DESC LIMIT :before"
        after = f"{select} AND {ordinal} > ({anchor}) AND {types} ORDER BY {ordinal} LIMIT :after"
        return self._db.execute(
            f"SELECT * FROM ({before}) UNION ALL SELECT * FROM ({select} AND {ordinal} = ({anchor})) "
            f"UNION ALL SELECT * FROM ({after})",
            {**parameters, "around": part.around, "before": part.before, "after": part.after},
        ).fetchall()

    # Exchanges

    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        if request.query is not None:
            raise ArchiveError("exchanges are searched in the archive, not in its writer")
        limit = _MAX_NUMBER if request.limit is None else min(request.limit, _MAX_NUMBER)
        rows = self._db.execute(_EXCHANGES_OF, (request.session, min(request.first, _MAX_NUMBER), limit))
        while portion := rows.fetchmany(EXCHANGES_AT_ONCE):
            yield from self._read_exchanges(portion, request)

    def _read_exchanges(self, rows: Sequence[Sequence[Any]], request: ExchangesRequest) -> list[Exchange]:
        """Exchanges from their values and those of their sessions, with the events in them."""
        found = []
        for row in rows:
            values, session_values, _ = split(row, EXCHANGE_COLUMNS, SESSION_COLUMNS)
            session = read_session(session_values)
            found.append((read_exchange(session.key, values, self._bodies), session))
        return with_events(found, request, lambda part: self.events(part=part))

    # Files, and what was forgotten

    def files(self, request: FilesRequest = ALL_FILES) -> Iterator[FileRow]:
        bare = "iif(state IS NULL, NULL, x'7b7d')"  # an empty object
        names = [bare if name == "state" and not request.states else name for name in FILE_COLUMNS]
        select = f"SELECT {', '.join(STAMP_COLUMNS if request.stamps else names)} FROM file WHERE "
        select += "NOT missing AND " if request.stamps else ""
        if request.paths is not None:
            rows: Iterable[Any] = select_in(self._db, f"{select} path IN ({{}})", request.paths)
        else:
            order, limit = ("path", request.limit) if request.newest is None else ("mtime_ns DESC", request.newest)
            # All stamps, in no order: they are in an index, which is a tenth of the table.
            ordered = limit is not None or not request.stamps
            rows = self._db.execute(
                f"{select}(:source IS NULL OR source = :source) "
                # From the separator to the character after it.
                + ("AND path >= :below || '/' AND path < :below || '0' " if request.below is not None else "")
                + ("AND path > :after " if request.after is not None else "")
                + ("AND path IN (SELECT path FROM file_name WHERE name = :naming) " if request.naming else "")
                + (f"ORDER BY {order} LIMIT :limit" if ordered else ""),
                {
                    "source": request.source,
                    "below": request.below,
                    "after": request.after,
                    "naming": request.naming,
                    "limit": _MAX_NUMBER if limit is None else limit,
                },
            )
        yield from map(read_stamp if request.stamps else read_file, rows)

    def _folders(self) -> tuple[FolderRow, ...]:
        rows = self._db.execute("SELECT path, source, mtime_ns FROM folder ORDER BY path, source")
        return tuple(FolderRow(*row) for row in rows)

    def forgotten(self, digests: Sequence[bytes]) -> frozenset[bytes]:
        if not digests:
            return frozenset()
        marks = {mark(digest): digest for digest in digests}
        rows = self._db.execute(
            "SELECT mark FROM forgotten WHERE mark IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(list(marks)).decode(),),
        )
        return frozenset(marks[number] for (number,) in rows)


def of_types(types: Sequence[EventType]) -> str:
    """The condition that an event is of one of these types."""
    return "true" if len(types) == len(EVENT_TYPES) else f"e.type IN ({', '.join(str(kind.code) for kind in types)})"


def having(types: Sequence[EventType]) -> str:
    """The condition that a turn has an event of one of these types."""
    return "true" if len(types) == len(EVENT_TYPES) else f"t.types GLOB '*[{''.join(str(k.code) for k in types)}]*'"


def _session_conditions(request: SessionsRequest) -> tuple[list[str], dict[str, Any]]:
    parameters = {
        "start": request.start,
        "end": request.end,
        "mode": request.mode,
        "source": request.source,
        "project": request.project,
        "parent": request.parent,
    }
    tests = {
        "start": "s.updated_at >= :start",
        "end": "s.started_at < :end",
        "mode": "s.mode = :mode",
        "source": "s.source = :source",
        "project": "(instr(casefold(s.cwd), casefold(:project)) > 0"
        " OR instr(casefold(s.project), casefold(:project)) > 0)",
        "parent": "s.parent = :parent",
    }
    parameters = {name: value for name, value in parameters.items() if value is not None}
    conditions = ["true" if request.empty else "s.event_count > 0", *(tests[name] for name in parameters)]
    if request.placed:
        conditions.append("s.project IS NOT NULL")
    for column, values in (("key", request.keys), ("cwd", request.cwds)):
        if values is not None:
            conditions.append(f"s.{column} IN (SELECT value FROM json_each(:{column}s))")
            parameters[f"{column}s"] = msgspec.json.encode(values).decode()
    if request.prefix is not None:
        # A key is `<source>/<the agent's own id>`: one range of keys per source.
        conditions.append(
            "s.id IN (SELECT k.id FROM source o CROSS JOIN session k ON k.key >= o.name || '/' || :prefix "
            "AND k.key < o.name || '/' || :prefix || :last)"
        )
        parameters |= {"prefix": request.prefix, "last": _LAST_CHARACTER}
    if request.after is not None:
        beyond = ">" if request.ascending else "<"
        conditions.append(f"(s.{request.order}, s.public_id) {beyond} (:after_time, :after_id)")
        parameters |= dict(zip(("after_time", "after_id"), request.after, strict=True))
    return conditions, parameters
