"""The local store of traces: one SQLite file beside the archive's."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ....sqlite import Readers, is_damage, rewrite
from ...base import ArchiveError, EventRow
from ...errors import DAMAGED_TRACES, explain
from ...spans import (
    Found,
    Origin,
    SpanRow,
    SpanStats,
    StatsGroup,
    ToolUse,
    TraceQuery,
    TraceRow,
    UsageDetail,
    UsageTotal,
    Window,
)
from ..bodies import Bodies
from .conditions import Term, paths_of, span_sort, span_term, trace_sort, trace_term
from .database import open_database, prepare
from .rows import SPAN_SELECT, TRACE_COLUMNS, read_span, read_trace
from .search import Matches, find
from .texts import fill_from_events
from .totals import span_stats, tool_uses, usage_totals
from .writer import SpanWriter

__all__ = ["LocalSpans", "ReadEvents"]

ReadEvents = Callable[[int, int, int, int], list[EventRow]]
"""The events of a session (by its number) and turn from one ordinal to another."""

_TRACE = ", ".join(f"t.{name}" for name in TRACE_COLUMNS)
# So many excerpts' worth of attributes, and of metadata, and so many tool calls.
_MOST_EXCERPTS = 20
_File = tuple[int, int]
"""Device and number of a file."""
T = TypeVar("T")

_decode = msgspec.json.Decoder().decode


class LocalSpans:
    """Any number of threads may ask and put, in any number of processes.

    The file is opened when it is needed, and again when another one has taken its place: a damaged one fails those who
    ask for traces, until it is moved away.
    """

    def __init__(self, home: Path, read_events: ReadEvents) -> None:
        self._path = home / "traces.db"
        self._read_events = read_events
        self._bodies = Bodies(lambda: None)
        self._readers = Readers(lambda: open_database(self._path, writable=False), self._prepare)
        self._preparing = threading.Lock()
        self._prepared: _File | None = None
        self._writing = threading.Lock()
        self._writer: SpanWriter | None = None
        self._written: _File | None = None

    # Writing

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        if not spans:
            return
        with self._writing:
            try:
                file = self._prepare()
                if self._writer is None or self._written != file:
                    self._close_writer()
                    self._writer, self._written = self.writer(), file
                self._writer.put(spans, origins)
            except sqlite3.DatabaseError as error:
                raise self._trouble(error, "written") from None

    def writer(self) -> SpanWriter:
        """A connection for one thread at a time to write with."""
        self._prepare()
        return SpanWriter(open_database(self._path, writable=True))

    def forget(self, session: int, key: str, *, remember: bool) -> None:
        """Delete the traces of a session, by its number in archive.db and by its key; with `remember`, for good."""
        from .forgetting import forget_session

        with closing(self.writer()) as writer:
            forget_session(writer, session, key, remember=remember)

    def rewrite(self) -> None:
        with closing(self.writer()) as writer:
            rewrite(writer.db)

    @property
    def projected(self) -> int:
        """The last change of the record that is projected; none, if that cannot be told."""
        try:
            row = self._db.execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
        except (sqlite3.DatabaseError, ArchiveError):
            return 0
        return int(row[0]) if row else 0

    def check(self) -> None:
        if not self._path.exists():
            return
        with self._reading() as db:
            (result,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if result != "ok":
                raise ArchiveError(DAMAGED_TRACES.format(self._path, " ".join(result.split())))

    # Asking

    def traces(self, query: TraceQuery) -> Found[TraceRow]:
        with self._reading() as db:
            sent = _sent(db, query)
            terms = [trace_term(condition, sent) for condition in query.conditions]
            matches = find(db, "trace t", "t", query, terms, trace_sort(query.sort))
            values = _by_number(db, f"SELECT t.id, {_TRACE} FROM trace t", "t", matches.numbers)
        return _found(matches, {number: read_trace(rest) for number, *rest in values})

    def spans(self, query: TraceQuery, chars: int) -> Found[SpanRow]:
        with self._reading() as db:
            sent = _sent(db, query)
            terms = [span_term(condition, sent) for condition in query.conditions]
            if _has_twins(db):
                terms.append(Term("s.twin IS NULL", []))
            matches = find(db, "span s", "s", query, terms, span_sort(query.sort, sent))
            values = _by_number(db, SPAN_SELECT, "s", matches.numbers)
            return _found(matches, self._with_texts(values, chars))

    def trace(self, id: str) -> tuple[TraceRow, list[SpanRow]] | None:
        with self._reading() as db:
            row = db.execute(f"SELECT t.id, {_TRACE} FROM trace t WHERE t.uid = ?", (id,)).fetchone()
            if row is None:
                return None
            values = db.execute(f"{SPAN_SELECT} WHERE s.trace = ?", (row[0],)).fetchall()
            spans = self._with_texts(sorted(values, key=itemgetter(0)), None)
            _point_at_twins(db, spans, {number: twin for row in values if (number := row[0]) and (twin := row[38])})
            return read_trace(row[1:]), _parents_first(list(spans.values()))

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        with self._reading() as db:
            return usage_totals(db, window, detail)

    def stats(self, window: Window, by: StatsGroup) -> list[SpanStats]:
        with self._reading() as db:
            return span_stats(db, window, by)

    def tools(self, window: Window) -> list[ToolUse]:
        with self._reading() as db:
            return tool_uses(db, window)

    def close(self) -> None:
        self._readers.close()
        self._close_writer()

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _with_texts(self, rows: list[Any], chars: int | None) -> dict[int, SpanRow]:
        """The spans by number; what was received has its texts beside it, what was projected in its events."""
        spans: dict[int, SpanRow] = {}
        projected: list[tuple[SpanRow, int, int, int | None, int | None]] = []
        for values in rows:
            span = spans[values[0]] = read_span(values)
            texts = (self._bodies.unpack(body) for body in values[24:27])
            span.input, span.output, tool_calls = (_decode(text) if text else None for text in texts)
            span.tool_calls = tool_calls or []
            session, turn, first, last = values[19:23]
            last_turn = values[37]
            if session is not None and last_turn is None:
                projected.append((span, session, turn, first, last))
            elif session is not None:  # the response of a tool stands in another turn than the call
                projected += (span, session, turn, first, None), (span, session, last_turn, None, last)
        told = {id(span): (span.input, span.output, span.tool_calls) for span, *_ in projected}
        try:
            fill_from_events(projected, self._read_events)
        except sqlite3.DatabaseError as error:  # of the archive, not of the traces
            raise ArchiveError(explain(error) or f"the archive cannot be read: {error}") from None
        for span, *_ in projected:  # telemetry may know what the transcript does not tell
            input, output, tool_calls = told[id(span)]
            span.input = input if span.input is None else span.input
            span.output = output if span.output is None else span.output
            span.tool_calls = span.tool_calls or tool_calls
        if chars is not None:
            for span in spans.values():
                _cut(span, chars)
        return spans

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._db
        except sqlite3.DatabaseError as error:
            raise self._trouble(error, "read") from None

    @property
    def _db(self) -> sqlite3.Connection:
        return self._readers.connection

    def _prepare(self) -> _File:
        """Bring the file to this version, unless that was done; gives which one it is."""
        file = _file(self._path)
        if file is None or file != self._prepared:
            with self._preparing:
                prepare(self._path)
                file = self._prepared = _file(self._path) or (0, 0)
        return file

    def _trouble(self, error: sqlite3.DatabaseError, done: str) -> ArchiveError:
        if is_damage(error):
            self._prepared = None
            return ArchiveError(DAMAGED_TRACES.format(self._path, error))
        return ArchiveError(f"the traces cannot be {done}: {error}")


def _file(path: Path) -> _File | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sent(db: sqlite3.Connection, query: TraceQuery) -> set[str]:
    """Paths of metadata that senders named like our own facts."""
    paths = paths_of([query.sort, *(condition.field for condition in query.conditions)])
    marks = ", ".join("?" * len(paths))
    rows = db.execute(f"SELECT text FROM path WHERE text IN ({marks})", paths) if paths else ()
    return {text for (text,) in rows}


def _has_twins(db: sqlite3.Connection) -> bool:
    """Where there are none, searching needs not look for them."""
    return db.execute("SELECT 1 FROM span WHERE twin IS NOT NULL LIMIT 1").fetchone() is not None


def _point_at_twins(db: sqlite3.Connection, spans: dict[int, SpanRow], twins: dict[int, int]) -> None:
    """What a span reports that another one shows stands there, and only there."""
    rows = _by_number(
        db, "SELECT s.id, t.uid, s.uid FROM span s JOIN trace t ON t.id = s.trace", "s", [*twins.values()]
    )
    places = {number: (trace, id) for number, trace, id in rows}
    for number, twin in twins.items():
        span = spans[number]
        span.twin = places.get(twin)
        span.input = span.output = span.cost = span.total_tokens = span.input_tokens = span.output_tokens = None
        span.cache_read_tokens = span.cache_write_tokens = span.cache_write_1h_tokens = span.reasoning_tokens = None
        span.tool_calls = []


def _found(matches: Matches, rows: dict[int, T]) -> Found[T]:
    return Found(
        rows=[rows[number] for number in matches.numbers if number in rows],
        more=matches.more,
        total=matches.total,
        last=matches.last,
        complete=matches.complete,
    )


def _parents_first(spans: list[SpanRow]) -> list[SpanRow]:
    """By their start; of those that start in the same millisecond the outer one first."""
    parents = {span.id: span.parent for span in spans}
    depths: dict[int | None, int] = {None: 0}
    for span in spans:
        path: list[int] = []
        above: int | None = span.id
        while above not in depths and above not in path and above is not None:
            path.append(above)
            above = parents.get(above)
        depth = depths.get(above, 0)
        for number, id in enumerate(reversed(path), 1):
            depths[id] = depth + number
    return sorted(spans, key=lambda span: (span.start, depths[span.id]))


def _by_number(db: sqlite3.Connection, select: str, row: str, numbers: Sequence[int]) -> list[Any]:
    marks = ", ".join("?" * len(numbers))
    return db.execute(f"{select} WHERE {row}.id IN ({marks})", list(numbers)).fetchall()


def _cut(span: SpanRow, chars: int) -> None:
    """Excerpts where texts are long; data that is long as text becomes one."""
    whole = (span.input, span.output, span.metadata, span.attributes, span.tool_calls)
    span.input, span.output = _excerpt(span.input, chars), _excerpt(span.output, chars)
    span.metadata, span.attributes = _excerpts(span.metadata, chars), _excerpts(span.attributes, chars)
    span.tool_calls = [_excerpts(call, chars) for call in span.tool_calls[:_MOST_EXCERPTS]]
    span.cut = whole != (span.input, span.output, span.metadata, span.attributes, span.tool_calls)


def _excerpts(table: dict[str, Any], chars: int) -> dict[str, Any]:
    """A table with excerpts of its long values, as far as there is room for them."""
    room = _MOST_EXCERPTS * chars
    excerpts = {}
    for name, value in table.items():
        excerpts[name] = short = _excerpt(value, chars)
        room -= len(name) + (len(short) if isinstance(short, str) else chars if isinstance(short, dict | list) else 1)
        if room < 0:
            del excerpts[name]
            break
    return excerpts


def _excerpt(value: Any, chars: int) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text[:chars] + "…" if len(text) > chars else value
