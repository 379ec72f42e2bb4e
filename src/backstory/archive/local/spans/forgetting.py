"""Forgetting the traces of a session: what was made from its turns, and what telemetry told of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

import msgspec

from ....model import digest, session_mark
from .counting import traces_of_calls
from .writer import SpanWriter

__all__ = ["forget_session"]

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def forget_session(spans: SpanWriter, session: int, key: str, *, remember: bool) -> None:
    """`session` is its number in archive.db: a subagent's spans lie in the trace of the turn that started it."""
    db = spans.db
    with spans.transaction():
        traces = db.execute("SELECT id, uid, projected FROM trace WHERE session = ?", (key,)).fetchall()
        own = {id for id, _, _ in traces}
        rows = db.execute(
            "SELECT id, trace, name, call FROM span WHERE trace IN (SELECT value FROM json_each(?)) OR session = ?",
            (_json(own), session),
        ).fetchall()
        numbers = {id for id, _, _, _ in rows}
        if remember:
            received = [digest("trace", uid) for _, uid, projected in traces if not projected]
            spans.remember_forgotten([session_mark(key), *received])
        shown = _twins(db, numbers)
        _drop_values(db, numbers | shown)
        for table in ("facts", "content", "resent"):
            _delete(db, table, "span", numbers | shown)
        _delete(db, "span", "id", numbers)
        _delete(db, "trace", "id", own)
        db.execute("DELETE FROM host WHERE session = ?1 OR parent = ?1", (session,))
        _drop_names(db, {name for _, _, name, _ in rows})
        calls = {call for _, _, _, call in rows if call is not None}
        others = ({trace for _, trace, _, _ in rows} | traces_of_calls(db, calls)) - own
        for trace in others | spans.unite(others):
            spans.refresh(trace)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _delete(db: sqlite3.Connection, table: str, column: str, numbers: Collection[int]) -> None:
    db.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", (_json(numbers),))


def _twins(db: sqlite3.Connection, spans: set[int]) -> set[int]:
    """The spans of other sessions that show what these report; what these show of others' reports is let go."""
    listed = "(SELECT value FROM json_each(?))"
    db.execute(f"UPDATE span SET twin = NULL WHERE twin IN {listed}", (_json(spans),))
    rows = db.execute(f"SELECT twin FROM span WHERE twin IS NOT NULL AND id IN {listed}", (_json(spans),))
    return {twin for (twin,) in rows}


def _drop_values(db: sqlite3.Connection, spans: set[int]) -> None:
    """Take the spans out of the attributes by path, where one row has the values of many."""
    facts = db.execute("SELECT data FROM facts WHERE span IN (SELECT value FROM json_each(?)) LIMIT 1", (_json(spans),))
    if facts.fetchone() is None:
        return
    changed, empty = [], []
    for id, numbers, data in db.execute("SELECT id, spans, data FROM part"):
        listed = [int(number) for number in numbers.split(",")]
        if spans.isdisjoint(listed):
            continue
        kept = [
            (number, value) for number, value in zip(listed, _decode(f"[{data}]"), strict=True) if number not in spans
        ]
        if kept:
            values = _encode([value for _, value in kept])[1:-1].decode()
            changed.append((len(kept), ",".join(str(number) for number, _ in kept), values, id))
        else:
            empty.append((id,))
    db.executemany("UPDATE part SET count = ?, spans = ?, data = ? WHERE id = ?", changed)
    db.executemany("DELETE FROM part WHERE id = ?", empty)


def _drop_names(db: sqlite3.Connection, names: Collection[int]) -> None:
    """Delete the names that no span has any more; whoever knows their numbers by heart finds out by the version."""
    db.execute(
        "DELETE FROM name WHERE id IN (SELECT value FROM json_each(?)) "
        "AND NOT EXISTS (SELECT 1 FROM span WHERE span.name = name.id) "
        "AND NOT EXISTS (SELECT 1 FROM span WHERE span.model = name.id) "
        "AND id NOT IN (SELECT stop_reason FROM span WHERE stop_reason IS NOT NULL)",
        (_json(names),),
    )
    db.execute("INSERT INTO meta (name, value) VALUES ('names', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1")


def _json(numbers: Iterable[int]) -> str:
    return _encode(list(numbers)).decode()
