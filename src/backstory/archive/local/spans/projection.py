"""Turns of transcripts as traces, made from what the record has and kept up to date with it.

Texts stay where they are: a span points at its events. A subagent's turns lie in the trace of the turn that started it,
below the call that did. Everything is made again from its turn, under the same ids, whenever the turn changes.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.json import encode

from ....model import EventType, digest, session_id, turn_id
from ....money import price_list
from ....sqlite import snapshot
from ...spans import SPAN_TYPES, Origin
from .turn import Piece, Turn, Unpack, call_of, cost_of, read_turn_spans
from .twins import scope_of

if TYPE_CHECKING:
    from .store import LocalSpans

__all__ = ["Projection"]

log = logging.getLogger(__name__)

_VERSION = 3
_TURNS_PER_COMMIT = 200
_NAME_CHARS = 120
_SPAN = SPAN_TYPES.index("SPAN")
_ERROR, _PENDING, _SUCCESS = range(3)
# Telemetry that became a session has its spans already.
_NOT_PROJECTED = "otel"

_FAMILY = """
WITH RECURSIVE family (id, key) AS (
    SELECT id, key FROM session WHERE key = ? UNION SELECT s.id, s.key FROM session s JOIN family f ON s.parent = f.key
)
SELECT id FROM family
"""
_ANCESTORS = """
WITH RECURSIVE above (key) AS (
    VALUES (?) UNION SELECT s.parent FROM session s JOIN above a ON s.key = a.key WHERE s.parent IS NOT NULL
)
SELECT key FROM above
"""
# The traces in which a subagent may lie are its own and those of the sessions above it.
_SPANS_OF_FAMILY = (
    "trace IN (SELECT id FROM trace WHERE session IN (SELECT value FROM json_each(?))) "
    "AND session IN (SELECT value FROM json_each(?))"
)


class Session(Struct):
    id: int
    key: str
    source: str
    title: str
    project: str | None
    parent: str | None
    parent_call: str | None
    turn_count: int


class Place(NamedTuple):
    """Where a turn's spans go: a trace, and a span in it."""

    trace: str
    parent: int | None


class Host(NamedTuple):
    """The call that started a subagent."""

    session: int
    turn: int
    uid: int


