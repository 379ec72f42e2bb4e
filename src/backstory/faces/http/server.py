"""The server of `backstory serve`: the app, its port, the live sessions, and the archive kept up to date meanwhile.

Each part gives its routes; a new part is one more line in `create_app`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from msgspec import Struct
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...toolsets.live import Live
from ...toolsets.live.types import MAX_FRAME_BYTES
from ..web.pages import access_routes, page_routes
from ..web.site import Site
from . import HANDLERS
from .api import api_routes, session_routes
from .iii import Engine, iii_socket, telemetry_socket
from .mcp import McpEndpoint
from .otlp import otlp_routes
from .security import Access, Guard, is_loopback

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ...library import Library
    from .hub import Hub

logger = logging.getLogger(__name__)

_STOP_SECONDS = 5
_RESTART_SECONDS = 2
_HEADER_SECONDS = 30
_BODY_SECONDS = 30
# Connections that wait for their next request. Most processes may have 1024 open files.
_MOST_WAITING = 512
_TICKS_PER_SECOND = 10  # of uvicorn
# Not from the current folder, where something else may be called `backstory`.
_WATCH = (sys.executable, "-P", "-m", "backstory", "watch", "--beside")
# An append must not wait long for a thread that searches, nor its sync for the loop: Python's own is 5 ms.
_SWITCH_SECONDS = 0.0005
_CORS_HEADERS = ("Authorization", "Content-Type", "Last-Event-ID", "Mcp-Protocol-Version", "Mcp-Session-Id")


def create_app(
    library: Library,
    live: Live,
    *,
    token: str | None = None,
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    beyond_loopback: bool = False,
) -> Starlette:
    """The app over an open library and started live sessions, which the caller closes.

    `hosts` are names of this server beside `localhost`, `origins` foreign pages that may call it.
    """
    access = Access.of(token, hosts, origins, beyond_loopback=beyond_loopback)
    asked = library.in_scope(library.settings.team.scope)
    mcp = McpEndpoint(asked)
    site = Site(library)
    routes: list[BaseRoute] = [
        *page_routes(site),
        *access_routes(site, access),
        WebSocketRoute("/", iii_socket(Engine(live))),
        WebSocketRoute("/otel", telemetry_socket),
        *session_routes(live),
        *api_routes(library),
        *otlp_routes(library),
        Route("/mcp", mcp),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await mcp.close()
        if asked is not library:
            asked.close()

    middleware = [Middleware(Guard, access=access, ask_token=site.token_page)]
    if access.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=sorted(access.origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=_CORS_HEADERS,
            expose_headers=["Mcp-Session-Id"],
        )
        middleware.append(cors)
    handlers = {**HANDLERS, HTTPException: site.http_error(HANDLERS[HTTPException])}
    return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)


class CannotServe(Exception):
    """The server cannot start; the message says why and what to do."""


class Options(Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 7717
    token: str | None = None
    allow_hosts: Sequence[str] = ()
    allow_origins: Sequence[str] = ()


class Address(Struct, frozen=True):
    """The address of the server."""

    url: str
    host: str
    port: int


def listen(options: Options, *, is_hub: bool = False) -> socket.socket:
    """The listening socket. Raises CannotServe beyond loopback without a token, and for a port that is taken. A hub has
    tokens of its own."""
    if not is_hub:
        _check_token(options)
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise CannotServe(f"{options.host} is not an address of this machine: {error}") from None
    # IPv4 first: that is where clients look for `localhost`.
    family, kind, protocol, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise CannotServe(_why_not(error, options)) from None
    return listener


def new_loop() -> asyncio.AbstractEventLoop:
    """The event loop to serve on: uvloop, which takes less time for each frame, where it is installed."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def serve(
    library: Library, live: Live, listener: socket.socket, options: Options, on_ready: Callable[[Address], None]
) -> None:
    """Serve until SIGINT or SIGTERM. `live` is started and closed here, the caller closes the library."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    host, port = listener.getsockname()[:2]
    address = Address(f"http://{_authority(host, port)}", host, port)
    live.own_urls = [f"ws://{_authority(host, port)}"]
    app = create_app(
        library,
        live,
        token=options.token,
        hosts=[options.host, socket.gethostname(), *options.allow_hosts],
        origins=options.allow_origins,
        beyond_loopback=not is_loopback(options.host),
    )
    try:
        async with live, keeping_live(library):
            await _Server(_configuration(app), lambda: on_ready(address)).serve(sockets=[listener])
    finally:
        listener.close()


async def serve_hub(hub: Hub, listener: socket.socket, on_ready: Callable[[Address], None]) -> None:
    """Serve the members of a team until SIGINT or SIGTERM; the caller closes the hub."""
    host, port = listener.getsockname()[:2]
    address = Address(f"http://{_authority(host, port)}", host, port)
    try:
        await _Server(_configuration(hub.app()), lambda: on_ready(address)).serve(sockets=[listener])
    finally:
        listener.close()


def _configuration(app: Starlette) -> uvicorn.Config:
    return uvicorn.Config(
        _without_late_bodies(app),
        log_config=None,
        access_log=False,  # it would keep the tokens of browsers, which come in the address
        proxy_headers=False,
        server_header=False,
        ws="websockets-sansio",
        ws_max_size=MAX_FRAME_BYTES,
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )


def _without_late_bodies(app: ASGIApp) -> ASGIApp:
    """The app, for which a client that stops in the middle of a body has disconnected."""

    async def hurried(scope: Scope, receive: Receive, send: Send) -> None:
        is_complete = scope["type"] != "http"

        async def hear() -> Message:
            nonlocal is_complete
            if is_complete:
                return await receive()
            try:
                async with asyncio.timeout(_BODY_SECONDS):
                    message = await receive()
            except TimeoutError:
                return {"type": "http.disconnect"}
            is_complete = not message.get("more_body", False)
            return message

        await app(scope, hear, send)

    return hurried


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._waiting: dict[Any, tuple[object, float]] = {}
        """Connections without a request under way: their last request, and since when they wait for the next one."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_SECOND == 0:
            self._close_late()
        return await super().on_tick(counter)

    def _close_late(self) -> None:
        """Close connections whose request is late, and those that wait longest where too many do. uvicorn closes them
        only until the first byte of a further request; it waits without end for the rest, and for the first request of
        a connection."""
        now, before, self._waiting = time.monotonic(), self._waiting, {}
        connections: list[Any] = [each for each in self.server_state.connections if hasattr(each, "cycle")]  # of HTTP
        for connection in connections:
            request = connection.cycle
            if request is None or request.response_complete:
                last, since = before.get(connection, (request, now))
                self._waiting[connection] = (request, since if last is request else now)
                if last is request and now - since > _HEADER_SECONDS:
                    connection.transport.close()
        longest = sorted(self._waiting, key=lambda connection: self._waiting[connection][1])
        for connection in longest[: max(0, len(longest) - _MOST_WAITING)]:
            connection.transport.close()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Unlike the original, the signal is not raised again at the end: it is no failure.
        self.force_exit = self.should_exit
        self.should_exit = True
        logging.getLogger("uvicorn.error").addFilter(_is_no_cut)


