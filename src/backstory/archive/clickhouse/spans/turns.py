"""The spans of the turns that this machine has written: what a projection reads of the record, and where it writes.

A statement takes milliseconds, and a step of a projection reads some hundred turns. So all that belongs to the turns of
a step is read at once, before the projection asks for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name

from ....model import EVENT_TYPES, EventType, TurnRef
from ...changes import Changes, EventOutline, KnownTurn, LooseUsage, MakeProjection, Progress, Projection, TurnSpans
from ...errors import ArchiveError
from ...rows import SessionRow, TurnRow, UsageRow
from ..reading import SESSION, TURN
from ..rows import USAGE_COLUMNS, columns, decode_facts, read_session, read_turn, read_usage
from ..server import Server
from .writer import SpanWriter

_log = logging.getLogger(__name__)
_CALL, _RESPONSE, _RUNTIME = (kind.code for kind in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE, EventType.RUNTIME))
_OUTLINE = "e.session, e.uid, e.turn, e.ordinal, e.type, e.ts, e.tool, e.model, e.usage_key, e.facts"
_PROMPT = EventType.USER_INPUT.code
_USAGE = columns("u", USAGE_COLUMNS)


class ClickHouseRecord:
    """`expect` is called with the sessions of a step."""

    def __init__(self, server: Server, machine: str, expect: Callable[[Iterable[str]], None]) -> None:
        self._server = server
        self._machine = machine
        self._expect = expect
        self._sessions: dict[str, SessionRow | None] = {}
        self._children: dict[str, list[SessionRow]] = {}
        self._turns: dict[TurnRef, TurnRow | None] = {}
        self._events: dict[TurnRef, list[EventOutline]] = {}
        self._usage: dict[str, list[UsageRow]] = {}

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Reads inside are of one state as far as they are read at once: a later change comes in a later step."""
        for known in (self._sessions, self._children, self._turns, self._events, self._usage):
            known.clear()
        yield

    def changes(self, after: int, limit: int) -> Changes | None:
        rows = self._server.rows(
            "SELECT version, session, ordinal FROM turn WHERE machine = %(machine)s AND version > %(after)s "
            "AND version <= (SELECT max(version) FROM (SELECT version FROM turn WHERE machine = %(machine)s "
            f"AND version > %(after)s ORDER BY version LIMIT {limit})) ORDER BY version, session, ordinal",
            {"machine": self._machine, "after": after},
        )
        if not rows:
            return None
        turns = list(dict.fromkeys(TurnRef(session, ordinal) for _, session, ordinal in rows))
        self._read(turns)
        return Changes(rows[-1][0], turns)

    def newest(self) -> int:
        """The last change."""
        row = self._server.row("SELECT max(version) FROM turn WHERE machine = %(machine)s", {"machine": self._machine})
        return int(row[0]) if row else 0

    def _read(self, turns: Sequence[TurnRef]) -> None:
        keys = list(dict.fromkeys(turn.key for turn in turns))
        self._expect(keys)
        rows = self._server.rows_of
        found = map(read_session, rows(f"SELECT {SESSION} FROM session s FINAL WHERE s.key IN %(names)s", keys))
        self._sessions = dict.fromkeys(keys) | {row.key: row for row in found}
        self._children = {key: [] for key in keys}
        for row in map(read_session, rows(f"{_CHILDREN} WHERE s.parent IN %(names)s{_ORDER}", keys)):
            self._children[row.parent or ""].append(row)
        self._usage = {key: [] for key in keys}
        for usage in map(read_usage, rows(f"{_SELECT_USAGE} WHERE u.session IN %(names)s ORDER BY u.ts", keys)):
            self._usage[usage.session].append(usage)
        self._turns, self._events = dict.fromkeys(turns), {turn: [] for turn in turns}
        places = [(turn.key, turn.ordinal) for turn in turns]
        of_turns = "(t.session, t.ordinal) IN %(names)s"
        for turn in map(read_turn, rows(f"SELECT {TURN} FROM turn t FINAL WHERE {of_turns}", places)):
            self._turns[TurnRef(turn.session, turn.ordinal)] = turn
        for outline in rows(f"{_SELECT_EVENTS} WHERE (e.session, e.turn) IN %(names)s{_IN_ORDER}", places):
            self._events[TurnRef(outline[0], outline[2])].append(_outline(*outline))

    def session(self, key: str) -> SessionRow | None:
        if key not in self._sessions:
            row = self._server.row(f"SELECT {SESSION} FROM session s FINAL WHERE s.key = %(key)s", {"key": key})
            self._sessions[key] = read_session(row) if row else None
        return self._sessions[key]

    def children(self, key: str) -> list[SessionRow]:
        if key not in self._children:
            rows = self._server.rows(f"{_CHILDREN} WHERE s.parent = %(key)s{_ORDER}", {"key": key})
            self._children[key] = [read_session(row) for row in rows]
        return self._children[key]

    def turn(self, ref: TurnRef) -> TurnRow | None:
        if ref not in self._turns:
            row = self._server.row(
                f"SELECT {TURN} FROM turn t FINAL WHERE t.session = %(key)s AND t.ordinal = %(turn)s",
                {"key": ref.key, "turn": ref.ordinal},
            )
            self._turns[ref] = read_turn(row) if row else None
        return self._turns[ref]

    def events(self, turn: TurnRow) -> list[EventOutline]:
        ref = TurnRef(turn.session, turn.ordinal)
        if ref not in self._events:
            rows = self._server.rows(
                f"{_SELECT_EVENTS} WHERE e.session = %(key)s AND e.turn = %(turn)s{_IN_ORDER}",
                {"key": ref.key, "turn": ref.ordinal},
            )
            self._events[ref] = [_outline(*row) for row in rows]
        return self._events[ref]

    def calls(self, key: str, ids: Iterable[str], turns: range | None = None) -> list[EventOutline]:
        within = "" if turns is None else f" AND e.turn BETWEEN {turns[0]} AND {turns[-1]}"
        rows = self._server.rows_of(
            f"SELECT {_OUTLINE} FROM event e FINAL WHERE e.session = %(key)s{within} "
            f"AND e.type IN ({_CALL}, {_RESPONSE}) AND JSONExtractString(e.facts, 'call') IN %(names)s{_IN_ORDER}",
            list(ids),
            {"key": key},
        )
        return [_outline(*row) for row in rows]

    def usage(self, key: str, turns: Sequence[int]) -> list[UsageRow]:
        if key not in self._usage:
            rows = self._server.rows(f"{_SELECT_USAGE} WHERE u.session = %(key)s ORDER BY u.ts", {"key": key})
            self._usage[key] = [read_usage(row) for row in rows]
        return [row for row in self._usage[key] if row.turn in turns]

    def loose_usage(self) -> list[LooseUsage]:
        rows = self._server.rows(
            "SELECT u.session, count(), sum(u.input_tokens + u.output_tokens) FROM usage u FINAL "
            "WHERE u.turn = 0 AND u.session IN (SELECT key FROM session FINAL WHERE turn_count = 0) GROUP BY u.session"
        )
        return [LooseUsage(*row) for row in rows]