class Projection:
    """Follows the record from where it was left; whoever is the writer of the archive does it."""

    def __init__(self, record: sqlite3.Connection, store: LocalSpans, unpack: Unpack, projected: int) -> None:
        """`projected` is the last change of the record that was projected before, as far as the record goes.

        After a power cut the record may have lost what was projected already. It comes again, under the same numbers.
        """
        self._record = record
        self._spans = store.writer()
        self._unpack = unpack
        # What was read of the record, for as long as a commit takes: of each session, and of those it started.
        self._sessions: dict[int, Session] = {}
        self._children: dict[int, list[tuple[str, int]]] = {}
        self._touched: set[int] = set()
        self._change = -1
        self._projected = projected

    def follow(self, newest: int, deadline: float | None = None) -> int:
        """Project what changed, up to the change `newest`; past the deadline the rest is left for the next time.

        Gives the last change that is projected.
        """
        if self._change < 0:
            self._start()
        if self._change < newest:
            self._follow(newest, deadline)
        return self._change

    def close(self) -> None:
        self._spans.close()

    def _start(self) -> None:
        version = f"{_VERSION} {price_list()}"
        with self._spans.transaction():
            if self._meta("version") != version:
                # Other rules or other prices: everything is made again.
                self._touched |= self._spans.remove("session IS NOT NULL")
                self._spans.db.execute("DELETE FROM trace WHERE projected")
                self._spans.db.execute("DELETE FROM host")
                self._set_meta("version", version)
                self._set_meta("change", 0)
            self._change = min(int(self._meta("change") or 0), self._projected)

    def _follow(self, newest: int, deadline: float | None) -> None:
        while self._project_changes():
            if deadline is not None and time.monotonic() > deadline and self._change < newest:
                return
        with self._reading(), self._spans.transaction():
            self._project_loose_usage()
            self._refresh()
            # The last changes may have been of usage alone.
            self._change = max(self._change, newest)
            self._set_meta("change", self._change)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """The record as it is now: the writer may remove sessions meanwhile, which are read again."""
        self._sessions.clear()
        self._children.clear()
        with snapshot(self._record):
            yield

    def _project_changes(self) -> bool:
        with self._reading():
            changes = self._changes()
            if changes is None:
                return False
            with self._spans.transaction():
                for session, ordinal in changes[1]:
                    self._project(session, ordinal)
                self._refresh()
                self._set_meta("change", changes[0])
        self._change = changes[0]
        return True

    def _changes(self) -> tuple[int, list[tuple[int, int]]] | None:
        (until,) = self._record.execute(
            "SELECT max(change) FROM (SELECT change FROM turn WHERE change > ? ORDER BY change LIMIT ?)",
            (self._change, _TURNS_PER_COMMIT),
        ).fetchone()
        if until is None:
            return None
        rows = self._record.execute(
            "SELECT session, ordinal FROM turn WHERE change > ? AND change <= ?", (self._change, until)
        ).fetchall()
        return until, rows

    def _project(self, session_number: int, ordinal: int) -> None:
        session = self._session(session_number)
        if session.source == _NOT_PROJECTED:
            return
        place = self._place(session, ordinal)
        if ordinal == 1:
            self._remove_trace(session_id(session.key))  # of usage that had no turn yet
        turn = self._write_turn(session, ordinal, place)
        again = set(turn.related) if turn is not None else set()
        if ordinal > 1 and self._is_pending(session, ordinal - 1, self._place(session, ordinal - 1)):
            again.add(ordinal - 1)  # it was the last turn and might have gone on; now it has ended
        for other in sorted(again):
            self._write_turn(session, other, self._place(session, other))

    def _write_turn(self, session: Session, ordinal: int, place: Place) -> Turn | None:
        turn = read_turn_spans(self._record, session.id, ordinal, self._unpack)
        if turn is None:
            return None
        name = self._prompt_line(turn) or session.title or None
        origin = Origin(name=name, session=session.key, source=session.source, project=session.project)
        trace = self._spans.trace(place.trace, origin if place.parent is None else Origin(), projected=True)
        root = _uid(digest("turn", session.key, str(ordinal)))
        status, end = self._ending(session, ordinal, turn, trace, place.parent)
        scope = scope_of(session.key.partition("/")[2])
        common = {"trace": trace, "session": session.id, "turn": ordinal, "scope": scope}
        first = {
            "uid": root, "parent": place.parent, "type": _SPAN, "status": status, "start": turn.start, "end": end,
            "name": self._spans.name("turn" if place.parent is None else session.title or "subagent"),
            "first": turn.prompt, "last": turn.answer, "waiting": turn.waiting,
        }  # fmt: skip
        rows = [first, *({"parent": root, **self._piece(piece, session.source)} for piece in turn.pieces)]
        self._touched |= self._spans.replace_turn(trace, session.id, ordinal, [common | row for row in rows])
        self._touched.add(trace)
        self._follow_children(session, ordinal, turn, trace)
        return turn

    def _ending(
        self, session: Session, ordinal: int, turn: Turn, trace: int, host: int | None
    ) -> tuple[int, int | None]:
        """How a turn ended, and when; one that may go on has no end."""
        if turn.completed or ordinal < session.turn_count:
            return _ERROR if turn.failed else _SUCCESS, turn.end
        if host is not None:
            # Of an agent whose last words are not recorded, the answer to the call that started it is the end.
            row = self._spans.db.execute(
                "SELECT status, end FROM span WHERE trace = ? AND uid = ?", (trace, host)
            ).fetchone()
            if row is not None and row[1] is not None and row[1] >= turn.end:
                return row[0], row[1]
        return _PENDING, None

    def _piece(self, piece: Piece, agent: str) -> dict[str, Any]:
        name, usage = self._spans.name, piece.usage
        row: dict[str, Any] = {
            "uid": piece.uid, "name": name(piece.name), "type": piece.type, "status": piece.status,
            "start": piece.start, "end": piece.end, "model": name(piece.model) if piece.model else None,
            "exit_code": piece.exit_code, "first": piece.first, "last": piece.last, "last_turn": piece.last_turn,
            "cause": piece.cause, "call": piece.call, "waiting": piece.waiting,
        }  # fmt: skip
        if usage is not None:
            row |= {
                "input": usage.input_tokens,
                "output": usage.output_tokens,
                "cache_read": usage.cache_read_tokens or None,
                "cache_write": usage.cache_write_5m_tokens + usage.cache_write_1h_tokens or None,
                "cache_write_1h": usage.cache_write_1h_tokens or None,
                "reasoning": usage.reasoning_tokens or None,
                "cost": cost_of(piece.model, usage, piece.start),
                "cost_reported": usage.cost is not None,
                "stop_reason": name(usage.stop_reason) if usage.stop_reason else None,
            }
            by_tokens = call_of(agent, usage)
            row["call"], row["alias"] = (piece.call, by_tokens) if piece.call else (by_tokens, None)
        return row

    # Subagents

    def _place(self, session: Session, ordinal: int) -> Place:
        host = self._host(session)
        if host is None:
            return Place(turn_id(session.key, ordinal), None)
        seen = {session.id}
        parent, turn, uid = host
        while parent not in seen and (above := self._host(self._session(parent))) is not None:
            seen.add(parent)
            parent, turn, _ = above
        return Place(turn_id(self._session(parent).key, turn), uid)

    def _host(self, session: Session) -> Host | None:
        """The call that started a subagent."""
        if not session.parent or not session.parent_call:
            return None
        known = self._known_host(session)
        if known is not None and self._exists(known.session):
            return known
        found = self._find_call(session.parent, session.parent_call)
        if known is not None or found is not None:
            self._move(session, found)
        return found

    def _known_host(self, session: Session) -> Host | None:
        row = self._spans.db.execute("SELECT parent, turn, uid FROM host WHERE session = ?", (session.id,)).fetchone()
        return None if row is None else Host(*row)

    def _move(self, session: Session, host: Host | None) -> None:
        """Write the turns of a subagent, and of those that it started, where they belong now: below the call, which may
        have been read later than they were, or again."""
        db = self._spans.db
        db.execute("DELETE FROM host WHERE session = ?", (session.id,))
        if host is not None:
            db.execute("INSERT INTO host VALUES (?, ?, ?, ?)", (session.id, *host))
        family = [self._session(number) for (number,) in self._record.execute(_FAMILY, (session.key,)).fetchall()]
        above = self._record.execute(_ANCESTORS, (session.key,)).fetchall()
        listed = encode([key for (key,) in above]).decode(), encode([member.id for member in family]).decode()
        traces = db.execute(f"SELECT DISTINCT trace FROM span WHERE {_SPANS_OF_FAMILY}", listed).fetchall()
        self._touched |= {trace for (trace,) in traces} | self._spans.remove(_SPANS_OF_FAMILY, listed)
        for member in family:
            for ordinal in range(1, member.turn_count + 1):
                self._write_turn(member, ordinal, self._place(member, ordinal))

    def _find_call(self, key: str, call: str) -> Host | None:
        row = self._record.execute(
            "SELECT e.session, e.turn, e.uid FROM session s JOIN event e ON e.session = s.id WHERE s.key = ? "
            "AND e.type = ? AND json_extract(e.facts, '$.call') = ?",
            (key, EventType.TOOL_CALL.code, call),
        ).fetchone()
        return None if row is None else Host(row[0], row[1], _uid(row[2]))

    def _follow_children(self, session: Session, ordinal: int, turn: Turn, trace: int) -> None:
        """The subagents that a turn started. Turns of those that were read before their call move below it now; one
        that only its call's response ends, ends."""
        if not turn.calls:
            return
        children = self._children.get(session.id)
        if children is None:
            rows = self._record.execute(
                "SELECT parent_call, id FROM session WHERE parent = ? AND parent_call IS NOT NULL", (session.key,)
            )
            children = self._children[session.id] = [(call, child) for call, child in rows]
        for call, number in children:
            piece = turn.calls.get(call)
            if piece is None:
                continue
            child = self._session(number)
            host = self._known_host(child)
            if host is None or not self._exists(host.session):
                self._move(child, Host(session.id, ordinal, piece.uid))
            elif piece.end is not None and child.turn_count:
                place = self._place(child, child.turn_count)
                if self._is_pending(child, child.turn_count, place):
                    self._write_turn(child, child.turn_count, place)

    # Usage of sessions of which nothing else is there

    def _project_loose_usage(self) -> None:
        rows = self._record.execute(
            "SELECT u.session, count(*), sum(u.input_tokens + u.output_tokens) FROM usage u JOIN session s "
            "ON s.id = u.session WHERE u.turn = 0 AND s.turn_count = 0 GROUP BY u.session"
        ).fetchall()
        for number, calls, tokens in rows:
            session = self._session(number)
            known = self._spans.db.execute(
                "SELECT t.tokens, (SELECT count(*) FROM span WHERE trace = t.id) FROM trace t WHERE t.uid = ?",
                (session_id(session.key),),
            ).fetchone()
            if known != (tokens, calls + 1):
                self._write_turn(session, 0, Place(session_id(session.key), None))

    # The rest

    def _refresh(self) -> None:
        for trace in self._touched | self._spans.unite(self._touched):
            self._spans.refresh(trace)
        self._touched.clear()

    def _remove_trace(self, uid: str) -> None:
        row = self._spans.db.execute("SELECT id FROM trace WHERE uid = ?", (uid,)).fetchone()
        if row is not None:
            self._touched |= {row[0], *self._spans.remove("trace = ? AND session IS NOT NULL", row)}

    def _is_pending(self, session: Session, ordinal: int, place: Place) -> bool:
        uid = _uid(digest("turn", session.key, str(ordinal)))
        row = self._spans.db.execute(
            "SELECT status FROM span WHERE trace = (SELECT id FROM trace WHERE uid = ?) AND uid = ?", (place.trace, uid)
        ).fetchone()
        return row is not None and row[0] == _PENDING

    def _prompt_line(self, turn: Turn) -> str:
        if turn.prompt_id is None:
            return ""
        (body,) = self._record.execute("SELECT body FROM event WHERE id = ?", (turn.prompt_id,)).fetchone()
        line = " ".join(self._unpack(body)[: 4 * _NAME_CHARS].split())
        return line if len(line) <= _NAME_CHARS else line[: _NAME_CHARS - 1].rstrip() + "…"

    def _exists(self, number: int) -> bool:
        """Whether the record has the session still, and not under another number."""
        known = number in self._sessions
        return known or self._record.execute("SELECT 1 FROM session WHERE id = ?", (number,)).fetchone() is not None

    def _session(self, number: int) -> Session:
        session = self._sessions.get(number)
        if session is None:
            row = self._record.execute(
                "SELECT id, key, source, title, cwd, parent, parent_call, turn_count FROM session WHERE id = ?",
                (number,),
            ).fetchone()
            session = self._sessions[number] = Session(*row)
        return session

    def _meta(self, name: str) -> Any:
        row = self._spans.db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None

    def _set_meta(self, name: str, value: str | int) -> None:
        self._spans.db.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))


def _uid(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)