def _is_no_cut(record: logging.LogRecord) -> bool:
    """False for a log record about an answer that the end of the server has cut off: that is no error."""
    error = record.exc_info[1] if record.exc_info else None
    words = ("without completing", "graceful shutdown exceeded")
    return not isinstance(error, asyncio.CancelledError) and not any(each in record.getMessage() for each in words)


@asynccontextmanager
async def keeping_live(library: Library) -> AsyncIterator[None]:
    """A process beside the server keeps the archive live: reading transcripts in this one would delay answers.

    It waits for the writer lock, which another process may hold.
    """
    library.expect_first_sync()
    task = asyncio.create_task(_keep(library))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep(library: Library) -> None:
    environ = {**os.environ, "BACKSTORY_HOME": str(library.home)}
    while True:
        try:
            outcome = f"ended with code {await _watch(environ)}"
        except OSError as error:
            outcome = f"cannot be started ({error})"
        # The server still answers from what is indexed.
        logger.warning("keeping the archive live %s, trying again in %d s", outcome, _RESTART_SECONDS)
        await asyncio.sleep(_RESTART_SECONDS)


async def _watch(environ: dict[str, str]) -> int:
    # A group of its own: Ctrl-C is for the server, which then ends this in good order.
    process = subprocess.Popen(_WATCH, env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0)
    ended = asyncio.ensure_future(asyncio.to_thread(process.wait))
    try:
        return await asyncio.shield(ended)
    finally:
        await _stop(process, ended)


async def _stop(process: subprocess.Popen[bytes], ended: asyncio.Future[int]) -> None:
    """Close its input, which ends it; that also happens when this process dies."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(asyncio.shield(ended), _STOP_SECONDS)
    except TimeoutError:
        process.kill()


def _check_token(options: Options) -> None:
    token = options.token
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token and token):
        raise CannotServe("the token must be printable ASCII without spaces")
    if not is_loopback(options.host) and token is None:
        from secrets import token_urlsafe

        raise CannotServe(
            f"refusing to listen on {options.host} without a token: everyone who reaches this port could read every "
            f"session. Set one with BACKSTORY_TOKEN or --token, for example {token_urlsafe(24)}"
        )


def _why_not(error: OSError, options: Options) -> str:
    where = _authority(options.host, options.port)
    if error.errno == errno.EADDRINUSE:
        return f"{where} is taken, perhaps by another `backstory serve`; stop it or choose another --port"
    if error.errno == errno.EACCES:
        return f"{where}: not allowed; ports below 1024 are for administrators, choose another --port"
    return f"cannot listen on {where}: {error.strerror}"


def _authority(host: str, port: int) -> str:
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
