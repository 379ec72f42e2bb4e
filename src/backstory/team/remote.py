"""The archive of a team behind a hub, and the client of the hub: every toolset reads it like that of this machine."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar
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
from .wire import BASE, MEDIA_TYPE, METHODS, PROTOCOL, VERSION_HEADER, Hello, compress, decompress, encode

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

    def read(self, method: str, message: Any) -> Any:
        """The answer of one of `wire.METHODS`."""
        answer = self._request("POST", f"{BASE}/read/{method}", encode(message))
        return self._decode(answer, METHODS[method].answer)

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
