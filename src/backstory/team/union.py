"""The archive of this machine and that of the team as one: for the scope `both`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar, overload

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
    OpenedEvent,
    OpenedSession,
    OpenedTurn,
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
from ..archive.spans import Spans
from ..model import EventRef, SessionRef, TurnRef, session_id
from .errors import TeamError, Unreachable
from .limited import by_score
from .traces import UnionSpans

_log = logging.getLogger(__name__)
T = TypeVar("T")
# A team that does not answer is not asked for so long: each question would wait for it. A refusal comes at once.
_REST_SECONDS = 30.0


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

    @overload
    def open(self, ref: SessionRef, part: Part = EVERYTHING) -> OpenedSession | None: ...
    @overload
    def open(self, ref: TurnRef, part: Part = EVERYTHING) -> OpenedTurn | None: ...
    @overload
    def open(self, ref: EventRef, part: Part = EVERYTHING) -> OpenedEvent | None: ...
    def open(
        self, ref: SessionRef | TurnRef | EventRef, part: Part = EVERYTHING
    ) -> OpenedSession | OpenedTurn | OpenedEvent | None:
        opened: Any = self._local.open(ref, part)
        if opened is None:
            opened = self.ask_team(lambda team: team.open(ref, part))
        found: OpenedSession | OpenedTurn | OpenedEvent | None = opened
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
