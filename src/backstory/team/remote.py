"""The archive of a team behind a hub, as an archive: every toolset reads it like the one on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from ..archive.base import (
    EVERYTHING,
    Counts,
    EventRow,
    Exchange,
    ExchangesRequest,
    Found,
    Opened,
    Part,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    SyncState,
    TurnRow,
    any_folder,
)
from ..archive.spans import Found as FoundTraces
from ..archive.spans import (
    Origin,
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
from ..model import Ref, SessionRef, TurnRef
from . import SharedArchive, refuse_writing, wire
from .hub import HubClient

# A pattern of folders is a function and cannot be sent: so many matches are looked at on this side.
_SEARCHED_EXCHANGES = 500
_EXCHANGES_AT_ONCE = 200


class RemoteArchive(SharedArchive):
    """Reads through a hub. Files and folders are what a machine reads transcripts from: here there are none."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub
        self._spans = RemoteSpans(hub)

    @property
    def spans(self) -> Spans:
        return self._spans

    def sessions(self, request: SessionsRequest) -> list[SessionRow]:
        folders = request.folders
        sent = msgspec.structs.replace(request, folders=None, deadline=None)
        if folders is not None and folders is not any_folder:
            sent = msgspec.structs.replace(sent, limit=None)
        seconds = wire.seconds_left(request.deadline)
        found: list[SessionRow] = self._hub.read(
            "sessions", wire.Sessions(request=sent, seconds=seconds, in_folders=folders is not None)
        )
        return found if folders is None else [row for row in found if folders(row.folder or "")][: request.limit]

    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]:
        found: list[TurnRow] = self._hub.read("turns", wire.Turns(key, part))
        return found

    def turn_keys(self, key: str) -> frozenset[str]:
        found: frozenset[str] = self._hub.read("turn_keys", wire.Key(key))
        return found

    def events(self, key: str | None = None, turn: int | None = None, part: Part = EVERYTHING) -> list[EventRow]:
        found: list[EventRow] = self._hub.read("events", wire.Events(key, turn, part))
        return found

    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        if request.query is None:
            yield from self._exchanges_of(request)
            return
        folders = request.folders
        limit = request.limit if folders in (None, any_folder) else _SEARCHED_EXCHANGES
        limit = _SEARCHED_EXCHANGES if limit is None else limit
        sent = msgspec.structs.replace(request, folders=None, limit=limit)
        found: list[Exchange] = self._hub.read("exchanges", wire.Exchanges(sent, in_folders=folders is not None))
        chosen = (each for each in found if folders is None or folders(each.session.folder or ""))
        yield from islice(chosen, request.limit)

    def _exchanges_of(self, request: ExchangesRequest) -> Iterator[Exchange]:
        """The exchanges of a session, in portions."""
        first, left = request.first, request.limit
        while left is None or left > 0:
            count = _EXCHANGES_AT_ONCE if left is None else min(left, _EXCHANGES_AT_ONCE)
            sent = msgspec.structs.replace(request, folders=None, first=first, limit=count)
            found: list[Exchange] = self._hub.read("exchanges", wire.Exchanges(sent))
            yield from found
            if len(found) < count:
                return
            first, left = found[-1].row.number + 1, None if left is None else left - count

    def search(self, request: SearchRequest) -> Found:
        seconds = wire.seconds_left(request.deadline)
        # The folder of the caller says nothing about the folders of others.
        sent = msgspec.structs.replace(request, deadline=None, here=None)
        found: Found = self._hub.read("search", wire.Search(sent, seconds))
        return found

    def _open(self, ref: Ref, part: Part) -> Opened | None:
        message: Any
        if isinstance(ref, SessionRef):
            method, message = "open_session", wire.OpenSession(ref, part)
        elif isinstance(ref, TurnRef):
            method, message = "open_turn", wire.OpenTurn(ref, part)
        else:
            method, message = "open_event", wire.OpenEvent(ref, part)
        found: Opened | None = self._hub.read(method, message)
        return found

    def counts(self) -> Counts:
        found: Counts = self._hub.read("counts", wire.Nothing())
        return found

    def sync_state(self, *, folders: bool = False) -> SyncState:
        found: SyncState = self._hub.read("sync_state", wire.Nothing())
        return found

    def close(self) -> None:
        self._hub.close()


class RemoteSpans(Spans):
    """The traces of a team behind a hub."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        refuse_writing()

    def traces(self, query: TraceQuery) -> FoundTraces[TraceRow]:
        found: FoundTraces[TraceRow] = self._hub.read("traces", self._message(query))
        return found

    def spans(self, query: TraceQuery, chars: int) -> FoundTraces[SpanRow]:
        found: FoundTraces[SpanRow] = self._hub.read("spans", self._message(query, chars))
        return found

    def _message(self, query: TraceQuery, chars: int = 0) -> wire.Traces:
        seconds = wire.seconds_left(query.deadline)
        return wire.Traces(msgspec.structs.replace(query, deadline=None), seconds, chars)

    def trace(
        self, id: str, only: Collection[int] | None = None, *, texts: bool = True
    ) -> tuple[TraceRow, list[SpanRow]] | None:
        found: tuple[TraceRow, list[SpanRow]] | None = self._hub.read(
            "trace", wire.Trace(id, None if only is None else list(only), texts)
        )
        return found

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        found: list[UsageTotal] = self._hub.read("usage", wire.Usage(window, detail))
        return found

    def stats(self, window: Window, by: StatsGroup, *, latencies: bool = True) -> list[SpanStats]:
        found: list[SpanStats] = self._hub.read("stats", wire.Stats(window, by, latencies))
        return found

    def check(self) -> None:
        """The hub checks its own archive."""
