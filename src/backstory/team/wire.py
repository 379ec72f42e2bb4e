"""The protocol between a machine and a hub: paths, versions, and the reads of an archive as messages.

Bodies are MessagePack, compressed with zstd where they are large. A read is a struct with the method and its arguments;
times on the monotonic clock, which mean nothing on another machine, travel as seconds that are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from ..archive.base import (
    Archive,
    Counts,
    EventRow,
    Exchange,
    ExchangesRequest,
    Found,
    OpenedEvent,
    OpenedSession,
    OpenedTurn,
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
    SpanRow,
    SpanStats,
    StatsGroup,
    TraceQuery,
    TraceRow,
    UsageDetail,
    UsageTotal,
    Window,
)
from ..model import EventRef, SessionRef, TurnRef

PROTOCOL = 1
"""The version of paths, messages and rows. A machine and a hub have the same one."""
VERSION_HEADER = "Backstory-Team"
MEDIA_TYPE = "application/msgpack"
BASE = "/team/v1"
MAX_BODY_BYTES = 64 << 20
_COMPRESS_FROM = 4_096
M = TypeVar("M")
A = TypeVar("A")


class Hello(Struct, kw_only=True):
    """The hub, as a member sees it."""

    protocol: int
    identity: str
    """Of its archive: a new one means that nothing which was sent before is there."""
    version: str
    member: str
    rights: list[str]
    projects: list[str]


# Requests. `seconds` is the time that is left.


class Sessions(Struct, kw_only=True):
    request: SessionsRequest
    seconds: float | None = None
    in_folders: bool = False


class Turns(Struct):
    key: str
    part: Part


class Events(Struct):
    key: str | None
    turn: int | None
    part: Part


class Exchanges(Struct):
    request: ExchangesRequest
    in_folders: bool = False


class Search(Struct):
    request: SearchRequest
    seconds: float | None = None


class OpenSession(Struct):
    ref: SessionRef
    part: Part


class OpenTurn(Struct):
    ref: TurnRef
    part: Part


class OpenEvent(Struct):
    ref: EventRef
    part: Part


class Key(Struct):
    key: str


class Nothing(Struct):
    pass


class Traces(Struct):
    query: TraceQuery
    seconds: float | None = None
    chars: int = 0


class Trace(Struct):
    id: str
    only: list[int] | None = None
    texts: bool = True


class Usage(Struct):
    window: Window
    detail: UsageDetail


class Stats(Struct):
    window: Window
    by: StatsGroup
    latencies: bool = True


class Method(NamedTuple, Generic[M, A]):
    """A read: its name, the types of its message and its answer, and the call that it is at the hub."""

    name: str
    message: type[M]
    answer: Any
    call: Callable[[Archive, M], A]


def _sessions(archive: Archive, message: Sessions) -> list[SessionRow]:
    folders = any_folder if message.in_folders else None
    return archive.sessions(
        msgspec.structs.replace(message.request, folders=folders, deadline=deadline_of(message.seconds))
    )


def _exchanges(archive: Archive, message: Exchanges) -> list[Exchange]:
    folders = any_folder if message.in_folders else None
    return list(archive.exchanges(msgspec.structs.replace(message.request, folders=folders)))


def _search(archive: Archive, message: Search) -> Found:
    return archive.search(msgspec.structs.replace(message.request, deadline=deadline_of(message.seconds)))


def _query(message: Traces) -> TraceQuery:
    return msgspec.structs.replace(message.query, deadline=deadline_of(message.seconds))


SESSIONS = Method("sessions", Sessions, list[SessionRow], _sessions)
TURNS = Method("turns", Turns, list[TurnRow], lambda archive, m: archive.turns(m.key, m.part))
TURN_KEYS = Method("turn_keys", Key, frozenset[str], lambda archive, m: archive.turn_keys(m.key))
EVENTS = Method("events", Events, list[EventRow], lambda archive, m: archive.events(m.key, m.turn, m.part))
EXCHANGES = Method("exchanges", Exchanges, list[Exchange], _exchanges)
SEARCH = Method("search", Search, Found, _search)
OPEN_SESSION = Method("open_session", OpenSession, OpenedSession | None, lambda archive, m: archive.open(m.ref, m.part))
OPEN_TURN = Method("open_turn", OpenTurn, OpenedTurn | None, lambda archive, m: archive.open(m.ref, m.part))
OPEN_EVENT = Method("open_event", OpenEvent, OpenedEvent | None, lambda archive, m: archive.open(m.ref, m.part))
SYNC_STATE = Method("sync_state", Nothing, SyncState, lambda archive, _: archive.sync_state())
COUNTS = Method("counts", Nothing, Counts, lambda archive, _: archive.counts())
TRACES = Method("traces", Traces, FoundTraces[TraceRow], lambda archive, m: archive.spans.traces(_query(m)))
SPANS = Method("spans", Traces, FoundTraces[SpanRow], lambda archive, m: archive.spans.spans(_query(m), m.chars))
TRACE = Method(
    "trace",
    Trace,
    tuple[TraceRow, list[SpanRow]] | None,
    lambda archive, m: archive.spans.trace(m.id, m.only, texts=m.texts),
)
USAGE = Method("usage", Usage, list[UsageTotal], lambda archive, m: archive.spans.usage(m.window, m.detail))
STATS = Method(
    "stats", Stats, list[SpanStats], lambda archive, m: archive.spans.stats(m.window, m.by, latencies=m.latencies)
)
_ALL: tuple[Method[Any, Any], ...] = (
    *(SESSIONS, TURNS, TURN_KEYS, EVENTS, EXCHANGES, SEARCH, OPEN_SESSION, OPEN_TURN, OPEN_EVENT, SYNC_STATE, COUNTS),
    *(TRACES, SPANS, TRACE, USAGE, STATS),
)
METHODS: Mapping[str, Method[Any, Any]] = {method.name: method for method in _ALL}


def seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


def deadline_of(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds


# Bodies


def encode(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def compress(body: bytes) -> tuple[bytes, str | None]:
    """A body for the wire, and its Content-Encoding."""
    if len(body) < _COMPRESS_FROM:
        return body, None
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(body), "zstd"


def decompress(body: bytes, encoding: str | None, limit: int = 4 * MAX_BODY_BYTES) -> bytes:
    """The inverse. Raises ValueError for what is too large, damaged or otherwise encoded."""
    if not encoding or encoding == "identity":
        return body
    if encoding != "zstd":
        raise ValueError(f"Content-Encoding {encoding} is not supported")
    import io

    import zstandard

    try:
        with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(body)) as stream:
            plain = stream.read(limit + 1)
    except zstandard.ZstdError as error:
        raise ValueError(f"the body cannot be decompressed: {error}") from None
    if len(plain) > limit:
        raise ValueError(f"the body has more than {limit} bytes")
    return plain
