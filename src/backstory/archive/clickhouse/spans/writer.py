"""Writing spans: received ones, and those of turns."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ....model import TurnRef, digest, session_mark
from ...calls import call_scope
from ...changes import KnownTurn, Progress, TurnSpans
from ...spans import STATUSES, Origin, SpanRow
from ..server import Server, encode
from .rows import (
    SPAN_COLUMNS,
    SPAN_OUTLINE,
    StoredSpan,
    StoredTrace,
    read_traces,
    stored_span,
    write_spans,
    write_traces,
)
from .settlement import Settlement

_TURN = ("session", "turn", "version", "trace", "root", "parent", "status", "deleted")


class SpanWriter:
    """Any thread may use it; one at a time writes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._writing = threading.Lock()
        self._version = 0

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        with self._writing:
            spans = self._not_forgotten(spans, origins)
            if spans:
                self._put(spans, origins)

    def _put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        uids = {span.trace for span in spans}
        known = read_traces(self._server, uids)
        traces = {uid: known.get(uid) or StoredTrace(uid=uid) for uid in uids}
        version = self._next_version()
        for uid, trace in traces.items():
            trace.add_origin(origins.get(uid, Origin()))
            trace.version = version
        stored = {(span.trace, span.id): stored_span(span, version) for span in spans}
        for span in stored.values():
            span.scope = None if span.call is None else call_scope(traces[span.trace].native)
        write_traces(self._server, traces.values())
        write_spans(self._server, stored.values())
        Settlement(self._server, self._next_version()).settle(uids, stored)

    def _not_forgotten(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> Sequence[SpanRow]:
        """The spans of traces that belong to no forgotten session, by their own origin or by an earlier one."""
        digests = {
            uid: [digest("trace", uid), *([session_mark(origin.session)] if origin and origin.session else ())]
            for uid, origin in ((span.trace, origins.get(span.trace)) for span in spans)
        }
        marks = {mark for marks in digests.values() for mark in marks}
        rows = self._server.rows_in("SELECT DISTINCT mark FROM forgotten WHERE mark IN ({})", list(marks))
        known = {mark for (mark,) in rows}
        gone = {uid for uid, marks in digests.items() if not known.isdisjoint(marks)}
        self.remember_forgotten(mark for uid in gone for mark in digests[uid] if mark not in known)
        return [span for span in spans if span.trace not in gone]

    def remember_forgotten(self, digests: Iterable[bytes]) -> None:
        self._server.insert("forgotten", ("mark",), [[mark] for mark in digests])

    # Spans of turns

    def replace(self, turns: Sequence[TurnSpans]) -> None:
        """Write the spans of turns in place of all that was known of them."""
        with self._writing:
            before = self.places({turn.turn.key for turn in turns})
            version = self._next_version()
            known = read_traces(self._server, {turn.trace for turn in turns if turn.spans})
            traces: dict[str, StoredTrace] = {}
            spans: dict[str, list[StoredSpan]] = defaultdict(list)
            for turn in turns:
                if turn.spans:
                    trace = traces.setdefault(turn.trace, known.get(turn.trace) or StoredTrace(uid=turn.trace))
                    trace.add_origin(turn.origin)
                    trace.projected, trace.version = True, version
                    spans[turn.trace] += _spans_of(turn, version)
            places = [turn for turn in turns if turn.spans or turn.turn in before]
            gone = self._gone([turn for turn in places if turn.turn in before], before, version)
            write_traces(self._server, traces.values())
            write_spans(self._server, [*gone, *(span for each in spans.values() for span in each)])
            self._server.insert("turn_trace", _TURN, [_place(turn, version) for turn in places])
            settlement = Settlement(self._server, self._next_version())
            for uid in traces.keys() - known.keys():
                settlement.know(traces[uid], spans[uid])
            settlement.settle({*traces, *(span.trace for span in gone)})

    def _gone(self, turns: Sequence[TurnSpans], before: Mapping[TurnRef, KnownTurn], version: int) -> list[StoredSpan]:
        """The spans that these turns do not have any more, marked as deleted."""
        kept = {(turn.trace, span.id) for turn in turns for span in turn.spans}
        places = tuple((before[turn.turn].trace, turn.turn.key, turn.turn.ordinal) for turn in turns)
        rows = self._server.rows_of(
            f"SELECT {SPAN_OUTLINE} FROM span s FINAL WHERE (s.trace, s.session, s.turn) IN %(names)s", places, {}
        )
        found = [StoredSpan(**dict(zip(SPAN_COLUMNS, row, strict=True))) for row in rows]
        return [msgspec.structs.replace(span, deleted=True, version=version) for span in found if span.key not in kept]

    def places(self, keys: Iterable[str]) -> dict[TurnRef, KnownTurn]:
        """The traces of the turns of these sessions."""
        rows = self._server.rows_of(
            "SELECT p.session, p.turn, p.trace, p.parent, p.status, t.spans, t.tokens FROM turn_trace p FINAL "
            "JOIN trace t FINAL ON t.uid = p.trace WHERE p.session IN %(names)s",
            list(keys),
        )
        return {
            TurnRef(session, turn): KnownTurn(trace, parent, STATUSES[status], spans, tokens)
            for session, turn, trace, parent, status, spans, tokens in rows
        }

    def delete(
        self, keys: Sequence[str], *, telemetry: bool = False, remember: bool = False, wipe: bool = False
    ) -> None:
        """Delete the spans of the turns of sessions; with `telemetry`, also the traces that were received of them."""
        with self._writing:
            own = self._traces_of(keys) if telemetry else {}
            if remember:
                received = [digest("trace", uid) for uid, projected in own.items() if not projected]
                self.remember_forgotten([*map(session_mark, keys), *received])
            values = {"keys": tuple(keys), "own": tuple(own) or ("",)}
            of_keys = "(session IN %(keys)s OR trace IN %(own)s)"
            rows = self._server.rows(f"SELECT {SPAN_OUTLINE} FROM span s FINAL WHERE {of_keys}", values)
            gone = [StoredSpan(**dict(zip(SPAN_COLUMNS, row, strict=True))) for row in rows]
            self._server.delete("span", of_keys, values, wipe=wipe)
            self._server.delete("trace", "uid IN %(own)s", values, wipe=wipe)
            self._server.delete("turn_trace", "session IN %(keys)s", values, wipe=wipe)
            Settlement(self._server, self._next_version()).settle_without(gone, own)

    def _traces_of(self, keys: Sequence[str]) -> dict[str, bool]:
        """The traces of sessions, with True for those of turns."""
        sql = "SELECT uid, projected FROM trace FINAL WHERE session IN %(names)s"
        return dict(self._server.rows_of(sql, keys))

    # Progress

    def progress(self, machine: str) -> Progress | None:
        row = self._server.row(
            "SELECT value FROM meta FINAL WHERE machine = %(machine)s AND name = 'projected'", {"machine": machine}
        )
        return msgspec.json.decode(row[0], type=Progress) if row else None

    def write_progress(self, machine: str, progress: Progress) -> None:
        row = (machine, "projected", self._next_version(), encode(progress))
        self._server.insert("meta", ("machine", "name", "version", "value"), [row])

    def _next_version(self) -> int:
        """Later writes win, of this process and, by the clock, of others. Changes of spans take the number after."""
        self._version = max(self._version + 2, time.time_ns())
        return self._version


def _spans_of(turn: TurnSpans, version: int) -> list[StoredSpan]:
    scope = call_scope(turn.turn.key.partition("/")[2])
    place = {"session": turn.turn.key, "turn": turn.turn.ordinal, "scope": scope}
    return [msgspec.structs.replace(stored_span(span, version), **place) for span in turn.spans]


def _place(turn: TurnSpans, version: int) -> Sequence[object]:
    """The row of a turn in `turn_trace`."""
    key, ordinal = turn.turn.key, turn.turn.ordinal
    if not turn.spans:
        return key, ordinal, version, "", 0, None, 0, True
    root = turn.spans[0]
    return key, ordinal, version, turn.trace, root.id, root.parent, STATUSES.index(root.status), False
