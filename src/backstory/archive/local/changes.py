"""The changes of the record: every change of a turn or an exchange has a number. A projection reads the turns that
changed without their texts, and the outbox of a team their ids."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ...model import EVENT_TYPES, EventType, TurnRef
from ...sqlite import connect, snapshot
from ..changes import Changes, EventOutline, LooseUsage, Mark
from ..rows import SessionRow, TurnRow, UsageRow
from .bodies import Bodies
from .database import newest_change
from .rows import SESSION_COLUMNS, TURN_COLUMNS, USAGE_COLUMNS, columns, read_session, read_turn, read_usage

_CALL, _RESPONSE, _RUNTIME = (kind.code for kind in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE, EventType.RUNTIME))
_SESSION, _TURN, _USAGE = columns("s", SESSION_COLUMNS), columns("t", TURN_COLUMNS), columns("u", USAGE_COLUMNS)
_OUTLINE = columns("e", ("uid", "turn", "ordinal", "type", "ts", "tool", "model", "usage", "facts"))
_OUTLINE_WITH_TEXT = f"{_OUTLINE}, CASE WHEN e.type = {_RUNTIME} OR e.uid = t.prompt THEN e.body END"
_CHANGED = "t.change > ? AND t.change <= ?"
_EVENTS_OF_TURN = "JOIN event e ON e.session = t.session AND e.turn = t.ordinal"

# The rows of the turns that changed. The order is that of an index, so that nothing is sorted.
_STEP_TURNS = (
    f"SELECT t.session, s.key, {_TURN} FROM turn t JOIN session s ON s.id = t.session WHERE {_CHANGED} "
    "ORDER BY t.change, t.session, t.ordinal"
)
_STEP_SESSIONS = f"SELECT {_SESSION} FROM session s WHERE s.id IN (SELECT t.session FROM turn t WHERE {_CHANGED})"
_STEP_PARENTS = (
    "SELECT DISTINCT s.parent FROM session s WHERE s.parent_call IS NOT NULL AND s.parent IN "
    f"(SELECT p.key FROM turn t JOIN session p ON p.id = t.session WHERE {_CHANGED})"
)
_STEP_EVENTS = (
    f"SELECT t.session, {_OUTLINE_WITH_TEXT} FROM turn t {_EVENTS_OF_TURN} WHERE {_CHANGED} "
    "ORDER BY t.change, t.session, t.ordinal, e.ordinal"
)
# Usage before the first turn belongs to the first turn.
_STEP_USAGE = (
    f"SELECT t.session, s.key, {_USAGE} FROM turn t JOIN session s ON s.id = t.session "
    f"JOIN usage u ON u.session = t.session AND u.turn BETWEEN iif(t.ordinal = 1, 0, t.ordinal) AND t.ordinal "
    f"WHERE {_CHANGED}"
)

# Exchanges that changed, too, which no projection reads: they stand for their session.
_ANY_CHANGED = """
SELECT change, session, ordinal FROM turn WHERE change > :after
UNION ALL SELECT change, session, 0 FROM exchange WHERE change > :after
"""

_time = attrgetter("ts")


class _Facts(msgspec.Struct, frozen=True):
    call: str | None = None
    exit: int | None = None
    failed: bool | None = None
    extra: dict[str, Any] | None = None


_NO_FACTS = _Facts()
_NO_EXTRA: Mapping[str, Any] = {}
_decode_facts = msgspec.json.Decoder(_Facts).decode


class _Place(NamedTuple):
    """A turn by the number of its session."""

    session: int | None
    turn: int


class _Step(msgspec.Struct):
    """The rows of the turns of one step. They are read with one statement for each table, not for each turn."""

    sessions: dict[str, SessionRow] = {}
    parents: set[str] = set()
    """Those of the sessions that have started others by a tool call."""
    turns: dict[_Place, TurnRow] = {}
    events: dict[_Place, list[EventOutline]] = {}
    usage: dict[_Place, list[UsageRow]] = {}
    """For each turn, and for turn 0 where the first one is among them."""


class LocalRecord:
    """Reads through one connection. Sessions are known by their keys outside, and by their numbers in the tables.

    `changes` reads all that belongs to the changed turns; the other methods ask the tables for the rest.
    """

    def __init__(self, db: sqlite3.Connection, bodies: Bodies) -> None:
        self._db = db
        self._bodies = bodies
        self._numbers: dict[str, int | None] = {}
        self._step = _Step()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._numbers.clear()
        self._step = _Step()
        with snapshot(self._db):
            yield

    def number(self, key: str) -> int | None:
        if key not in self._numbers:
            row = self._db.execute("SELECT id FROM session WHERE key = ?", (key,)).fetchone()
            self._numbers[key] = row[0] if row else None
        return self._numbers[key]

    def changes(self, after: int, limit: int) -> Changes | None:
        (until,) = self._db.execute(
            "SELECT max(change) FROM (SELECT change FROM turn WHERE change > ? ORDER BY change LIMIT ?)", (after, limit)
        ).fetchone()
        if until is None:
            return None
        self._step = self._read_step(after, until)
        return Changes(until, [TurnRef(turn.session, turn.ordinal) for turn in self._step.turns.values()])

    def _read_step(self, after: int, until: int) -> _Step:
        db, changed = self._db, (after, until)
        step = _Step()
        for number, key, *values in db.execute(_STEP_TURNS, changed):
            self._numbers[key] = number
            turn = read_turn(key, values)
            place = _Place(number, turn.ordinal)
            step.turns[place], step.events[place], step.usage[place] = turn, [], []
            if turn.ordinal == 1:
                step.usage[_Place(number, 0)] = []
        sessions = map(read_session, db.execute(_STEP_SESSIONS, changed))
        step.sessions = {session.key: session for session in sessions}
        step.parents = {key for (key,) in db.execute(_STEP_PARENTS, changed)}
        outline, events = self._outline, step.events
        for number, *values in db.execute(_STEP_EVENTS, changed):
            event = outline(*values)
            events[number, event.turn].append(event)  # type: ignore[index] # a place, without making one
        for number, key, *values in db.execute(_STEP_USAGE, changed):
            usage = read_usage(key, values)
            step.usage[number, usage.turn].append(usage)  # type: ignore[index]
        return step

    def session(self, key: str) -> SessionRow | None:
        if key in self._step.sessions:
            return self._step.sessions[key]
        row = self._db.execute(f"SELECT {_SESSION} FROM session s WHERE s.key = ?", (key,)).fetchone()
        return read_session(row) if row else None

    def children(self, key: str) -> list[SessionRow]:
        if key in self._step.sessions and key not in self._step.parents:
            return []
        rows = self._db.execute(
            f"SELECT {_SESSION} FROM session s WHERE s.parent = ? AND s.parent_call IS NOT NULL ORDER BY s.id", (key,)
        )
        return [read_session(row) for row in rows]

    def turn(self, ref: TurnRef) -> TurnRow | None:
        place = _Place(self.number(ref.key), ref.ordinal)
        if place in self._step.turns:
            return self._step.turns[place]
        row = self._db.execute(f"SELECT {_TURN} FROM turn t WHERE t.session = ? AND t.ordinal = ?", place).fetchone()
        return read_turn(ref.key, row) if row else None

    def events(self, turn: TurnRow) -> list[EventOutline]:
        place = _Place(self.number(turn.session), turn.ordinal)
        if place in self._step.events:
            return self._step.events[place]
        rows = self._db.execute(
            f"SELECT {_OUTLINE_WITH_TEXT} FROM turn t {_EVENTS_OF_TURN} WHERE t.session = ? AND t.ordinal = ? "
            "ORDER BY e.ordinal",
            place,
        )
        return [self._outline(*row) for row in rows]

    def calls(self, key: str, ids: Iterable[str], turns: range | None = None) -> list[EventOutline]:
        where, bounds = ("AND e.turn BETWEEN ? AND ?", (turns[0], turns[-1])) if turns else ("", ())
        rows = self._db.execute(
            f"SELECT {_OUTLINE} FROM event e WHERE e.session = ? {where} AND e.type IN ({_CALL}, {_RESPONSE}) "
            "AND json_extract(e.facts, '$.call') IN (SELECT value FROM json_each(?)) ORDER BY e.turn, e.ordinal",
            (self.number(key), *bounds, msgspec.json.encode(list(ids)).decode()),
        )
        return [self._outline(*row) for row in rows]

    def usage(self, key: str, turns: Sequence[int]) -> list[UsageRow]:
        number = self.number(key)
        places = [_Place(number, turn) for turn in turns]
        if all(place in self._step.usage for place in places):
            return sorted((usage for place in places for usage in self._step.usage[place]), key=_time)
        rows = self._db.execute(
            f"SELECT {_USAGE} FROM usage u WHERE u.session = ? AND u.turn IN ({', '.join('?' * len(turns))}) "
            "ORDER BY u.ts",
            (number, *turns),
        )
        return [read_usage(key, row) for row in rows]

    def loose_usage(self) -> list[LooseUsage]:
        rows = self._db.execute(
            # By itself SQLite would look through all usage.
            "SELECT s.key, count(*), sum(u.input_tokens + u.output_tokens) FROM usage u INDEXED BY usage_loose "
            "JOIN session s ON s.id = u.session WHERE u.turn = 0 AND s.turn_count = 0 GROUP BY u.session"
        )
        return [LooseUsage(*row) for row in rows]

    def _outline(
        self,
        uid: bytes,
        turn: int,
        ordinal: int,
        type: int,
        ts: int,
        tool: str | None,
        model: str | None,
        usage: bytes | None,
        facts_text: str | None,
        body: str | bytes | None = None,
    ) -> EventOutline:
        facts = _decode_facts(facts_text) if facts_text else _NO_FACTS
        # By position, which takes half as long: all events are read when the traces of an archive are made.
        return EventOutline(
            uid,
            turn,
            ordinal,
            EVENT_TYPES[type],
            ts,
            "" if body is None else self._bodies.unpack(body),
            tool,
            model,
            usage,
            facts.call,
            facts.exit,
            facts.failed,
            facts.extra or _NO_EXTRA,
        )


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
            f"SELECT max(change) FROM (SELECT change FROM ({_ANY_CHANGED}) ORDER BY change LIMIT :limit)",
            {"after": after, "limit": limit},
        ).fetchone()
        if until is None:
            return None
        rows = self._db.execute(
            f"SELECT DISTINCT s.key, c.ordinal FROM ({_ANY_CHANGED}) c JOIN session s ON s.id = c.session "
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
