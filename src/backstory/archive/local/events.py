"""What the record knows of turns, exchanges and events, by their place or by their id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ...model import EVENT_TYPES, EventType
from ..base import EVERYTHING, EventRow, Exchange, Part, TurnRow, UsageRow
from .connections import Connections
from .rows import (
    EVENT_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
    read_event,
    read_text,
    read_turn,
    read_usage,
    split_uids,
)

__all__ = ["Events"]

_TURN = ", ".join(f"t.{name}" for name in TURN_COLUMNS)
_EVENT = ", ".join(f"e.{name}" for name in EVENT_COLUMNS)
_TEXT = "e.uid, e.type, e.tool, e.body"
_USAGE = ", ".join(f"u.{name}" for name in USAGE_COLUMNS)
_MAX_NUMBER = (1 << 63) - 1  # that SQLite knows


class Events(Connections):
    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]:
        rows = self._part(
            f"SELECT {_TURN} FROM turn t JOIN session s ON s.id = t.session WHERE s.key = ?",
            (key,),
            part,
            "t.ordinal",
            _having(part.types),
        )
        return [read_turn(key, row) for row in rows]

    def count_turns(self, key: str, types: Sequence[EventType]) -> int:
        row = self._db.execute(
            f"SELECT count(*) FROM turn t JOIN session s ON s.id = t.session WHERE s.key = ? AND {_having(types)}",
            (key,),
        ).fetchone()
        return int(row[0])

    def turn(self, key: str, ordinal: int) -> TurnRow | None:
        row = self._db.execute(
            f"SELECT {_TURN} FROM turn t JOIN session s ON s.id = t.session WHERE s.key = ? AND t.ordinal = ?",
            (key, ordinal),
        ).fetchone()
        return read_turn(key, row) if row else None

    def exchanges(
        self, key: str, first: int = 0, limit: int | None = None, events: int | None = None
    ) -> list[Exchange]:
        rows = self._db.execute(
            "SELECT x.number, x.ts, x.user, x.user_text, x.said FROM exchange x JOIN session s ON s.id = x.session "
            "WHERE s.key = ? AND x.number >= ? ORDER BY x.number LIMIT ?",
            (key, min(first, _MAX_NUMBER), _MAX_NUMBER if limit is None else min(limit, _MAX_NUMBER)),
        ).fetchall()
        parts = [split_uids(said)[:events] for *_, said in rows]
        wanted = [uid for said in parts for uid in said] + [user for _, _, user, *_ in rows if user is not None]
        found = {event.uid: event for event in self._events_of(wanted)}
        return [
            Exchange(
                number=number,
                ts=ts,
                user_text=self._user_text(found.get(user), user_text),
                said=[found[uid] for uid in said if uid in found],
            )
            for (number, ts, user, user_text, _), said in zip(rows, parts, strict=True)
        ]

    def _user_text(self, event: EventRow | None, user_text: str | bytes | None) -> str | None:
        if user_text is not None:
            return self._bodies.unpack(user_text)
        return event.text if event else None

    def _events_of(self, uids: Sequence[bytes]) -> Iterable[EventRow]:
        sql = f"SELECT s.key, {_EVENT} FROM event e JOIN session s ON s.id = e.session WHERE e.uid IN ({{}})"
        return (read_event(row[0], row[1:], self._bodies) for row in self._in(self._db, sql, uids))

    def events(self, key: str, turn: int, part: Part = EVERYTHING) -> list[EventRow]:
        rows = self._part(
            f"SELECT {_EVENT} FROM event e JOIN session s ON s.id = e.session WHERE s.key = ? AND e.turn = ?",
            (key, turn),
            part,
            "e.ordinal",
            _of(part.types),
        )
        return [read_event(key, row, self._bodies) for row in rows]

    def count_events(self, key: str, turn: int, types: Sequence[EventType]) -> int:
        row = self._db.execute(
            "SELECT count(*) FROM event e JOIN session s ON s.id = e.session WHERE s.key = ? AND e.turn = ? "
            f"AND {_of(types)}",
            (key, turn),
        ).fetchone()
        return int(row[0])

    def _part(
        self, sql: str, parameters: tuple[object, ...], part: Part, ordinal: str, types: str
    ) -> list[tuple[Any, ...]]:
        below, limit = (_MAX_NUMBER if bound is None else bound for bound in (part.below, part.limit))
        rows = self._db.execute(
            f"{sql} AND {ordinal} > ? AND {ordinal} < ? AND {types} "
            f"ORDER BY {ordinal} {'DESC' if part.last else 'ASC'} LIMIT ?",
            (*parameters, part.above, below, limit),
        ).fetchall()
        return rows[::-1] if part.last else rows

    def end_events(self, key: str, turn: int) -> tuple[bytes | None, bytes | None]:
        of_turn = "SELECT e.uid FROM event e JOIN session s ON s.id = e.session WHERE s.key = ? AND e.turn = ?"
        first, last = (
            self._db.execute(f"{of_turn} ORDER BY e.ordinal {order} LIMIT 1", (key, turn)).fetchone()
            for order in ("ASC", "DESC")
        )
        return first and first[0], last and last[0]

    def _events_between(self, session: int, turn: int, first: int, last: int) -> list[EventRow]:
        rows = self._db.execute(
            f"SELECT s.key, {_EVENT} FROM event e JOIN session s ON s.id = e.session "
            "WHERE e.session = ? AND e.turn = ? AND e.ordinal BETWEEN ? AND ? ORDER BY e.ordinal",
            (session, turn, first, last),
        )
        return [read_event(row[0], row[1:], self._bodies) for row in rows]

    def event(self, uid: bytes) -> EventRow | None:
        row = self._db.execute(
            f"SELECT s.key, {_EVENT} FROM event e JOIN session s ON s.id = e.session WHERE e.uid = ?", (uid,)
        ).fetchone()
        return read_event(row[0], row[1:], self._bodies) if row else None

    def event_heads(self, uids: Sequence[bytes], chars: int) -> dict[bytes, tuple[str, bool]]:
        return self._heads(self._in(self._db, f"SELECT {_TEXT} FROM event e WHERE e.uid IN ({{}})", uids), chars)

    def turn_heads(self, turns: Sequence[TurnRow], chars: int) -> dict[bytes, tuple[str, bool]]:
        wanted = {uid for turn in turns for uid in (turn.prompt, turn.response) if uid is not None}
        if not wanted:
            return {}
        # Nearly all of them begin or end their turn. Those lie together, while ids are all over the archive.
        rows = self._db.execute(
            f"SELECT {_TEXT} FROM session s JOIN turn t ON t.session = s.id JOIN event e ON e.session = t.session "
            "AND e.turn = t.ordinal AND e.ordinal IN (1, t.event_count) WHERE s.key = ? AND t.ordinal BETWEEN ? AND ?",
            (turns[0].session, turns[0].ordinal, turns[-1].ordinal),
        )
        found = self._heads((row for row in rows if row[0] in wanted), chars)
        return found | self.event_heads([uid for uid in wanted if uid not in found], chars)

    def _heads(self, rows: Iterable[tuple[Any, ...]], chars: int) -> dict[bytes, tuple[str, bool]]:
        texts = ((uid, read_text(EVENT_TYPES[kind], tool, body, self._bodies)) for uid, kind, tool, body in rows)
        return {uid: (text[:chars], len(text) > chars) for uid, text in texts}

    def neighbour_events(self, event: EventRow) -> tuple[bytes | None, bytes | None]:
        rows = dict(
            self._db.execute(
                "SELECT e.ordinal, e.uid FROM event e JOIN session s ON s.id = e.session "
                "WHERE s.key = ? AND e.turn = ? AND e.ordinal IN (?, ?)",
                (event.session, event.turn, event.ordinal - 1, event.ordinal + 1),
            ).fetchall()
        )
        return rows.get(event.ordinal - 1), rows.get(event.ordinal + 1)

    def usage(self, key: str) -> list[UsageRow]:
        rows = self._db.execute(
            f"SELECT {_USAGE} FROM usage u JOIN session s ON s.id = u.session WHERE s.key = ? ORDER BY u.turn, u.ts",
            (key,),
        )
        return [read_usage(key, row) for row in rows]


def _of(types: Sequence[EventType]) -> str:
    """The condition that an event is of one of these types."""
    return "true" if len(types) == len(EVENT_TYPES) else f"e.type IN ({', '.join(str(kind.code) for kind in types)})"


def _having(types: Sequence[EventType]) -> str:
    """The condition that a turn has an event of one of these types."""
    return "true" if len(types) == len(EVENT_TYPES) else f"t.types GLOB '*[{''.join(str(k.code) for k in types)}]*'"