_CHILDREN = f"SELECT {SESSION} FROM session s FINAL"
_ORDER = " AND s.parent_call IS NOT NULL ORDER BY s.started_at, s.key"
_SELECT_USAGE = f"SELECT {_USAGE} FROM usage u FINAL"
# The text of a prompt names its turn; notes of the runtime are read for what they say.
_SELECT_EVENTS = f"SELECT {_OUTLINE}, if(e.type IN ({_PROMPT}, {_RUNTIME}), e.body, '') FROM event e FINAL"
_IN_ORDER = " ORDER BY e.session, e.turn, e.ordinal"


def _outline(
    session: str,
    uid: bytes,
    turn: int,
    ordinal: int,
    type: int,
    ts: int,
    tool: str | None,
    model: str | None,
    usage_key: bytes | None,
    facts_text: str,
    text: str = "",
) -> EventOutline:
    facts = decode_facts(facts_text)
    return EventOutline(
        uid=uid,
        turn=turn,
        ordinal=ordinal,
        type=EVENT_TYPES[type],
        ts=ts,
        text=text,
        tool=tool,
        model=model,
        usage_key=usage_key,
        call_id=facts.call,
        exit_code=facts.exit,
        failed=facts.failed,
        extra=facts.extra or {},
    )


class ClickHouseTurnWriter:
    """Writes the spans of turns. The progress is that of one machine: each projects the turns that it has written, by
    its own rules and prices."""

    def __init__(self, spans: SpanWriter, machine: str) -> None:
        self._spans = spans
        self._machine = machine
        self._known: dict[TurnRef, KnownTurn] = {}
        self._read: set[str] = set()

    def expect(self, keys: Iterable[str]) -> None:
        """Read the places of the turns of these sessions."""
        self._read.update(keys)
        self._known |= self._spans.places(keys)

    def progress(self) -> Progress | None:
        return self._spans.progress(self._machine)

    def known(self, turn: TurnRef) -> KnownTurn | None:
        if turn.key not in self._read:
            self.expect([turn.key])
        return self._known.get(turn)

    def replace(self, turns: Sequence[TurnSpans], progress: Progress) -> None:
        """Spans of another version are replaced turn by turn. Progress is written last: what a cut leaves out comes
        again."""
        self._known.clear()
        self._read.clear()
        if turns:
            self._spans.replace(turns)
        self._spans.write_progress(self._machine, progress)


class TraceFeed:
    """Lets the traces follow the record. An error in the traces does not stop the archive."""

    def __init__(self, server: Server, machine: str, spans: SpanWriter, projection: str | None) -> None:
        """`projection` names a `MakeProjection` as `module:object`; it is imported when there is something to do."""
        self._name = projection
        self._writer = ClickHouseTurnWriter(spans, machine)
        self._record = ClickHouseRecord(server, machine, self._writer.expect)
        self._projection: Projection | None = None
        self._projected = -1
        self._complaint = ""

    def project(self, newest: int, seconds: float) -> None:
        """Project the changes up to `newest`; what is left after so many seconds is for the next call."""
        if self._name is None or self._projected >= newest:
            return
        try:
            if self._projection is None:
                make: MakeProjection = resolve_name(self._name)
                self._projection = make(self._record, self._writer)
            self._projected = self._projection.follow(newest, time.monotonic() + seconds)
        except ArchiveError as error:
            self._projection = None
            if str(error) != self._complaint:
                _log.warning("traces are not up to date: %s", error)
            self._complaint = str(error)

    def newest(self) -> int:
        return self._record.newest()
