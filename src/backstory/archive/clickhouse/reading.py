"""Reads of rows by their keys and places, shared by the archive and its writer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ...model import EVENT_TYPES, EventType, session_mark
from ..base import (
    ALL_FILES,
    EVERYTHING,
    ArchiveError,
    EventRow,
    Exchange,
    ExchangesRequest,
    FileRow,
    FilesRequest,
    FolderRow,
    Head,
    Part,
    SessionRow,
    SessionsRequest,
    SyncState,
    TurnRow,
    any_folder,
)
from ..exchanges import with_events
from ..rows import STAMP_COLUMNS, read_stamp
from ..spantexts import Ordinals
from .rows import (
    EXCHANGE_COLUMNS,
    FILE_COLUMNS,
    USAGE_COLUMNS,
    columns,
    read_event,
    read_exchange,
    read_file,
    read_session,
    read_turn,
    read_usage,
)
from .server import Server, hexed

SESSION, TURN, EVENT = "s.row", "t.row", "e.row, e.body"
_BARE_EVENT = "e.row, ''"
# Events by their uids, for `Server.rows_in`. The table of places is sorted by them.
BY_UID = (
    "(e.session, e.turn, e.ordinal) GLOBAL IN (SELECT session, turn, ordinal FROM place WHERE uid IN ({0})) "
    "AND e.uid IN ({0})"
)
_MAX_NUMBER = (1 << 63) - 1
EXCHANGES_AT_ONCE = 100
_RANGES_AT_ONCE = 100
# Exchanges beyond the count were made by an older version (`SessionRow.provisional`).
CURRENT_EXCHANGE = "(s.exchange_count = 0 OR x.number < s.exchange_count)"
_IN_FOLDERS = "s.source = %(source)s AND s.folder IS NOT NULL AND s.parent IS NULL AND s.last_at > 0"


class Reading:
    """`machine` is the id of the home folder: files and the state of the sync are those of one machine."""

    def __init__(self, server: Server, machine: str) -> None:
        self._server = server
        self._machine = machine

    # Sessions

    def session(self, key: str) -> SessionRow | None:
        return next(iter(self.sessions(SessionsRequest(keys=(key,), empty=True))), None)

    def sessions(self, request: SessionsRequest) -> list[SessionRow]:
        if request.folders is not None:
            return self._in_folders(request)
        conditions, parameters = _session_conditions(request)
        order = "ASC" if request.ascending else "DESC"
        rows = self._server.rows(
            f"SELECT {SESSION} FROM session s FINAL WHERE {' AND '.join(conditions)} "
            f"ORDER BY s.{request.order} {order}, s.public_id {order} LIMIT {row_limit(request.limit)}",
            parameters,
            request.deadline,
        )
        return [read_session(row) for row in rows]

    def _in_folders(self, request: SessionsRequest) -> list[SessionRow]:
        parameters: dict[str, Any] = {"source": request.source or ""}
        chosen = ""
        if request.folders is not None and request.folders is not any_folder:
            names = self._server.rows(f"SELECT DISTINCT s.folder FROM session s FINAL WHERE {_IN_FOLDERS}", parameters)
            parameters["folders"] = tuple(name for (name,) in names if request.folders(name))
            if not parameters["folders"]:
                return []
            chosen = " AND s.folder IN %(folders)s"
        rows = self._server.rows(
            f"SELECT {SESSION} FROM session s FINAL WHERE {_IN_FOLDERS}{chosen} "
            f"ORDER BY s.last_at DESC, s.key DESC LIMIT {row_limit(request.limit)}",
            parameters,
        )
        return [read_session(row) for row in rows]

    # Turns

    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]:
        rows = self._part(
            f"SELECT {TURN} FROM turn t FINAL WHERE t.session = %(key)s",
            {"key": key},
            part,
            "t.ordinal",
            having(part.types),
            f"SELECT max(a.turn) FROM event a FINAL WHERE a.session = %(key)s AND a.uid = {hexed([part.around])}"
            if isinstance(part.around, bytes)
            else "SELECT max(a.ordinal) FROM turn a FINAL WHERE a.session = %(key)s AND a.ordinal = %(around)s",
        )
        turns = [read_turn(row) for row in rows]
        if part.heads:
            self._add_heads(turns, part.heads)
        if part.usage:
            self._add_usage(key, turns)
        return turns

    def _add_heads(self, turns: Sequence[TurnRow], chars: int) -> None:
        uids = [uid for turn in turns for uid in (turn.prompt, turn.response) if uid is not None]
        # One character more than is shown says that there is more.
        rows = self._server.rows_in(
            f"SELECT e.uid, substringUTF8(e.body, 1, {chars + 1}) FROM event e FINAL WHERE {BY_UID}", uids
        )
        texts: dict[bytes | None, str] = dict(rows)

        def head(uid: bytes | None) -> Head | None:
            text = texts.get(uid, "")
            return None if uid is None else Head(text[:chars], len(text) > chars)

        for turn in turns:
            turn.prompt_head, turn.response_head = head(turn.prompt), head(turn.response)

    def _add_usage(self, key: str, turns: Sequence[TurnRow]) -> None:
        rows = self._server.rows(
            f"SELECT {columns('u', USAGE_COLUMNS)} FROM usage u FINAL WHERE u.session = %(key)s ORDER BY u.turn, u.ts",
            {"key": key},
        )
        by_ordinal = {turn.ordinal: turn for turn in turns}
        for usage in map(read_usage, rows):
            if (turn := by_ordinal.get(max(usage.turn, 1))) is not None:
                turn.usage.append(usage)

    def turn_keys(self, key: str) -> frozenset[str]:
        rows = self._server.rows(
            "SELECT assumeNotNull(turn_key) FROM turn FINAL WHERE session = %(key)s AND turn_key IS NOT NULL "
            "UNION ALL SELECT turn_key FROM forgotten_turn WHERE session = %(mark)s",
            {"key": key, "mark": session_mark(key).hex()},
        )
        return frozenset(turn_key for (turn_key,) in rows)

    # Events

    def events(self, key: str | None = None, turn: int | None = None, part: Part = EVERYTHING) -> list[EventRow]:
        select = f"SELECT {EVENT if part.texts else _BARE_EVENT} FROM event e FINAL"
        if part.uids is not None:
            rows: Iterable[Sequence[Any]] = self._server.rows_in(
                f"{select} WHERE {BY_UID} AND {of_types(part.types)}", part.uids
            )
        else:
            rows = self._part(
                f"{select} WHERE e.session = %(key)s AND e.turn = %(turn)s",
                {"key": key, "turn": turn},
                part,
                "e.ordinal",
                of_types(part.types),
                "SELECT max(a.ordinal) FROM event a FINAL WHERE a.session = %(key)s AND a.turn = %(turn)s AND "
                + (f"a.uid = {hexed([part.around])}" if isinstance(part.around, bytes) else "a.ordinal = %(around)s"),
            )
        events = [read_event(row) for row in rows]
        if not part.texts:
            for event in events:
                event.text = ""  # a call without arguments reads `Bash()`
        return events

    def _events_between(self, ranges: Sequence[Ordinals[str]]) -> Iterator[list[EventRow]]:
        """The events of each range, read together."""
        found: dict[tuple[str, int], list[EventRow]] = defaultdict(list)
        for start in range(0, len(ranges), _RANGES_AT_ONCE):
            values: dict[str, str] = {}
            tests = []
            for number, (session, turn, first, last) in enumerate(ranges[start : start + _RANGES_AT_ONCE]):
                values[f"s{number}"] = session
                tests.append(
                    f"(e.session = %(s{number})s AND e.turn = {turn} AND e.ordinal BETWEEN {first} AND {last})"
                )
            sql = f"SELECT {EVENT} FROM event e FINAL WHERE {' OR '.join(tests)} ORDER BY e.session, e.turn, e.ordinal"
            for event in map(read_event, self._server.rows(sql, values)):
                found[event.session, event.turn].append(event)
        for session, turn, first, last in ranges:
            yield [event for event in found[session, turn] if first <= event.ordinal <= last]

    def _part(
        self, select: str, parameters: dict[str, Any], part: Part, ordinal: str, types: str, anchor: str
    ) -> Sequence[Sequence[Any]]:
        """The rows of a part in order; `anchor` selects the ordinal of the row that `part.around` names, or 0."""
        if part.around is None:
            below = _MAX_NUMBER if part.below is None else part.below
            return self._server.rows(
                f"{select} AND {ordinal} > {part.above} AND {ordinal} < {below} AND {types} "
                f"ORDER BY {ordinal} LIMIT {row_limit(part.limit)}",
                parameters,
            )
        parameters = {**parameters, "around": part.around if isinstance(part.around, int) else 0}
        found = self._server.row(anchor, parameters)
        if not found or not found[0]:
            return []
        place = int(found[0])
        before = f"{select} AND {ordinal} < {place} AND {types} ORDER BY {ordinal} DESC LIMIT {part.before}"
        after = f"{select} AND {ordinal} > {place} AND {types} ORDER BY {ordinal} LIMIT {part.after}"
        return [
            *reversed(self._server.rows(before, parameters) if part.before else []),
            *self._server.rows(f"{select} AND {ordinal} = {place}", parameters),
            *(self._server.rows(after, parameters) if part.after else []),
        ]

    # Exchanges

    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        if request.query is not None:
            raise ArchiveError("exchanges are searched in the archive, not in its writer")
        first, left = request.first, row_limit(request.limit)
        while left > 0 and first < _MAX_NUMBER:
            count = min(left, EXCHANGES_AT_ONCE)
            portion = self._server.rows(
                f"SELECT {columns('x', EXCHANGE_COLUMNS)}, {SESSION} FROM exchange x FINAL "
                "JOIN session s FINAL ON s.key = x.session "
                f"WHERE x.session = %(key)s AND s.key = %(key)s AND x.number >= {first} AND {CURRENT_EXCHANGE} "
                f"ORDER BY x.number LIMIT {count}",
                {"key": request.session},
            )
            found = self._read_exchanges(portion, request)
            yield from found
            if len(found) < count:
                return
            first, left = found[-1].row.number + 1, left - count

    def _read_exchanges(self, rows: Sequence[Sequence[Any]], request: ExchangesRequest) -> list[Exchange]:
        """Exchanges from their values and those of their sessions, with the events in them."""
        width = len(EXCHANGE_COLUMNS)
        found = ((read_exchange(row[:width]), read_session(row[width:])) for row in rows)
        return with_events(found, request, lambda part: self.events(part=part))

    # Files, what was forgotten, and the state

    def files(self, request: FilesRequest = ALL_FILES) -> Iterator[FileRow]:
        bare = "if(f.state IS NULL, NULL, '{}')"  # an empty object
        names = [bare if name == "state" and not request.states else f"f.{name}" for name in FILE_COLUMNS]
        selected, read = (STAMP_COLUMNS, read_stamp) if request.stamps else (names, read_file)
        select = f"SELECT {', '.join(selected)} FROM file f FINAL WHERE f.machine = %(machine)s"
        select += " AND NOT f.missing" if request.stamps else ""
        if request.paths is not None:
            of_machine = {"machine": self._machine}
            return map(read, self._server.rows_of(f"{select} AND f.path IN %(names)s", request.paths, of_machine))
        tests = {
            "source": " AND f.source = %(source)s",
            "below": " AND startsWith(f.path, concat(%(below)s, '/'))",
            "after": " AND f.path > %(after)s",
            "naming": " AND (f.session = %(naming)s OR position(f.state, %(text)s) > 0)",
        }
        given = {
            "source": request.source,
            "below": request.below,
            "after": request.after,
            "naming": request.naming,
        }
        parameters = {name: value for name, value in given.items() if value is not None}
        order, limit = ("f.path", request.limit) if request.newest is None else ("f.mtime_ns DESC", request.newest)
        rows = self._server.rows(
            f"{select}{''.join(tests[name] for name in parameters)} ORDER BY {order} LIMIT {row_limit(limit)}",
            # States are JSON, in which a name may be escaped.
            {**parameters, "machine": self._machine, "text": msgspec.json.encode(request.naming).decode()},
        )
        return map(read, rows)

    def _folders(self) -> tuple[FolderRow, ...]:
        row = self._server.row(
            "SELECT value FROM meta FINAL WHERE machine = %(machine)s AND name = 'folders'", {"machine": self._machine}
        )
        return msgspec.json.decode(row[0], type=tuple[FolderRow, ...]) if row else ()

    def forgotten(self, digests: Sequence[bytes]) -> frozenset[bytes]:
        return frozenset(mark for (mark,) in self._server.rows_in(_FORGOTTEN, digests))

    def sync_state(self, *, folders: bool = False) -> SyncState:
        (stored, forgetting), *_ = self._server.rows(
            "SELECT (SELECT groupArray(value) FROM meta FINAL WHERE machine = %(machine)s AND name = 'sync'), "
            "(SELECT arraySort(groupArray(key)) FROM forget FINAL)",
            {"machine": self._machine},
        )
        state = msgspec.json.decode(stored[0], type=SyncState) if stored else SyncState()
        state.forgetting = tuple(forgetting)
        state.recovered = not state.forgetting
        state.folders = self._folders() if folders else ()
        return state


_FORGOTTEN = "SELECT DISTINCT mark FROM forgotten WHERE mark IN ({})"


def row_limit(limit: int | None) -> int:
    """A limit as SQL takes it."""
    return _MAX_NUMBER if limit is None else max(min(limit, _MAX_NUMBER), 0)


def of_types(types: Sequence[EventType]) -> str:
    """The condition that an event is of one of these types."""
    return "true" if len(types) == len(EVENT_TYPES) else f"e.type IN ({_codes(types)})"


def having(types: Sequence[EventType]) -> str:
    """The condition that a turn has an event of one of these types."""
    return "true" if len(types) == len(EVENT_TYPES) else f"hasAny(t.types, [{_codes(types)}])"


def _codes(types: Sequence[EventType]) -> str:
    return ", ".join(str(kind.code) for kind in types)


def _session_conditions(request: SessionsRequest) -> tuple[list[str], dict[str, Any]]:
    given = {
        "start": request.start,
        "end": request.end,
        "mode": request.mode,
        "source": request.source,
        "project": None if request.project is None else request.project.casefold(),
        "parent": request.parent,
        "keys": request.keys or None,
        "cwds": request.cwds or None,
        "prefix": request.prefix,
    }
    tests = {
        "start": "s.updated_at >= %(start)s",
        "end": "s.started_at < %(end)s",
        "mode": "s.mode = %(mode)s",
        "source": "s.source = %(source)s",
        "project": "(position(caseFoldUTF8(ifNull(s.cwd, '')), %(project)s) > 0"
        " OR position(caseFoldUTF8(ifNull(s.project, '')), %(project)s) > 0)",
        "parent": "s.parent = %(parent)s",
        "keys": "s.key IN %(keys)s",
        "cwds": "s.cwd IN %(cwds)s",
        # A key is `<source>/<the agent's own id>`.
        "prefix": "startsWith(substring(s.key, length(s.source) + 2), %(prefix)s)",
    }
    parameters: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    conditions = ["true" if request.empty else "s.event_count > 0", *(tests[name] for name in parameters)]
    if request.placed:
        conditions.append("s.project IS NOT NULL")
    if () in (request.keys, request.cwds):
        conditions.append("false")
    if request.after is not None:
        beyond = ">" if request.ascending else "<"
        conditions.append(f"(s.{request.order}, s.public_id) {beyond} (%(after_time)s, %(after_id)s)")
        parameters |= dict(zip(("after_time", "after_id"), request.after, strict=True))
    return conditions, parameters
