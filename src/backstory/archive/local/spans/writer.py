"""Writing spans, received ones and those of turns, with the totals of their traces."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from ....model import digest, session_mark
from ....sqlite import transaction
from ...spans import SPAN_TYPES, STATUSES, Origin, SpanRow
from ..bodies import Bodies
from ..database import mark
from .attributes import AttributeValues
from .calls import enrich, listed, traces_beside, traces_of_calls, unite
from .totals import refresh_traces

_TYPE_CODES = {type: code for code, type in enumerate(SPAN_TYPES)}
_STATUS_CODES = {status: code for code, status in enumerate(STATUSES)}
_ANALYZE_EVERY = 50_000
_MAX_NUMBERS = 100_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


# The columns of a span. Binding a value takes a quarter of a microsecond, and most spans have only the first part.


class _Head(NamedTuple):
    id: int | None
    trace: int
    uid: int
    parent: int | None
    name: int
    type: int
    status: int
    start: int
    end: int | None


class _Detail(NamedTuple):
    model: int | None = None
    input: int | None = None
    output: int | None = None
    total: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    cost: float | None = None
    cost_reported: bool = False
    stop_reason: int | None = None
    exit_code: int | None = None
    waiting: int | None = None
    call: str | None = None
    alias: str | None = None
    logged: bool = False


class OfTurn(NamedTuple):
    session: int
    turn: int
    first: int | None
    last: int | None
    last_turn: int | None
    cause: int | None
    scope: int | None


_NO_DETAIL = _Detail()
# The fields of a span between `model` and `stop_reason`, and behind it.
_COUNTED = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
    "cost",
    "cost_reported",
)
_counted = attrgetter(*_COUNTED)
_reported = attrgetter("exit_code", "waiting", "call", "alias", "logged")


def _upsert(*parts: tuple[str, ...]) -> str:
    """A column that is not given becomes empty, also in a row that is there already."""
    names = [name for part in parts for name in part]
    every = (*_Head._fields, *_Detail._fields, *OfTurn._fields, "counts", "twin")
    given = {**dict.fromkeys(names, "?"), "counts": "1"}
    given.setdefault("cost_reported", "0")
    return (
        f"INSERT INTO span ({', '.join(given)}) VALUES ({', '.join(given.values())}) "
        "ON CONFLICT (trace, uid) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in every if name not in ("id", "uid", "trace"))
    )


_UPSERT_HEAD = _upsert(_Head._fields)
_UPSERT_DETAIL = _upsert(_Head._fields, _Detail._fields)
_UPSERT_OF_TURN = _upsert(_Head._fields, _Detail._fields, OfTurn._fields)
# A tool call, a marker, or the turn as a whole: half of the spans of turns, at half the price.
_BRIEF = ("exit_code", "waiting", "call")
_UPSERT_BRIEF_OF_TURN = _upsert(_Head._fields, _BRIEF, OfTurn._fields)
_brief = attrgetter(*_BRIEF)
# The fields of a span that such a one lacks, and their values then.
_beyond_brief = attrgetter("model", *_COUNTED, "stop_reason", "alias", "logged")
_NOTHING_BEYOND = _beyond_brief(SpanRow(trace="", id=0, name="", start=0))
# The first origin of a trace stays; later ones fill gaps.
_UPSERT_TRACE = """
INSERT INTO trace (uid, name, named, status, start, updated, session, native, source, project, dataset_run, projected)
VALUES (?1, ?2, ?2 IS NOT NULL, 2, 0, 0, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (uid) DO UPDATE SET name = coalesce(excluded.name, name), named = max(named, excluded.named),
    session = coalesce(excluded.session, session),
    native = coalesce(excluded.native, native), source = coalesce(excluded.source, source),
    project = coalesce(excluded.project, project), dataset_run = coalesce(excluded.dataset_run, dataset_run)
RETURNING id
"""


class LocalSpanWriter:
    """One connection that writes. Every write is a transaction: whole or not at all."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self._bodies = Bodies(lambda: None)
        self._names: dict[str, int] = {}
        self._paths: dict[str, int] = {}
        self._names_version: tuple[int] | None = None
        self._unanalyzed = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with transaction(self.db):
                self._check_names()
                yield
        except BaseException:
            self._names.clear()
            self._paths.clear()
            raise
        if self._unanalyzed >= _ANALYZE_EVERY:
            self.analyze()

    def _check_names(self) -> None:
        """Drop the cached numbers if names were deleted, by this process or another."""
        row = self.db.execute("SELECT value FROM meta WHERE name = 'names'").fetchone()
        if row != self._names_version:
            self._names.clear()
            self._paths.clear()
            self._names_version = row

    def remember_forgotten(self, digests: Iterable[bytes]) -> None:
        marks = [(mark(digest),) for digest in digests]
        self.db.executemany("INSERT OR IGNORE INTO forgotten (mark) VALUES (?)", marks)

    def _not_forgotten(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> Sequence[SpanRow]:
        """The spans of traces that belong to no forgotten session, by their own origin or by an earlier one."""
        if self.db.execute("SELECT 1 FROM forgotten LIMIT 1").fetchone() is None:
            return spans
        gone = set()
        for uid in {span.trace for span in spans}:
            digests = [digest("trace", uid)]
            if (origin := origins.get(uid)) is not None and origin.session is not None:
                digests.append(session_mark(origin.session))
            marks = [mark(digest) for digest in digests]
            if self.db.execute(
                f"SELECT 1 FROM forgotten WHERE mark IN ({', '.join('?' * len(marks))})", marks
            ).fetchone():
                gone.add(uid)
                self.remember_forgotten(digests)
        return [span for span in spans if span.trace not in gone]

    def analyze(self) -> None:
        """Update the statistics by which SQLite chooses the condition to begin with."""
        self._unanalyzed = 0
        self.db.execute("PRAGMA analysis_limit=1000")
        self.db.execute("ANALYZE")

    def close(self) -> None:
        try:
            if self._unanalyzed:
                self.analyze()
        except sqlite3.DatabaseError:
            pass  # of a damaged file nothing depends on it
        finally:
            self.db.close()

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        with self.transaction():
            spans = self._not_forgotten(spans, origins)
            traces = {uid: self.trace(uid, origins.get(uid, Origin())) for uid in {span.trace for span in spans}}
            unique = {(traces[span.trace], span.id): span for span in spans}
            known = self._known(unique)
            fresh = 1 + int(self.db.execute("SELECT max(id) FROM span").fetchone()[0] or 0)
            numbers = {}
            for place in unique:
                numbers[place] = known.get(place) or fresh
                fresh += place not in known
            self._put_rows((number, place[0], unique[place]) for place, number in numbers.items())
            self._put_details({number: unique[place] for place, number in numbers.items()}, known.values())
            calls = {span.call: span.start for span in spans if span.call is not None and span.type == "GENERATION"}
            united = self.unite(traces.values(), numbers.values())
            refresh_traces(self.db, traces_of_calls(self.db, calls, calls.values()).union(traces.values(), united))

    def remove(self, where: str, parameters: Sequence[Any] = ()) -> set[int]:
        """Delete spans of turns. Returns the traces of telemetry that reported the same calls, which it shows again."""
        numbers = [number for (number,) in self.db.execute(f"SELECT id FROM span WHERE {where}", parameters)]
        if not numbers:
            return set()
        gone, given = "(SELECT value FROM json_each(?))", (listed(numbers),)
        rows = self.db.execute(f"UPDATE span SET twin = NULL WHERE twin IN {gone} RETURNING trace", given)
        traces = {trace for (trace,) in rows.fetchall()}
        # Numbers are given again: nothing of these may be found under them.
        self.db.execute(f"INSERT OR IGNORE INTO resent (span) SELECT span FROM facts WHERE span IN {gone}", given)
        for table, column in (("facts", "span"), ("content", "span"), ("span", "id")):
            self.db.execute(f"DELETE FROM {table} WHERE {column} IN {gone}", given)
        return traces

    def unite(self, traces: Collection[int], written: Collection[int] | None = None) -> set[int]:
        """Let spans of turns show what telemetry reports of the same calls. Returns the traces that this changed.

        `written` are the received spans that are new; without it, spans of turns were written anew.
        """
        twins = unite(self.db, traces, written)
        for number, received in twins.shown.items():
            enrich(self.db, number, received)
            self._copy_details(number, received)
        return twins.touched | traces_beside(self.db, twins.touched) if twins.touched else twins.touched

    def _copy_details(self, number: int, received: Sequence[int]) -> None:
        """Give a span of a turn the attributes and texts of the received spans that report the same call."""
        facts = self._facts_of(received)
        span = SpanRow(trace="", id=0, name="", start=0)
        for other in reversed(received):
            data = _decode(facts[other]) if other in facts else {"metadata": {}, "attributes": {}}
            span.metadata = {**span.metadata, **data["metadata"]}
            span.attributes = {**span.attributes, **data["attributes"]}
            texts = self.db.execute("SELECT input, output, tool_calls FROM content WHERE span = ?", (other,)).fetchone()
            input, output, calls = (
                _decode(self._bodies.unpack(text)) if text else None for text in texts or (None,) * 3
            )
            span.input = span.input if input is None else input
            span.output = span.output if output is None else output
            span.tool_calls = calls or span.tool_calls
        self._put_details({number: span}, [number])

    def trace(self, uid: str, origin: Origin, *, projected: bool = False) -> int:
        """The number of a trace, which is made if it is new."""
        native = origin.session.partition("/")[2] if origin.session else None
        row = self.db.execute(
            _UPSERT_TRACE,
            (uid, origin.name, origin.session, native, origin.source, origin.project, origin.dataset_run, projected),
        ).fetchone()
        return int(row[0])

    def name(self, text: str) -> int:
        return self._names.get(text) or self._number("name", self._names, text)

    def _path(self, text: str) -> int:
        return self._paths.get(text) or self._number("path", self._paths, text)

    def _known(self, places: Iterable[tuple[int, int]]) -> dict[tuple[int, int], int]:
        rows = self.db.execute(
            "SELECT s.trace, s.uid, s.id FROM json_each(?) p "
            "JOIN span s ON s.uid = json_extract(p.value, '$[1]') AND s.trace = json_extract(p.value, '$[0]')",
            (listed(places),),
        )
        return {(trace, uid): id for trace, uid, id in rows}

    def _put_rows(self, spans: Iterable[tuple[int, int, SpanRow]]) -> None:
        """Write received spans, each given with its number and the number of its trace."""
        heads, details = [], []
        for number, trace, span in spans:
            head, detail = self._head(number, trace, span), self._detail(span)
            if detail == _NO_DETAIL:
                heads.append(head)
            else:
                details.append((*head, *detail))
        self.db.executemany(_UPSERT_HEAD, heads)
        self.db.executemany(_UPSERT_DETAIL, details)
        self._unanalyzed += len(heads) + len(details)

    def _put_rows_of_turns(self, spans: Iterable[tuple[int, SpanRow, OfTurn]]) -> None:
        """Write spans of turns, each given with the number of its trace."""
        rows, brief = [], []
        for trace, span, of_turn in spans:
            head = self._head(None, trace, span)
            if _beyond_brief(span) == _NOTHING_BEYOND:
                brief.append((*head, *_brief(span), *of_turn))
            else:
                rows.append((*head, *self._detail(span), *of_turn))
        self.db.executemany(_UPSERT_OF_TURN, rows)
        self.db.executemany(_UPSERT_BRIEF_OF_TURN, brief)
        self._unanalyzed += len(rows) + len(brief)

    def _head(self, number: int | None, trace: int, span: SpanRow) -> tuple[Any, ...]:
        """The values of `_Head`."""
        type, status = _TYPE_CODES[span.type], _STATUS_CODES[span.status]
        return number, trace, span.id, span.parent, self.name(span.name), type, status, span.start, span.end

    def _detail(self, span: SpanRow) -> tuple[Any, ...]:
        """The values of `_Detail`. Each span has some, so no object is made for them."""
        model = self.name(span.model) if span.model else None
        stop_reason = self.name(span.stop_reason) if span.stop_reason else None
        return model, *_counted(span), stop_reason, *_reported(span)

    def _put_details(self, spans: Mapping[int, SpanRow], known: Collection[int]) -> None:
        before = self._facts_of(known)
        values = AttributeValues()
        facts, contents, changed = [], [], []
        for number, span in spans.items():
            data = {"metadata": span.metadata, "attributes": span.attributes}
            text = _encode(data).decode() if span.metadata or span.attributes else None
            if text is not None and "null" in text:
                # It may stand for a number that JSON does not have.
                data = {name: _finite(table) for name, table in data.items()}
                text = _encode(data).decode()
            if text != before.get(number):
                if number in before:
                    changed.append((number,))
                if text is not None:
                    facts.append((number, text))
                    values.add(number, data)
            if span.input is not None or span.output is not None or span.tool_calls:
                contents.append((number, *map(self._pack, (span.input, span.output, span.tool_calls or None))))
        self.db.executemany("INSERT OR IGNORE INTO resent (span) VALUES (?)", changed)
        self.db.executemany("DELETE FROM facts WHERE span = ?", changed)
        self.db.executemany("DELETE FROM content WHERE span = ?", [(number,) for number in known])
        self.db.executemany("INSERT INTO facts (span, data) VALUES (?, ?)", facts)
        self.db.executemany("INSERT INTO content (span, input, output, tool_calls) VALUES (?, ?, ?, ?)", contents)
        values.write(self.db, self._path)

    def _facts_of(self, spans: Collection[int]) -> dict[int, str]:
        rows = self.db.execute(
            "SELECT span, data FROM facts WHERE span IN (SELECT value FROM json_each(?))",
            (listed(spans),),
        )
        return dict(rows.fetchall()) if spans else {}

    def _pack(self, part: Any) -> str | bytes | None:
        return None if part is None else self._bodies.pack(_encode(part).decode())

    def _number(self, table: str, known: dict[str, int], text: str) -> int:
        row = self.db.execute(f"SELECT id FROM {table} WHERE text = ?", (text,)).fetchone()
        if row is None:
            row = self.db.execute(f"INSERT INTO {table} (text) VALUES (?) RETURNING id", (text,)).fetchone()
        if len(known) >= _MAX_NUMBERS:
            known.clear()
        known[text] = number = int(row[0])
        return number


def _finite(value: Any) -> Any:
    """The value with a text in place of every NaN and infinity."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
