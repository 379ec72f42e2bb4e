"""The local store of traces: one SQLite file beside the archive's."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ....prices import keep_rates
from ....sqlite import Readers, is_damage, rewrite
from ...errors import DAMAGED_TRACES, ArchiveError, explain
from ...spans import (
    Found,
    Origin,
    SpanRow,
    SpanStats,
    StatsGroup,
    TraceQuery,
    TraceRow,
    UsageDetail,
    UsageTotal,
    Window,
    paths_of,
)
from ...spantexts import ReadEvents, cut, fill_from_events, parents_first, show_elsewhere
from ..bodies import Bodies
from .conditions import Term, span_sort, span_term, trace_sort, trace_term
from .database import lacks_indexes, open_database, prepare
from .rows import (
    OUTLINE_SELECT,
    SPAN_SELECT,
    TRACE_SELECT,
    Matches,
    OutlinedSpan,
    StoredSpan,
    StoredTrace,
    find,
)
from .totals import span_stats, tool_sums, usage_totals
from .writer import LocalSpanWriter

if TYPE_CHECKING:
    from .turns import LocalTurnWriter

_File = tuple[int, int]
"""Device and number of a file."""
T = TypeVar("T")


class LocalSpans:
    """The spans of the local engine. Any number of threads and processes may read and put.

    The file is opened at the first use, and again when another file has taken its place: a damaged one raises errors
    until it is moved away.
    """

    def __init__(self, home: Path, read_events: ReadEvents[int]) -> None:
        keep_rates(home / "cache")
        self._path = home / "traces.db"
        self._read_events = read_events
        self._bodies = Bodies(lambda: None)
        self._readers = Readers(lambda: open_database(self._path, writable=False), self._prepare)
        self._preparing = threading.Lock()
        self._prepared: _File | None = None
        self._writing = threading.Lock()
        self._writer: LocalSpanWriter | None = None
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

    def writer(self) -> LocalSpanWriter:
        """A connection for one thread at a time to write with."""
        self._prepare()
        return LocalSpanWriter(open_database(self._path, writable=True))

    def turn_writer(self, session_number: Callable[[str], int | None], reached: int) -> LocalTurnWriter:
        """A connection for a projection to write with."""
        from .turns import LocalTurnWriter

        self._prepare()
        database = open_database(self._path, writable=True)
        # Turns come in the order in which they are read, and are written at the end of every table.
        database.execute("PRAGMA cache_size=-8192")
        database.execute("PRAGMA mmap_size=0")
        return LocalTurnWriter(database, session_number, reached)

    def forget(self, session: int, key: str, *, remember: bool) -> None:
        """Delete the traces of a session, by its number in archive.db and by its key; with `remember`, for good."""
        from .turns import forget_session

        with closing(self.writer()) as writer:
            forget_session(writer, session, key, remember=remember)

    def rewrite(self) -> None:
        with closing(self.writer()) as writer:
            rewrite(writer.db)

    @property
    def projected(self) -> int:
        """The last change of the record that is projected; 0 if the traces cannot be read."""
        try:
            row = self._db.execute("SELECT value FROM meta WHERE name = 'change'").fetchone()
        except (sqlite3.DatabaseError, ArchiveError):
            return 0
        return int(row[0]) if row else 0

    @property
    def lacks_indexes(self) -> bool:
        """True while many spans are loaded, or after such a load was cut short."""
        try:
            return lacks_indexes(self._db)
        except (sqlite3.DatabaseError, ArchiveError):
            return False

    def check(self) -> None:
        if not self._path.exists():
            return
        with self._reading() as db:
            (result,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if result != "ok":
                raise ArchiveError(DAMAGED_TRACES.format(self._path, " ".join(result.split())))

    # Reading

    def traces(self, query: TraceQuery) -> Found[TraceRow]:
        with self._reading() as db:
            sent = _sent(db, query)
            terms = [trace_term(condition, sent) for condition in query.conditions]
            matches = find(db, "trace t", "t", query, terms, trace_sort(query.sort))
            traces = [StoredTrace(*values) for values in _by_number(db, TRACE_SELECT, "t", matches.numbers)]
        return _found(matches, {trace.number: trace.row() for trace in traces})

    def spans(self, query: TraceQuery, chars: int) -> Found[SpanRow]:
        with self._reading() as db:
            sent = _sent(db, query)
            terms = [span_term(condition, sent) for condition in query.conditions]
            if _has_twins(db):
                terms.append(Term("s.twin IS NULL", []))
            matches = find(db, "span s", "s", query, terms, span_sort(query.sort, sent))
            spans = [StoredSpan(*values) for values in _by_number(db, SPAN_SELECT, "s", matches.numbers)]
            return _found(matches, self._with_texts(spans, chars))

    def trace(
        self, id: str, only: Collection[int] | None = None, *, texts: bool = True
    ) -> tuple[TraceRow, list[SpanRow]] | None:
        with self._reading() as db:
            trace = _stored_trace(db, id)
            if trace is None:
                return None
            chosen = "" if only is None else f" AND s.uid IN ({', '.join('?' * len(only))})"
            where, given = f"WHERE s.trace = ?{chosen}", (trace.number, *(only or ()))
            # By their numbers, which are the first column.
            if texts:
                stored = [StoredSpan(*values) for values in sorted(db.execute(f"{SPAN_SELECT} {where}", given))]
                spans = self._with_texts(stored, None)
                twins = {span.number: span.twin for span in stored if span.twin is not None}
            else:
                outlined = [OutlinedSpan(*values) for values in sorted(db.execute(f"{OUTLINE_SELECT} {where}", given))]
                spans = {span.number: span.row(id) for span in outlined}
                twins = {span.number: span.twin for span in outlined if span.twin is not None}
            _point_at_twins(db, spans, twins)
            return trace.row(), parents_first(list(spans.values()))

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        with self._reading() as db:
            return usage_totals(db, window, detail)

    def stats(self, window: Window, by: StatsGroup, *, latencies: bool = True) -> list[SpanStats]:
        with self._reading() as db:
            if by == "tool" and not latencies:
                return tool_sums(db, window)
            return span_stats(db, window, by)

    def close(self) -> None:
        self._readers.close()
        self._close_writer()

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _with_texts(self, stored: list[StoredSpan], chars: int | None) -> dict[int, SpanRow]:
        """The spans by number. Received spans have their texts beside them, those of turns in their events."""
        spans = {span.number: span.row(self._bodies.unpack) for span in stored}
        try:
            of_turns = [(each.events_of, spans[each.number]) for each in stored]
            fill_from_events([(events, span) for events, span in of_turns if events], self._read_events)
        except sqlite3.DatabaseError as error:  # of the archive, not of the traces
            raise ArchiveError(explain(error) or f"the archive cannot be read: {error}") from None
        if chars is not None:
            for span in spans.values():
                cut(span, chars)
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
        """Migrate the file, unless that is done. Returns its identity."""
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


def _stored_trace(db: sqlite3.Connection, id: str) -> StoredTrace | None:
    row = db.execute(f"{TRACE_SELECT} WHERE t.uid = ?", (id,)).fetchone()
    return None if row is None else StoredTrace(*row)


def _sent(db: sqlite3.Connection, query: TraceQuery) -> set[str]:
    """Paths of metadata that senders named like our own facts."""
    paths = paths_of([query.sort, *(condition.field for condition in query.conditions)])
    marks = ", ".join("?" * len(paths))
    rows = db.execute(f"SELECT text FROM path WHERE text IN ({marks})", paths) if paths else ()
    return {text for (text,) in rows}


def _has_twins(db: sqlite3.Connection) -> bool:
    """True if any span has a twin; else a search has no need to exclude them."""
    return db.execute("SELECT 1 FROM span WHERE twin IS NOT NULL LIMIT 1").fetchone() is not None


def _point_at_twins(db: sqlite3.Connection, spans: dict[int, SpanRow], twins: dict[int, int]) -> None:
    """Take texts, tokens and cost out of the spans that another span shows, and name that span."""
    rows = _by_number(
        db, "SELECT s.id, t.uid, s.uid FROM span s JOIN trace t ON t.id = s.trace", "s", [*twins.values()]
    )
    places = {number: (trace, id) for number, trace, id in rows}
    for number, twin in twins.items():
        show_elsewhere(spans[number], places.get(twin))


def _found(matches: Matches, rows: dict[int, T]) -> Found[T]:
    return Found(
        rows=[rows[number] for number in matches.numbers if number in rows],
        more=matches.more,
        total=matches.total,
        last=matches.last,
        complete=matches.complete,
    )


def _by_number(db: sqlite3.Connection, select: str, row: str, numbers: Sequence[int]) -> list[Any]:
    marks = ", ".join("?" * len(numbers))
    return db.execute(f"{select} WHERE {row}.id IN ({marks})", list(numbers)).fetchall()
