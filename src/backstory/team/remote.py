"""The archive of a team behind a hub, and the client of the hub: every toolset reads it like that of this machine."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar
from urllib.parse import urlsplit

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
from ..archive.errors import DeadlineExceeded
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
from ..interpreter import waiting
from ..model import Ref, SessionRef, TurnRef
from . import SharedArchive, TeamError, Unreachable, refuse_writing, wire
from .sharing import Parcel, Receipt
from .wire import BASE, MEDIA_TYPE, PROTOCOL, VERSION_HEADER, A, Hello, M, Method, compress, decompress, encode

T = TypeVar("T")
_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 60.0
# To forget a session, the server rewrites its tables.
_FORGET_SECONDS = 600.0
# A pattern of folders is a function and cannot be sent: so many matches are looked at on this side.
_SEARCHED_EXCHANGES = 500
_EXCHANGES_AT_ONCE = 200


class _Refusal(msgspec.Struct):
    code: str
    message: str


class _Refused(msgspec.Struct):
    error: _Refusal


class HubClient:
    """A hub and the token of a member. Any thread may use it: each has a connection of its own."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise TeamError(f"team.url: {url!r} is not the address of a hub, such as https://hub.example.com")
        if not token:
            raise TeamError("a token is missing: set BACKSTORY_TEAM_TOKEN, or team.token_file in config.toml")
        self._url = url.rstrip("/")
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/")
        self._secure = parts.scheme == "https"
        self._token = token
        self._local = threading.local()
        self._connections: set[http.client.HTTPConnection] = set()

    # Sharing

    def hello(self) -> Hello:
        return self._decode(self._request("GET", f"{BASE}/hello"), Hello)

    def identity(self) -> str:
        return self.hello().identity

    def push(self, parcel: Parcel) -> Receipt:
        return self._decode(self._request("POST", f"{BASE}/push", encode(parcel)), Receipt)

    def forget(self, keys: Sequence[str]) -> Receipt:
        answer = self._request("POST", f"{BASE}/forget", encode(list(keys)), seconds=_FORGET_SECONDS)
        return self._decode(answer, Receipt)

    # Asking

    def read(self, method: Method[M, A], message: M) -> A:
        content = self._request("POST", f"{BASE}/read/{method.name}", encode(message))
        answer: A = self._decode(content, method.answer)
        return answer

    def close(self) -> None:
        """Close the connections of all threads; the next request opens one again."""
        while self._connections:
            self._connections.pop().close()

    def __del__(self) -> None:
        if "_connections" in self.__dict__:  # else it was refused
            self.close()

    # HTTP

    def _request(self, method: str, path: str, body: bytes | None = None, seconds: float = _ANSWER_SECONDS) -> bytes:
        headers = {
            "Authorization": f"Bearer {self._token}",
            VERSION_HEADER: str(PROTOCOL),
            "Accept-Encoding": "zstd",
            "Content-Type": MEDIA_TYPE,
        }
        if body is not None:
            body, encoding = compress(body)
            headers |= {"Content-Encoding": encoding} if encoding else {}
        try:
            with waiting():
                response = self._send(method, path, body, headers, seconds)
                answer = response.read()
            content = decompress(answer, response.getheader("Content-Encoding"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop()
            reason = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
            raise Unreachable(
                f"the hub {self._url} does not answer: check the network and team.url ({reason})"
            ) from error
        self._check(response, content)
        return content

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], seconds: float
    ) -> http.client.HTTPResponse:
        """One request. A connection that the hub has closed meanwhile is opened again: all requests may be repeated."""
        known: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        is_open = known is not None and known.sock is not None
        connection = known if known is not None and is_open else self._connect()
        try:
            connection.sock.settimeout(seconds)
            connection.request(method, self._path + path, body, headers)
            return connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionError):
            if not is_open:
                raise
            self._drop()
            return self._send(method, path, body, headers, seconds)

    def _drop(self) -> None:
        """Close the connection of this thread."""
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._connections.discard(connection)
        self._local.connection = None

    def _connect(self) -> http.client.HTTPConnection:
        """A new connection of this thread."""
        if self._secure:
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_CONNECT_SECONDS, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_SECONDS)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._local.connection = connection
        self._connections.add(connection)
        return connection

    def _check(self, response: http.client.HTTPResponse, content: bytes) -> None:
        """Raise TeamError for anything but the answer of a hub that speaks our version."""
        version = response.getheader(VERSION_HEADER)
        if version is None:
            raise TeamError(f"{self._url} is not a Backstory hub (HTTP {response.status}): check team.url")
        if version != str(PROTOCOL):
            older = "the hub" if version.isdecimal() and int(version) < PROTOCOL else "Backstory on this machine"
            raise TeamError(
                f"the hub {self._url} speaks version {version} of the team protocol, this Backstory {PROTOCOL}: "
                f"update {older}"
            )
        if response.status == 200:
            return
        try:
            refusal = msgspec.json.decode(content, type=_Refused).error
        except msgspec.DecodeError:
            raise TeamError(f"the hub {self._url} answers with HTTP {response.status}") from None
        if refusal.code == "deadline_exceeded":
            raise DeadlineExceeded(refusal.message)
        if response.status == 503:
            raise Unreachable(f"the hub {self._url}: {refusal.message}")
        raise TeamError(f"the hub {self._url}: {refusal.message}")

    def _decode(self, content: bytes, kind: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(content, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise TeamError(f"the answer of the hub {self._url} cannot be read: {error}") from None


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
        rows = msgspec.structs.replace(request, folders=None, deadline=None)
        if folders is not None and folders is not any_folder:
            rows = msgspec.structs.replace(rows, limit=None)
        sent = wire.Sessions(request=rows, seconds=wire.seconds_left(request.deadline), in_folders=folders is not None)
        found = self._hub.read(wire.SESSIONS, sent)
        return found if folders is None else [row for row in found if folders(row.folder or "")][: request.limit]

    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]:
        return self._hub.read(wire.TURNS, wire.Turns(key, part))

    def turn_keys(self, key: str) -> frozenset[str]:
        return self._hub.read(wire.TURN_KEYS, wire.Key(key))

    def events(self, key: str | None = None, turn: int | None = None, part: Part = EVERYTHING) -> list[EventRow]:
        return self._hub.read(wire.EVENTS, wire.Events(key, turn, part))

    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        if request.query is None:
            yield from self._exchanges_of(request)
            return
        folders = request.folders
        limit = request.limit if folders in (None, any_folder) else _SEARCHED_EXCHANGES
        limit = _SEARCHED_EXCHANGES if limit is None else limit
        sent = msgspec.structs.replace(request, folders=None, limit=limit)
        found = self._hub.read(wire.EXCHANGES, wire.Exchanges(sent, in_folders=folders is not None))
        chosen = (each for each in found if folders is None or folders(each.session.folder or ""))
        yield from islice(chosen, request.limit)

    def _exchanges_of(self, request: ExchangesRequest) -> Iterator[Exchange]:
        """The exchanges of a session, in portions."""
        first, left = request.first, request.limit
        while left is None or left > 0:
            count = _EXCHANGES_AT_ONCE if left is None else min(left, _EXCHANGES_AT_ONCE)
            sent = msgspec.structs.replace(request, folders=None, first=first, limit=count)
            found = self._hub.read(wire.EXCHANGES, wire.Exchanges(sent))
            yield from found
            if len(found) < count:
                return
            first, left = found[-1].row.number + 1, None if left is None else left - count

    def search(self, request: SearchRequest) -> Found:
        seconds = wire.seconds_left(request.deadline)
        # The folder of the caller says nothing about the folders of others.
        sent = msgspec.structs.replace(request, deadline=None, here=None)
        return self._hub.read(wire.SEARCH, wire.Search(sent, seconds))

    def _open(self, ref: Ref, part: Part) -> Opened | None:
        if isinstance(ref, SessionRef):
            return self._hub.read(wire.OPEN_SESSION, wire.OpenSession(ref, part))
        if isinstance(ref, TurnRef):
            return self._hub.read(wire.OPEN_TURN, wire.OpenTurn(ref, part))
        return self._hub.read(wire.OPEN_EVENT, wire.OpenEvent(ref, part))

    def counts(self) -> Counts:
        return self._hub.read(wire.COUNTS, wire.Nothing())

    def sync_state(self, *, folders: bool = False) -> SyncState:
        return self._hub.read(wire.SYNC_STATE, wire.Nothing())

    def close(self) -> None:
        self._hub.close()


class RemoteSpans(Spans):
    """The traces of a team behind a hub."""

    def __init__(self, hub: HubClient) -> None:
        self._hub = hub

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        refuse_writing()

    def traces(self, query: TraceQuery) -> FoundTraces[TraceRow]:
        return self._hub.read(wire.TRACES, self._message(query))

    def spans(self, query: TraceQuery, chars: int) -> FoundTraces[SpanRow]:
        return self._hub.read(wire.SPANS, self._message(query, chars))

    def _message(self, query: TraceQuery, chars: int = 0) -> wire.Traces:
        seconds = wire.seconds_left(query.deadline)
        return wire.Traces(msgspec.structs.replace(query, deadline=None), seconds, chars)

    def trace(
        self, id: str, only: Collection[int] | None = None, *, texts: bool = True
    ) -> tuple[TraceRow, list[SpanRow]] | None:
        return self._hub.read(wire.TRACE, wire.Trace(id, None if only is None else list(only), texts))

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        return self._hub.read(wire.USAGE, wire.Usage(window, detail))

    def stats(self, window: Window, by: StatsGroup, *, latencies: bool = True) -> list[SpanStats]:
        return self._hub.read(wire.STATS, wire.Stats(window, by, latencies))

    def check(self) -> None:
        """The hub checks its own archive."""
