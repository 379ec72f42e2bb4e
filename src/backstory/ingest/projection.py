"""The projection of turns to traces, kept up to date with the record.

Texts stay where they are: a span points at its events. The turns of a subagent lie in the trace of the turn that
started it, below the call that did. A turn is projected again, under the same ids, whenever it changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from ..archive.changes import EventOutline, Progress, Record, TurnSpans, TurnWriter
from ..archive.rows import SessionRow, has_failed
from ..archive.spans import Origin, SpanRow, Status
from ..model import EventType, TurnRef, digest, session_id, turn_id
from ..prices import price_list
from .turn_spans import Turn, read_turn

_VERSION = 4
_TURNS_PER_STEP = 200
_NAME_CHARS = 120
# Telemetry that became a session has its spans already.
_NOT_PROJECTED = "otel"


class _Place(NamedTuple):
    """The trace of a turn's spans, and the span above them."""

    trace: str
    parent: int | None = None


class _Host(NamedTuple):
    """The call that started a subagent, and its response."""

    call: EventOutline
    response: EventOutline | None

    @property
    def span(self) -> int:
        return _number(self.call.uid)


class TurnProjection:
    """Follows the record from where it was left. One process at a time does it."""

    def __init__(self, record: Record, spans: TurnWriter) -> None:
        self._record = record
        self._spans = spans
        self._version = f"{_VERSION} {price_list()}"
        progress = spans.progress()
        # Other rules or other prices: everything is projected again.
        self._change = progress.change if progress is not None and progress.version == self._version else 0
        # The results of one step, and the subagents that it has moved.
        self._turns: dict[TurnRef, TurnSpans] = {}
        self._settled: set[str] = set()
        # The reads of one step.
        self._sessions: dict[str, SessionRow | None] = {}
        self._children: dict[str, list[SessionRow]] = {}
        self._hosts: dict[str, _Host | None] = {}

    def follow(self, newest: int, deadline: float) -> int:
        while self._step():
            if time.monotonic() > deadline and self._change < newest:
                return self._change
        with self._record.snapshot():
            self._forget_reads()
            self._project_loose_usage()
            # The last changes may have been of usage alone.
            self._write(max(self._change, newest))
        return self._change

    def _step(self) -> bool:
        """Project the next changes; False when there are none."""
        with self._record.snapshot():
            self._forget_reads()
            changes = self._record.changes(self._change, _TURNS_PER_STEP)
            if changes is None:
                return False
            for ref in changes.turns:
                self._project(ref)
            self._write(changes.until)
        return True

    def _write(self, change: int) -> None:
        try:
            self._spans.replace(list(self._turns.values()), Progress(self._version, change))
        finally:
            self._turns.clear()
            self._settled.clear()
        self._change = change

    def _forget_reads(self) -> None:
        self._sessions.clear()
        self._children.clear()
        self._hosts.clear()

    def _project(self, ref: TurnRef) -> None:
        session = self._session(ref.key)
        if session is None or session.source == _NOT_PROJECTED:
            return
        if session.parent_call:
            self._settle(session)
        if ref.ordinal == 1:
            # The usage that had no turn yet belongs to this one.
            self._turns[TurnRef(ref.key, 0)] = TurnSpans(turn=TurnRef(ref.key, 0))
        turn = self._write_turn(session, ref.ordinal)
        again = set(turn.related) if turn is not None else set()
        before = TurnRef(ref.key, ref.ordinal - 1)
        if before.ordinal and before not in self._turns and self._is_pending(before):
            again.add(before.ordinal)  # it was the last turn and might have gone on; now it has ended
        for other in sorted(again):
            self._write_turn(session, other)

    def _write_turn(self, session: SessionRow, ordinal: int) -> Turn | None:
        ref = TurnRef(session.key, ordinal)
        turn = read_turn(self._record, ref, session.source)
        if turn is None:
            return None
        place = self._place(session, ordinal)
        status, end = self._ending(session, ordinal, turn)
        is_root = place.parent is None
        root = SpanRow(
            trace=place.trace,
            id=_number(digest("turn", session.key, str(ordinal))),
            parent=place.parent,
            name="turn" if is_root else session.title or "subagent",
            status=status,
            start=turn.start,
            end=end,
            waiting=turn.waiting,
            events=turn.events,
        )
        for span in turn.spans:
            span.trace, span.parent = place.trace, root.id
        name = _first_line(turn.prompt_text) or session.title or None
        origin = Origin(name=name, session=session.key, source=session.source, project=session.cwd)
        self._turns[ref] = TurnSpans(
            turn=ref, trace=place.trace, origin=origin if is_root else Origin(), spans=[root, *turn.spans]
        )
        self._follow_children(session, turn)
        return turn

    def _ending(self, session: SessionRow, ordinal: int, turn: Turn) -> tuple[Status, int | None]:
        """The status of a turn and its end; one that may go on has no end."""
        if turn.completed or ordinal < session.turn_count:
            return "error" if turn.failed else "success", turn.end
        host = self._host(session)
        if host is not None and host.response is not None and host.response.ts >= turn.end:
            # Of an agent whose last answer is not recorded, the response to the call that started it is the end.
            return "error" if has_failed(host.response) else "success", host.response.ts
        return "pending", None

    # Subagents

    def _place(self, session: SessionRow, ordinal: int) -> _Place:
        host = self._host(session)
        if host is None or not ordinal:
            return _Place(turn_id(session.key, ordinal) if ordinal else session_id(session.key))
        top, turn, seen = session, ordinal, set[str]()
        while top.key not in seen and (above := self._host(top)) is not None:
            seen.add(top.key)
            parent = self._session(top.parent or "")
            if parent is None:
                break
            top, turn = parent, above.call.turn
        return _Place(turn_id(top.key, turn), host.span)

    def _host(self, session: SessionRow) -> _Host | None:
        if not session.parent or not session.parent_call:
            return None
        if session.key not in self._hosts:
            events = self._record.calls(session.parent, [session.parent_call])
            call = next((event for event in events if event.type is EventType.TOOL_CALL), None)
            responses = [event for event in events if event.type is EventType.TOOL_RESPONSE]
            host = None
            if call is not None:
                inside = (event for event in responses if event.turn == call.turn)
                host = _Host(call, next(inside, responses[0] if responses else None))
            self._hosts[session.key] = host
        return self._hosts[session.key]

    def _follow_children(self, session: SessionRow, turn: Turn) -> None:
        """Write the subagents that a turn started, where that changes something: their turns may have been read before
        their call and lie elsewhere, or end with the response to it."""
        if not turn.calls:
            return
        if session.key not in self._children:
            self._children[session.key] = self._record.children(session.key)
        for child in self._children[session.key]:
            span = turn.calls.get(child.parent_call or "")
            if span is None or not child.turn_count:
                continue
            self._settle(child)
            last = TurnRef(child.key, child.turn_count)
            if span.end is not None and last not in self._turns and self._is_pending(last):
                self._write_turn(child, child.turn_count)

    def _settle(self, session: SessionRow) -> None:
        """Write all turns of a subagent, and of those below it, if they lie elsewhere than they should: below the call
        that started it, which may have been read later, or again."""
        known = self._spans.known(TurnRef(session.key, 1))
        if session.key in self._settled or known is None or (known.trace, known.parent) == self._place(session, 1):
            return
        family = list(self._family(session))
        self._settled.update(member.key for member in family)
        for member in family:
            for ordinal in range(1, member.turn_count + 1):
                self._write_turn(member, ordinal)

    def _family(self, session: SessionRow) -> Iterator[SessionRow]:
        """A session and the subagents below it."""
        pending, seen = [session], {session.key}
        while pending:
            member = pending.pop()
            yield member
            below = [child for child in self._record.children(member.key) if child.key not in seen]
            seen.update(child.key for child in below)
            pending += below

    # Sessions of which only usage is there

    def _project_loose_usage(self) -> None:
        for usage in self._record.loose_usage():
            session = self._session(usage.session)
            known = self._spans.known(TurnRef(usage.session, 0))
            is_known = known is not None and (known.spans, known.tokens) == (usage.calls + 1, usage.tokens)
            if session is not None and not is_known:
                self._write_turn(session, 0)

    def _is_pending(self, ref: TurnRef) -> bool:
        known = self._spans.known(ref)
        return known is not None and known.status == "pending"

    def _session(self, key: str) -> SessionRow | None:
        if key not in self._sessions:
            self._sessions[key] = self._record.session(key)
        return self._sessions[key]


def _first_line(text: str) -> str:
    line = " ".join(text[: 4 * _NAME_CHARS].split())
    return line if len(line) <= _NAME_CHARS else line[: _NAME_CHARS - 1].rstrip() + "…"


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big", signed=True)
