"""The protocol between a machine and a hub: paths, versions, and the reads of an archive as messages.

Bodies are MessagePack, compressed with zstd where they are large. A read is a struct with the method and its arguments;
times on the monotonic clock, which mean nothing on another machine, travel as seconds that are left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

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


class Method(NamedTuple):
    """A read: the types of its message and its answer, and the call that it is at the hub."""

    message: Any
    answer: Any
    call: Callable[[Archive, Any], Any]


def _sessions(archive: Archive, message: Sessions) -> list[SessionRow]:
    folders = any_folder if message.in_folders else None
    return archive.sessions(
        msgspec.structs.replace(message.request, folders=folders, deadline=deadline_of(message.seconds))
    )


def _exchanges(archive: Archive, message: Exchanges) -> list[Exchange]:
    folders = any_folder if message.in_folders else None
    return list(archive.exchanges(msgspec.structs.replace(message.request, folders=folders)))


def _timed(message: Any) -> Any:
    """The request or query of a message, with the deadline that its seconds mean here."""
    inner = message.query if isinstance(message, Traces) else message.request
    return msgspec.structs.replace(inner, deadline=deadline_of(message.seconds))


METHODS: Mapping[str, Method] = {
    "sessions": Method(Sessions, list[SessionRow], _sessions),
    "turns": Method(Turns, list[TurnRow], lambda archive, m: archive.turns(m.key, m.part)),
    "turn_keys": Method(Key, frozenset[str], lambda archive, m: archive.turn_keys(m.key)),
    "events": Method(Events, list[EventRow], lambda archive, m: archive.events(m.key, m.turn, m.part)),
    "exchanges": Method(Exchanges, list[Exchange], _exchanges),
    "search": Method(Search, Found, lambda archive, m: archive.search(_timed(m))),
    "open_session": Method(OpenSession, OpenedSession | None, lambda archive, m: archive.open(m.ref, m.part)),
    "open_turn": Method(OpenTurn, OpenedTurn | None, lambda archive, m: archive.open(m.ref, m.part)),
    "open_event": Method(OpenEvent, OpenedEvent | None, lambda archive, m: archive.open(m.ref, m.part)),
    "sync_state": Method(Nothing, SyncState, lambda archive, m: archive.sync_state()),
    "counts": Method(Nothing, Counts, lambda archive, m: archive.counts()),
    "traces": Method(Traces, FoundTraces[TraceRow], lambda archive, m: archive.spans.traces(_timed(m))),
    "spans": Method(Traces, FoundTraces[SpanRow], lambda archive, m: archive.spans.spans(_timed(m), m.chars)),
    "trace": Method(
        Trace,
        tuple[TraceRow, list[SpanRow]] | None,
        lambda archive, m: archive.spans.trace(m.id, m.only, texts=m.texts),
    ),
    "usage": Method(Usage, list[UsageTotal], lambda archive, m: archive.spans.usage(m.window, m.detail)),
    "stats": Method(
        Stats, list[SpanStats], lambda archive, m: archive.spans.stats(m.window, m.by, latencies=m.latencies)
    ),
}


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
