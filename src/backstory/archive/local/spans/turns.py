"""The spans of turns: written by a projection, kept up to date with the record, and deleted with their session."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Collection, Sequence
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import msgspec

from ....model import TurnRef, digest, session_mark
from ...base import ArchiveError
from ...calls import call_scope
from ...changes import KnownTurn, MakeProjection, Progress, Projection, TurnSpans
from ...spans import STATUSES, EventRange, SpanRow
from ..bodies import Bodies
from ..changes import LocalRecord
from ..database import newest_change, stored_dictionary
from .calls import listed, traces_of_calls
from .database import create_indexes, put_off_indexes
from .totals import refresh_traces
from .writer import LocalSpanWriter, OfTurn

if TYPE_CHECKING:
    from . import LocalSpans

_log = logging.getLogger(__name__)

_NO_EVENTS = EventRange()

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class LocalTurnWriter(LocalSpanWriter):
    """Writes the spans of turns."""

    def __init__(self, db: sqlite3.Connection, session_number: Callable[[str], int | None], reached: int) -> None:
        """`session_number` is the number of a session in the record, `reached` the last change that the record and the
        spans both have."""
        super().__init__(db)
        self._session_number = session_number
        self._reached = reached

    def progress(self) -> Progress | None:
        version = self._meta("version")
        return None if version is None else Progress(version, min(int(self._meta("change") or 0), self._reached))

    def known(self, turn: TurnRef) -> KnownTurn | None:
        row = self.db.execute(
            "SELECT t.uid, s.parent, s.status, (SELECT count(*) FROM span WHERE trace = t.id), t.tokens FROM turn p "
            "JOIN trace t ON t.id = p.trace JOIN span s ON s.trace = p.trace AND s.uid = p.root "
            "WHERE p.session = ? AND p.turn = ?",
            (self._session_number(turn.key), turn.ordinal),
        ).fetchone()
        if row is None:
            return None
        trace, parent, status, spans, tokens = row
        return KnownTurn(trace, parent, STATUSES[status], spans, tokens)

    def replace(self, turns: Sequence[TurnSpans], progress: Progress) -> None:
        with self.transaction():
            touched: set[int] = set()
            if self._meta("version") != progress.version:
                touched |= self.remove("session IS NOT NULL")
                self.db.execute("DELETE FROM trace WHERE projected")
                self.db.execute("DELETE FROM turn")
            touched |= self._replace_turns(turns)
            refresh_traces(self.db, touched | self.unite(touched))
            self.db.executemany("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", progress._asdict().items())

    def _replace_turns(self, turns: Sequence[TurnSpans]) -> set[int]:
        """Replace the spans of some turns, each given once. Returns the traces that changed."""
        places = [(self._session_number(turn.turn.key), turn.turn.ordinal) for turn in turns]
        known = self._traces_of(places)
        touched: set[int] = set()
        rows: list[tuple[int, SpanRow, OfTurn]] = []
        roots, kept = [], []
        for turn, (session, ordinal) in zip(turns, places, strict=True):
            before = known.get((session, ordinal))
            if session is None or (before is None and not turn.spans):
                continue
            trace = self.trace(turn.trace, turn.origin, projected=True) if turn.spans else None
            touched.update(number for number in (before, trace) if number is not None)
            if before is not None and before != trace:
                touched |= self.remove("trace = ? AND session = ? AND turn = ?", (before, session, ordinal))
            if trace is None:
                self.db.execute("DELETE FROM turn WHERE session = ? AND turn = ?", (session, ordinal))
                continue
            scope = call_scope(turn.turn.key.partition("/")[2])
            for span in turn.spans:
                events = span.events or _NO_EVENTS
                of_turn = OfTurn(session, ordinal, events.first, events.last, events.last_turn, span.cause, scope)
                rows.append((trace, span, of_turn))
            roots.append((session, ordinal, trace, turn.spans[0].id))
            if before is not None:
                kept.append((trace, session, ordinal, listed(span.id for span in turn.spans)))
        self._put_rows_of_turns(rows)
        self.db.executemany("INSERT OR REPLACE INTO turn (session, turn, trace, root) VALUES (?, ?, ?, ?)", roots)
        for place in kept:
            touched |= self.remove(
                "trace = ? AND session = ? AND turn = ? AND uid NOT IN (SELECT value FROM json_each(?))", place
            )
        return touched

    def _traces_of(self, places: Sequence[tuple[int | None, int]]) -> dict[tuple[int | None, int], int]:
        """The traces of the turns that are projected already."""
        rows = self.db.execute(
            "SELECT t.session, t.turn, t.trace FROM json_each(?) p JOIN turn t "
            "ON t.session = json_extract(p.value, '$[0]') AND t.turn = json_extract(p.value, '$[1]')",
            (listed(places),),
        )
        return {(session, turn): trace for session, turn, trace in rows}

    def _meta(self, name: str) -> Any:
        row = self.db.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return row[0] if row else None


class TraceFeed:
    """Keeps the traces of turns up to date with the record, in one process at a time: the writer, or the process that
    works for it. An error in the traces does not stop the archive."""

    def __init__(
        self, record: sqlite3.Connection, spans: LocalSpans, projection: str | None, *, bulk: bool = False
    ) -> None:
        """`projection` names a `MakeProjection` as `module:object`; it is imported when there is something to do.
        `bulk`: much is about to be projected, and `finish` will be called."""
        self._record = record
        self._spans = spans
        self._name = projection
        self._bulk = bulk
        self._projection: Projection | None = None
        self._writer: LocalTurnWriter | None = None
        self._complaint = ""
        # After a power cut the record may have lost changes that were projected already.
        self._projected = min(spans.projected, newest_change(record))
        self._lacks_indexes = spans.lacks_indexes

    @property
    def projected(self) -> int:
        """The last change of the record that the traces have; 0 as long as there is anything else left to do."""
        if self._name is None:
            return newest_change(self._record)
        return 0 if self._lacks_indexes else self._projected

    def project(self, seconds: float) -> None:
        """Let the traces follow the record; what is left after so many seconds is for the next call."""
        newest = newest_change(self._record)
        if self._name is None or (self._projected >= newest and (self._bulk or not self._lacks_indexes)):
            return
        try:
            if self._projection is None:
                self._projection = self._open(self._name)
            self._projected = self._projection.follow(newest, time.monotonic() + seconds)
            if self._projected >= newest and not self._bulk:
                self._create_indexes()
        except (ArchiveError, sqlite3.DatabaseError) as error:
            self._complain(error)
            self.close()
            self._projected = min(self._spans.projected, newest)

    def finish(self) -> None:
        """The end of what was to be projected in bulk. What fails is tried again by the next process."""
        try:
            self._create_indexes()
        except sqlite3.DatabaseError as error:
            self._complain(error)

    def _create_indexes(self) -> None:
        if self._lacks_indexes and self._writer is not None:
            create_indexes(self._writer.db)
            self._lacks_indexes = False

    def forget(self, session: int, key: str, remember: bool) -> bool:
        """Delete the traces of a session; False if that has to be tried again."""
        try:
            self._spans.forget(session, key, remember=remember)
        except (ArchiveError, sqlite3.DatabaseError) as error:
            self._complain(error)
            return False
        return True

    def rewrite(self) -> None:
        """Write the file of the traces anew: nothing of what was deleted is left in it."""
        self._spans.rewrite()

    def close(self) -> None:
        self._projection = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, name: str) -> Projection:
        record = self._record
        changes = LocalRecord(record, Bodies(lambda: stored_dictionary(record)))
        self._writer = self._spans.turn_writer(changes.number, self._projected)
        if self._bulk and put_off_indexes(self._writer.db):
            self._lacks_indexes = True
        make: MakeProjection = resolve_name(name)
        return make(changes, self._writer)

    def _complain(self, error: Exception) -> None:
        if str(error) != self._complaint:
            _log.warning("traces are not up to date: %s", error)
        self._complaint = str(error)


def forget_session(spans: LocalSpanWriter, session: int, key: str, *, remember: bool) -> None:
    """Delete the traces of a session. `session` is its number in archive.db: the spans of a subagent lie in the trace
    of the turn that started it."""
    db = spans.db
    with spans.transaction():
        traces = db.execute("SELECT id, uid, projected FROM trace WHERE session = ?", (key,)).fetchall()
        own = {id for id, _, _ in traces}
        rows = db.execute(
            "SELECT id, trace, call, name, model, stop_reason FROM span "
            "WHERE trace IN (SELECT value FROM json_each(?)) OR session = ?",
            (listed(own), session),
        ).fetchall()
        numbers = {id for id, *_ in rows}
        if remember:
            received = [digest("trace", uid) for _, uid, projected in traces if not projected]
            spans.remember_forgotten([session_mark(key), *received])
        shown = _twins(db, numbers)
        _drop_values(db, numbers | shown)
        for table in ("facts", "content", "resent"):
            _delete(db, table, "span", numbers | shown)
        _delete(db, "span", "id", numbers)
        _delete(db, "trace", "id", own)
        db.execute("DELETE FROM turn WHERE session = ?", (session,))
        _drop_names(db, {name for _, _, _, *names in rows for name in names if name is not None})
        calls = {call for _, _, call, *_ in rows if call is not None}
        others = ({trace for _, trace, *_ in rows} | traces_of_calls(db, calls)) - own
        refresh_traces(db, others | spans.unite(others))
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _delete(db: sqlite3.Connection, table: str, column: str, numbers: Collection[int]) -> None:
    db.execute(f"DELETE FROM {table} WHERE {column} IN (SELECT value FROM json_each(?))", (listed(numbers),))


def _twins(db: sqlite3.Connection, spans: set[int]) -> set[int]:
    """The spans of other sessions that show a call which these report. Spans that these show become visible."""
    given = "(SELECT value FROM json_each(?))"
    db.execute(f"UPDATE span SET twin = NULL WHERE twin IN {given}", (listed(spans),))
    rows = db.execute(f"SELECT twin FROM span WHERE twin IS NOT NULL AND id IN {given}", (listed(spans),))
    return {twin for (twin,) in rows}


def _drop_values(db: sqlite3.Connection, spans: set[int]) -> None:
    """Take the spans out of the attributes by path, where one row has the values of many."""
    facts = "SELECT 1 FROM facts WHERE span IN (SELECT value FROM json_each(?)) LIMIT 1"
    if db.execute(facts, (listed(spans),)).fetchone() is None:
        return
    changed, empty = [], []
    for id, numbers, data in db.execute("SELECT id, spans, data FROM part"):
        owners = [int(number) for number in numbers.split(",")]
        if spans.isdisjoint(owners):
            continue
        kept = [
            (number, value) for number, value in zip(owners, _decode(f"[{data}]"), strict=True) if number not in spans
        ]
        if kept:
            values = _encode([value for _, value in kept])[1:-1].decode()
            changed.append((len(kept), ",".join(str(number) for number, _ in kept), values, id))
        else:
            empty.append((id,))
    db.executemany("UPDATE part SET count = ?, spans = ?, data = ? WHERE id = ?", changed)
    db.executemany("DELETE FROM part WHERE id = ?", empty)


def _drop_names(db: sqlite3.Connection, names: Collection[int]) -> None:
    """Delete the names, and the paths of attributes, that no span has any more; writers that cache their numbers notice
    it by the version."""
    db.execute(
        "DELETE FROM name WHERE id IN (SELECT value FROM json_each(?)) "
        "AND NOT EXISTS (SELECT 1 FROM span WHERE span.name = name.id) "
        "AND NOT EXISTS (SELECT 1 FROM span WHERE span.model = name.id) "
        "AND id NOT IN (SELECT stop_reason FROM span WHERE stop_reason IS NOT NULL)",
        (listed(names),),
    )
    db.execute("DELETE FROM path WHERE NOT EXISTS (SELECT 1 FROM part WHERE part.path = path.id)")
    db.execute("INSERT INTO meta (name, value) VALUES ('names', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1")
