"""MCP on stdin and stdout, in both eras of the protocol: the `initialize` handshake and stateless requests.

The part of the protocol that tools need is small, and is written here directly: the official SDK takes a second to
import, which every session of an agent would wait for. Toolsets load when one of their tools is called.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct

from .. import __version__
from ..toolsets.base import Tool, Toolset, excerpt, received
from .jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_VERSION,
    Notification,
    ProtocolError,
    Request,
    Unreadable,
    decode_line,
)
from .offer import DEFAULT, Listing, load_listing, load_toolset

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import ThreadPoolExecutor

    from ..library import Library

log = logging.getLogger("backstory.mcp")
T = TypeVar("T")

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSIONS = ("2026-07-28",)

_VERSION = "io.modelcontextprotocol/protocolVersion"
_CLIENT_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
_CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"

SERVER = {"name": "backstory", "title": "Backstory", "version": __version__}
TOOLS_FRESH_MS = 3_600_000
# Calls are mostly Python, so more threads would only take turns with the one that reads requests.
PARALLEL_CALLS = 4

# The longest wait for calls under way after the client closed its end; longer than any tool's deadline.
_DRAIN_SECONDS = 10.0
_STOP_SECONDS = 2.0
_SIGNAL_SECONDS = 0.5
# The look for new transcripts begins when the first request is answered, or after this long, and reading as long after
# that where nothing is new: both would compete for the processor.
_HEAD_START_SECONDS = 0.5
# The time that the first call of a tool waits for transcripts that were written just before.
_NEWS_SECONDS = 0.5
_OF_TRANSCRIPTS = ("history", "conversations", "traces")


class _Meta(Struct):
    progressToken: str | int | None = None


class _Implementation(Struct):
    name: str
    version: str


class _Initialize(Struct):
    protocolVersion: str
    capabilities: dict[str, Any]
    clientInfo: _Implementation


class _Envelope(Struct, rename={"capabilities": _CLIENT_CAPABILITIES, "info": _CLIENT_INFO}):
    capabilities: dict[str, Any]
    info: _Implementation | None = None


class _List(Struct, rename={"meta": "_meta"}):
    meta: _Meta | None = None
    cursor: str | None = None


class _Call(Struct, rename={"meta": "_meta"}):
    name: str
    arguments: dict[str, Any] | None = None
    meta: _Meta | None = None


class _RunningCall(Struct, eq=False):
    """A call under way; two requests with the same id are two calls."""

    request_id: str | int


class Connection:
    """One client: takes lines, writes answers. `load` gives a toolset by its name."""

    def __init__(self, listing: Listing, load: Callable[[str], Toolset], output: BinaryIO) -> None:
        self._listing = listing
        self._load = load
        self._output = output
        self._writing = threading.Lock()
        self._loading = threading.Lock()
        self._tools: dict[str, Tool] = {}
        self._modern: bool | None = None
        self._initialized = False
        self._pool: ThreadPoolExecutor | None = None
        self._calls: set[_RunningCall] = set()
        self._call_ended = threading.Condition()
        self.answered = threading.Event()
        """Set when the first request is answered."""

    def receive(self, line: bytes) -> None:
        """Take one line: answer it, or begin a call that is answered later."""
        moment = time.monotonic()
        try:
            message = decode_line(line)
        except Unreadable as error:
            self._refuse(error.id, error)
            return
        if isinstance(message, Notification):
            self._notice(message)
        elif message is not None:
            try:
                if (result := self._handle(message, moment)) is not None:
                    self._answer(message.id, result)
            except ProtocolError as error:
                self._refuse(message.id, error)

    def serve(self, lines: Iterable[bytes]) -> None:
        """Take all lines, and wait for the calls under way."""
        for line in lines:
            self.receive(line)
        self.finish()

    def finish(self) -> None:
        """Wait for the calls under way, so that requests from a file are answered before the end."""
        with self._call_ended:
            self._call_ended.wait_for(lambda: not self._calls, _DRAIN_SECONDS)

    # Requests

    def _handle(self, request: Request, moment: float) -> dict[str, Any] | None:
        """The result, or None for a call that is answered later."""
        if self._modern is None:
            # The first request decides the era of the connection.
            self._modern = request.method != "initialize" and _has_envelope(request.params)
        return self._handle_modern(request, moment) if self._modern else self._handle_handshake(request, moment)

    def _handle_handshake(self, request: Request, moment: float) -> dict[str, Any] | None:
        params = request.params
        if request.method == "initialize":
            given = _convert(params, _Initialize)
            self._initialized = True
            version = given.protocolVersion
            return {
                "protocolVersion": version if version in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": SERVER,
                "instructions": self._listing.instructions,
            }
        if _has_envelope(params):
            raise ProtocolError(
                INVALID_REQUEST,
                "this connection serves the handshake protocol era; "
                "requests carrying the 2026-07-28 envelope are not accepted on it",
            )
        if request.method == "ping":
            return {}
        if request.method in ("tools/list", "tools/call") and not self._initialized:
            raise ProtocolError(INVALID_PARAMS, "Invalid request parameters", "")
        return self._handle_tools(request, moment)

    def _handle_modern(self, request: Request, moment: float) -> dict[str, Any] | None:
        if request.method == "initialize":
            requested = request.params.get("protocolVersion")
            versions = {"requested": excerpt(requested)} if isinstance(requested, str) else {}
            raise ProtocolError(
                UNSUPPORTED_VERSION,
                "connection is serving the 2026-07-28 protocol; the initialize handshake is not accepted",
                {"supported": MODERN_VERSIONS, **versions},
            )
        _check_envelope(request.params.get("_meta"))
        if request.method == "server/discover":
            return self._modern_result(
                supportedVersions=MODERN_VERSIONS,
                capabilities={"tools": {"listChanged": False}},
                instructions=self._listing.instructions,
                ttlMs=0,
                cacheScope="private",
            )
        listed = self._handle_tools(request, moment)
        return listed and self._modern_result(**listed, ttlMs=TOOLS_FRESH_MS, cacheScope="private")

    def _handle_tools(self, request: Request, moment: float) -> dict[str, Any] | None:
        """The methods that both eras have."""
        if request.method == "tools/list":
            _convert(request.params, _List)
            return {"tools": self._listing.tools}
        if request.method == "tools/call":
            self._begin_call(request.id, _convert(request.params, _Call), moment)
            return None
        raise ProtocolError(METHOD_NOT_FOUND, "Method not found", excerpt(request.method))

    def _modern_result(self, **result: Any) -> dict[str, Any]:
        return {**result, "resultType": "complete", "_meta": {_SERVER_INFO: SERVER}}

    def _notice(self, notification: Notification) -> None:
        """Only cancellation matters here: a cancelled call is not answered."""
        if notification.method == "notifications/cancelled":
            given = notification.params.get("requestId")
            with self._call_ended:
                # Some clients write the number of a request as a string here.
                self._calls -= {call for call in self._calls if str(call.request_id) == str(given)}

    # Calls

    def _begin_call(self, request_id: str | int, given: _Call, moment: float) -> None:
        if given.name not in self._listing.owners:
            raise unknown_tool(given.name, self._listing.names)
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(PARALLEL_CALLS, "backstory-call")
        call = _RunningCall(request_id)
        self._calls.add(call)
        self._pool.submit(self._run_call, call, given, moment)

    def _run_call(self, call: _RunningCall, given: _Call, moment: float) -> None:
        if call not in self._calls:  # cancelled before it began
            return
        try:
            answer = partial(self._answer, call.request_id, self._call(given, moment))
        except ProtocolError as error:
            answer = partial(self._refuse, call.request_id, error)
        if call in self._calls:
            answer()
        with self._call_ended:
            self._calls.discard(call)
            self._call_ended.notify_all()

    def _call(self, given: _Call, moment: float) -> dict[str, Any]:
        try:
            tool = self._tool(given.name)
            with received(moment):
                reply = tool.handler(given.arguments or {})
        except Exception as error:
            # Handlers answer every error themselves; an exception is a bug, and its details stay on this side.
            log.exception("%s failed", given.name)
            raise ProtocolError(INTERNAL_ERROR, f"{given.name} failed unexpectedly; see the server's stderr") from error
        result: dict[str, Any] = {"content": [{"type": "text", "text": reply.text}], "isError": reply.is_error}
        if tool.structured_errors or not reply.is_error:
            result["structuredContent"] = reply.json
        return self._modern_result(**result) if self._modern else result

    def _tool(self, name: str) -> Tool:
        with self._loading:
            if name not in self._tools:
                toolset = self._load(self._listing.owners[name])
                aliases = {alias: tool for tool in toolset.tools for alias in tool.aliases}
                self._tools |= aliases | {tool.name: tool for tool in toolset.tools}
            return self._tools[name]

    # Answers

    def _answer(self, request_id: str | int, result: dict[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _refuse(self, request_id: str | int | None, error: ProtocolError) -> None:
        from ..egress import egress  # most connections see no error

        body: dict[str, Any] = {"code": error.code, "message": error.message}
        if error.data is not UNSET:
            body["data"] = error.data
        self._write({"jsonrpc": "2.0", "id": request_id, "error": egress(body)})

    def _write(self, message: dict[str, Any]) -> None:
        line = msgspec.json.encode(message) + b"\n"
        try:
            with self._writing:
                self._output.write(line)
                self._output.flush()
        except (BrokenPipeError, ValueError):
            log.info("the client went away")
        self.answered.set()


def unknown_tool(name: str, listed: Sequence[str]) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"Unknown tool: {excerpt(name)}", {"tools": list(listed)})


def _convert(params: dict[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError:
        raise ProtocolError(INVALID_PARAMS, "Invalid request parameters", "") from None


def _has_envelope(params: dict[str, Any]) -> bool:
    meta = params.get("_meta")
    return isinstance(meta, dict) and _VERSION in meta


def _check_envelope(meta: Any) -> None:
    """Raise the error that the protocol has for an incomplete envelope or another version."""
    if not isinstance(meta, dict):
        needed = f"{_VERSION!r} and {_CLIENT_CAPABILITIES!r}"
        raise ProtocolError(
            INVALID_PARAMS, f"params._meta must be an object carrying the required {needed} envelope keys"
        )
    if missing := [key for key in (_VERSION, _CLIENT_CAPABILITIES) if key not in meta]:
        raise ProtocolError(
            INVALID_PARAMS, f"params._meta is missing the required envelope key(s): {', '.join(missing)}"
        )
    version = meta[_VERSION]
    if not isinstance(version, str):
        raise ProtocolError(INVALID_PARAMS, "the protocol-version envelope value must be a string")
    if version not in MODERN_VERSIONS:
        raise ProtocolError(
            UNSUPPORTED_VERSION,
            "Unsupported protocol version",
            {"supported": MODERN_VERSIONS, "requested": excerpt(version)},
        )
    _convert(meta, _Envelope)


def serve_stdio(library: Library, names: Sequence[str] = (DEFAULT,), *, pattern: str | None = None) -> None:
    """Serve on stdin and stdout until the client closes its end or the process gets a signal to stop.

    Transcripts are indexed and watched in the background meanwhile. Logging goes to stderr: stdout is the protocol.
    """
    from .log import log_to_stderr

    log_to_stderr()
    incoming = _claim(0, os.open(os.devnull, os.O_RDONLY), "rb")
    outgoing = _claim(1, 2, "wb")
    stop = threading.Event()
    library = library.in_scope(library.settings.team.scope)
    library.expect_watch()

    def load(name: str) -> Toolset:
        if name in _OF_TRANSCRIPTS:
            library.await_news(_NEWS_SECONDS)
        return load_toolset(library, name, pattern=pattern)

    connection = Connection(load_listing(library, names), load, outgoing)
    watcher = threading.Thread(
        target=_watch, args=(library, connection.answered, stop), name="backstory-watch", daemon=True
    )

    def end(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(0))
        stop.set()
        connection.answered.set()
        watcher.join(_STOP_SECONDS)
        if not watcher.is_alive():  # else in a long read: what is committed is safe, the rest is read the next time
            library.close()
        # A call that did not end in time, or answers that the client no longer reads, must not delay the end.
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    watcher.start()
    reader = threading.Thread(target=connection.serve, args=(incoming,), name="backstory-read", daemon=True)
    reader.start()
    while reader.is_alive():
        # Not for ever: a signal that another thread receives does not wake this one, which alone handles it.
        reader.join(_SIGNAL_SECONDS)
    end()


def _claim(descriptor: int, elsewhere: int, mode: Literal["rb", "wb"]) -> BinaryIO:
    """A private stream on a descriptor, which itself leads elsewhere from now on: so no library and no child process
    reads or writes in the protocol."""
    private = os.dup(descriptor)
    os.dup2(elsewhere, descriptor)
    return os.fdopen(private, mode)


def _watch(library: Library, answered: threading.Event, stop: threading.Event) -> None:
    answered.wait(_HEAD_START_SECONDS)
    try:
        library.watch(stop, rest=_HEAD_START_SECONDS)
    except Exception:
        # The server still answers from what is indexed; `doctor` shows what is missing.
        log.exception("watching transcripts stopped")
