"""The record as a projection reads it: turns without their texts."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from ...model import EVENT_TYPES, EventType, TurnRef
from ...sqlite import snapshot
from ..projection import Changes, EventOutline, LooseUsage
from ..rows import SessionRow, TurnRow, UsageRow
from .bodies import Bodies
from .rows import SESSION_COLUMNS, TURN_COLUMNS, USAGE_COLUMNS, read_session, read_turn, read_usage

_SESSION, _TURN, _USAGE = ", ".join(SESSION_COLUMNS), ", ".join(TURN_COLUMNS), ", ".join(USAGE_COLUMNS)
_OUTLINE = "uid, turn, ordinal, type, ts, tool, model, usage, facts"
_CALL, _RESPONSE, _RUNTIME = (kind.code for kind in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE, EventType.RUNTIME))


class _Facts(msgspec.Struct, frozen=True):
    call: str | None = None
    exit: int | None = None
    failed: bool | None = None
    extra: dict[str, Any] | None = None


_NO_FACTS = _Facts()
_decode_facts = msgspec.json.Decoder(_Facts).decode


class LocalRecord:
    """Reads through one connection. Sessions are known by their keys outside, and by their numbers in the tables."""

    def __init__(self, db: sqlite3.Connection, bodies: Bodies) -> None:
        self._db = db
        self._bodies = bodies
        self._numbers: dict[str, int | None] = {}

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        self._numbers.clear()
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
        rows = self._db.execute(
            "SELECT s.key, t.ordinal FROM turn t JOIN session s ON s.id = t.session "
            "WHERE t.change > ? AND t.change <= ? ORDER BY t.change, t.session, t.ordinal",
            (after, until),
        )
        return Changes(until, [TurnRef(key, ordinal) for key, ordinal in rows])

    def session(self, key: str) -> SessionRow | None:
        row = self._db.execute(f"SELECT {_SESSION} FROM session WHERE key = ?", (key,)).fetchone()
        return read_session(row) if row else None

    def children(self, key: str) -> list[SessionRow]:
        rows = self._db.execute(
            f"SELECT {_SESSION} FROM session WHERE parent = ? AND parent_call IS NOT NULL ORDER BY id", (key,)
        )
        return [read_session(row) for row in rows]

    def turn(self, ref: TurnRef) -> TurnRow | None:
        row = self._db.execute(
            f"SELECT {_TURN} FROM turn WHERE session = ? AND ordinal = ?", (self.number(ref.key), ref.ordinal)
        ).fetchone()
        return read_turn(ref.key, row) if row else None

    def events(self, turn: TurnRow) -> list[EventOutline]:
        rows = self._db.execute(
            f"SELECT {_OUTLINE}, CASE WHEN type = {_RUNTIME} OR uid = ? THEN body END FROM event "
            "WHERE session = ? AND turn = ? ORDER BY ordinal",
            (turn.prompt, self.number(turn.session), turn.ordinal),
        )
        return [self._outline(*row) for row in rows]

    def calls(self, key: str, ids: Iterable[str], turns: range | None = None) -> list[EventOutline]:
        where, bounds = ("AND turn BETWEEN ? AND ?", (turns[0], turns[-1])) if turns else ("", ())
        rows = self._db.execute(
            f"SELECT {_OUTLINE} FROM event WHERE session = ? {where} AND type IN ({_CALL}, {_RESPONSE}) "
            "AND json_extract(facts, '$.call') IN (SELECT value FROM json_each(?)) ORDER BY turn, ordinal",
            (self.number(key), *bounds, msgspec.json.encode(list(ids)).decode()),
        )
        return [self._outline(*row) for row in rows]

    def usage(self, key: str, turns: Sequence[int]) -> list[UsageRow]:
        rows = self._db.execute(
            f"SELECT {_USAGE} FROM usage WHERE session = ? AND turn IN ({', '.join('?' * len(turns))}) ORDER BY ts",
            (self.number(key), *turns),
        )
        return [read_usage(key, row) for row in rows]

    def loose_usage(self) -> list[LooseUsage]:
        rows = self._db.execute(
            "SELECT s.key, count(*), sum(u.input_tokens + u.output_tokens) FROM usage u JOIN session s "
            "ON s.id = u.session WHERE u.turn = 0 AND s.turn_count = 0 GROUP BY u.session"
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
        return EventOutline(
            uid=uid,
            turn=turn,
            ordinal=ordinal,
            type=EVENT_TYPES[type],
            ts=ts,
            text=self._bodies.unpack(body),
            tool=tool,
            model=model,
            usage_key=usage,
            call_id=facts.call,
            exit_code=facts.exit,
            failed=facts.failed,
            extra=facts.extra or {},
        )
