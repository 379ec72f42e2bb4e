"""The archive of this machine and that of the team as one, with their traces: for the scope `both`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

import msgspec

from ..archive.base import (
    ALL_FILES,
    EVERYTHING,
    Archive,
    Counts,
    EventRow,
    Exchange,
    ExchangesRequest,
    FileRow,
    FilesRequest,
    Found,
    Opened,
    Part,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    SyncState,
    Term,
    TurnRow,
    Writer,
)
from ..archive.errors import ArchiveError
from ..archive.spans import (
    OF_TRACE,
    Origin,
    Position,
    SpanRow,
    Spans,
    SpanStats,
    StatsGroup,
    TraceQuery,
    TraceRow,
    UsageDetail,
    UsageTotal,
    Window,
)
from ..archive.spans import Found as FoundTraces
from ..model import Ref, session_id
from . import TeamError, Unreachable
from .access import by_day, by_score

_log = logging.getLogger(__name__)
T = TypeVar("T")
R = TypeVar("R")
# The time for which a team that does not answer is not asked again: each question would wait. A refusal comes at once.
_REST_SECONDS = 30.0
# The attributes of rows that fields of the contract sort by, where their names differ.
_TRACE_FIELDS = {
    "sessionId": "session",
    "datasetRunId": "dataset_run",
    "totalCost": "cost",
    "totalTokens": "tokens",
    "createdAt": "start",
    "updatedAt": "updated",
}
_SPAN_FIELDS = {
    "traceId": "trace",
    "parentId": "parent",
    "startTime": "start",
    "endTime": "end",
    "data.type": "type",
    "data.model": "model",
    "data.inputTokens": "input_tokens",
    "data.outputTokens": "output_tokens",
    "data.totalCost": "cost",
    "data.metadata.cacheReadTokens": "cache_read_tokens",
    "data.metadata.cacheWriteTokens": "cache_write_tokens",
    "data.metadata.cacheWrite1hTokens": "cache_write_1h_tokens",
    "data.metadata.reasoningTokens": "reasoning_tokens",
    "data.metadata.exitCode": "exit_code",
    "data.metadata.waitingMs": "waiting",
    "data.metadata.totalTokens": "total_tokens",
    "data.metadata.stopReason": "stop_reason",
}


class UnionArchive(Archive):
    """Reads both; a session that both have is that of this machine. What is written, and the progress of reading
    transcripts, is of this machine. Without the team's answer there is that of this machine, and a notice."""

    def __init__(self, local: Archive, open_team: Callable[[], Archive]) -> None:
        self._local = local
        self._open_team = open_team
        self._opened: Archive | None = None
        self._trouble = ""
        self._silent_until = 0.0
        self._spans = UnionSpans(local, self.ask_team)

    def ask_team(self, question: Callable[[Archive], T]) -> T | None:
        """The answer of the team's archive; None if it cannot be asked."""
        if time.monotonic() < self._silent_until:
            return None
        try:
            if self._opened is None:
                self._opened = self._open_team()
            answer = question(self._opened)
        except ArchiveError as error:
            self._trouble = f"The archive of the team was not searched: {error}."
            if not isinstance(error, TeamError) or isinstance(error, Unreachable):
                self._silent_until = time.monotonic() + _REST_SECONDS
            _log.warning("the archive of the team cannot be asked: %s", error)
            return None
        self._trouble = ""
        return answer

    @property
    def spans(self) -> Spans:
        return self._spans

    # Rows

    def sessions(self, request: SessionsRequest) -> list[SessionRow]:
        own = self._local.sessions(request)
        others = self.ask_team(lambda team: team.sessions(request)) or []
        known = {row.key for row in own}
        candidates = [row.key for row in others if row.key not in known]
        if candidates:  # some may be of this machine, and beyond its page
            known |= {row.key for row in self._local.sessions(SessionsRequest(keys=tuple(candidates), empty=True))}
        order = "last_at" if request.folders is not None else request.order
        rows = [*own, *(row for row in others if row.key not in known)]
        rows.sort(
            key=lambda row: (getattr(row, order), session_id(row.key)),
            reverse=request.folders is not None or not request.ascending,
        )
        return rows[: request.limit]

    def _has(self, key: str) -> bool:
        return self._local.session(key) is not None

    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]:
        return (
            self._local.turns(key, part)
            if self._has(key)
            else (self.ask_team(lambda team: team.turns(key, part)) or [])
        )

    def turn_keys(self, key: str) -> frozenset[str]:
        return self._local.turn_keys(key)

    def events(self, key: str | None = None, turn: int | None = None, part: Part = EVERYTHING) -> list[EventRow]:
        if part.uids is not None:
            own = self._local.events(key, turn, part)
            missing = tuple(set(part.uids) - {row.uid for row in own})
            rest = msgspec.structs.replace(part, uids=missing)
            return own + ((self.ask_team(lambda team: team.events(key, turn, rest)) or []) if missing else [])
        if key is None or self._has(key):
            return self._local.events(key, turn, part)
        return self.ask_team(lambda team: team.events(key, turn, part)) or []

    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        if request.query is None:
            if request.session is None or self._has(request.session):
                return self._local.exchanges(request)
            return iter(self.ask_team(lambda team: list(team.exchanges(request))) or [])
        own = list(self._local.exchanges(request))
        others = self.ask_team(lambda team: list(team.exchanges(request))) or []
        found = {(each.row.session, each.row.number): each for each in chain(others, own)}
        order = sorted(found.values(), key=lambda each: (-each.score, -each.row.ts))
        return islice(order, request.limit)

    # Search

    def search(self, request: SearchRequest) -> Found:
        own = self._local.search(request)
        if request.session is not None and own.known:
            return own
        others = self.ask_team(lambda team: team.search(request))
        if others is None:
            return own
        if request.session is not None:
            return others
        keys = tuple({hit.session.key for hit in others.hits})
        known = {row.key for row in self._local.sessions(SessionsRequest(keys=keys, empty=True))} if keys else set()
        hits = sorted([*own.hits, *(hit for hit in others.hits if hit.session.key not in known)], key=by_score)
        return msgspec.structs.replace(
            own,
            hits=hits[: request.limit],
            more=own.more or others.more or len(hits) > request.limit,
            documents=own.documents + others.documents,
            terms=_added(own.terms, others.terms),
            totals=None,
        )

    # Opening

    def _open(self, ref: Ref, part: Part) -> Opened | None:
        opened: Any = self._local.open(ref, part)
        if opened is None:
            opened = self.ask_team(lambda team: team.open(ref, part))
        found: Opened | None = opened
        return found

    # State

    def counts(self) -> Counts:
        own = self._local.counts()
        others = self.ask_team(lambda team: team.counts())
        for source, count in others.by_source.items() if others is not None else ():
            own.by_source[source] = max(own.by_source.get(source, 0), count)
        return own

    def sync_state(self, *, folders: bool = False) -> SyncState:
        # Asked here so that an answer which the team has no part in can say so.
        self.ask_team(lambda team: team.sync_state())
        state = self._local.sync_state(folders=folders)
        state.notice = self._trouble or None
        return state

    def files(self, request: FilesRequest = ALL_FILES) -> Iterator[FileRow]:
        return self._local.files(request)

    def forgotten(self, digests: Sequence[bytes]) -> frozenset[bytes]:
        return self._local.forgotten(digests)

    def forget(self, key: str, *, remember: bool = True, wipe: bool = True) -> None:
        self._local.forget(key, remember=remember, wipe=wipe)

    def writer(self) -> Writer:
        return self._local.writer()

    def close(self) -> None:
        """The archive of this machine is its owner's."""
        if self._opened is not None:
            self._opened.close()


def _added(own: Sequence[Term], others: Sequence[Term]) -> list[Term]:
    """The terms of a query, with the events of both that have them."""
    counts = {term.word: term.documents for term in others}
    return [msgspec.structs.replace(term, documents=term.documents + counts.get(term.word, 0)) for term in own]


class AskTeam(Protocol):
    def __call__(self, question: Callable[[Archive], T]) -> T | None:
        """The answer of the team's archive; None if it cannot be asked."""


class UnionSpans(Spans):
    """Of a session that both have, the spans of this machine. Statistics are of this machine alone: percentiles cannot
    be added up."""

    def __init__(self, local: Archive, ask_team: AskTeam) -> None:
        self._local = local
        self._ask_team = ask_team

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        self._local.spans.put(spans, origins)

    def traces(self, query: TraceQuery) -> FoundTraces[TraceRow]:
        return self._merged(
            query, lambda spans, part: spans.traces(part), lambda row: (row.session, row.id), trace_value
        )

    def spans(self, query: TraceQuery, chars: int) -> FoundTraces[SpanRow]:
        return self._merged(
            query, lambda spans, part: spans.spans(part, chars), lambda row: (row.origin.session, row.trace), span_value
        )

    def trace(
        self, id: str, only: Collection[int] | None = None, *, texts: bool = True
    ) -> tuple[TraceRow, list[SpanRow]] | None:
        own = self._local.spans.trace(id, only, texts=texts)
        return own if own is not None else self._ask_team(lambda team: team.spans.trace(id, only, texts=texts))

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        by_session: UsageDetail = "session" if detail == "day" else detail
        others = self._ask_team(lambda team: team.spans.usage(window, by_session))
        if not others:
            return self._local.spans.usage(window, detail)
        known = self._known(line.session for line in others)
        lines = self._local.spans.usage(window, by_session) + [line for line in others if line.session not in known]
        return by_day(lines) if detail == "day" else lines

    def stats(self, window: Window, by: StatsGroup, *, latencies: bool = True) -> list[SpanStats]:
        return self._local.spans.stats(window, by, latencies=latencies)

    def check(self) -> None:
        self._local.spans.check()

    def _merged(
        self,
        query: TraceQuery,
        find: Callable[[Spans, TraceQuery], FoundTraces[R]],
        place: Callable[[R], tuple[str | None, str]],
        value: Callable[[R, str], Any],
    ) -> FoundTraces[R]:
        """A page of the rows of both. `place` gives the session and the trace of a row, `value` what it is sorted by.
        The position of a page is the number of rows before it: the numbers of one archive mean nothing to the other."""
        start = 0 if query.after is None else query.after.number
        end = start + query.limit
        part = msgspec.structs.replace(query, after=None, limit=end + 1)
        own = find(self._local.spans, part)
        others = self._others(part, find, place)
        rows = sorted([*own.rows, *others.rows], key=lambda row: _sorted_by(value(row, query.sort)))
        if query.descending:
            rows.reverse()
        rows.sort(key=lambda row: value(row, query.sort) is None)
        more = len(rows) > end or own.more or others.more
        return FoundTraces(
            rows=rows[start:end],
            more=more,
            total=None if own.more or others.more else len(rows),
            last=Position(None, end),
            complete=own.complete and others.complete,
        )

    def _others(
        self,
        query: TraceQuery,
        find: Callable[[Spans, TraceQuery], FoundTraces[R]],
        place: Callable[[R], tuple[str | None, str]],
    ) -> FoundTraces[R]:
        """The first rows of the team that this machine does not have."""
        rows: list[R] = []
        while True:
            found = self._ask_team(lambda team, part=query: find(team.spans, part))  # type: ignore[misc]
            if found is None:
                return FoundTraces(rows=rows)
            known = self._known(place(row)[0] for row in found.rows)
            rows += [row for row in found.rows if not self._has(*place(row), known)]
            if len(rows) >= query.limit or not found.more or found.last is None:
                return FoundTraces(rows=rows, more=found.more, complete=found.complete)
            query = msgspec.structs.replace(query, after=found.last)

    def _known(self, keys: Any) -> set[str | None]:
        """Those of the sessions that this machine has."""
        given = tuple({key for key in keys if key is not None})
        return {row.key for row in self._local.sessions(SessionsRequest(keys=given, empty=True))} if given else set()

    def _has(self, session: str | None, trace: str, known: set[str | None]) -> bool:
        return session in known if session is not None else self._local.spans.trace(trace, (), texts=False) is not None


def trace_value(row: TraceRow, field: str) -> Any:
    """The value of a trace that a field sorts by."""
    return getattr(row, _TRACE_FIELDS.get(field, field))


def span_value(row: SpanRow, field: str) -> Any:
    """The value of a span that a field sorts by: its own, or one of its metadata or attributes."""
    if field in OF_TRACE:
        return getattr(row.origin, OF_TRACE[field])
    found = getattr(row, _SPAN_FIELDS.get(field, field), None)
    if found is not None or not field.startswith("data."):
        return found
    prefix, _, path = field.removeprefix("data.").partition(".")
    return row.attributes.get(path) if prefix == "attributes" else row.metadata.get(path, row.attributes.get(path))


def _sorted_by(value: Any) -> tuple[str, Any]:
    """Values of one kind beside each other: metadata may have any."""
    kind = "number" if isinstance(value, int | float) else "text"
    return ("", "") if value is None else (kind, value if isinstance(value, int | float | str) else repr(value))
