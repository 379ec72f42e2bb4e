"""Access to the server.

A page in the user's browser can reach every port of this machine, and by DNS rebinding it can do so under a name of its
own. So every request, WebSocket handshakes included, must name a host that is ours, and one that comes from a page must
come from a page of ours. Beyond loopback the token decides.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterable
from urllib.parse import urlencode

from msgspec import Struct
from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import error_response

TOKEN_SUBPROTOCOL = "backstory.token."
"""A browser cannot set headers on a WebSocket; it can offer this subprotocol with the token behind the last dot."""

_COOKIE = "backstory_token"
_COOKIE_SECONDS = 365 * 86_400
TOKEN_PATH = "/token"
"""The form that asks for the token is sent here."""
# Without a token: the health check, and the page that asks for it, with its stylesheet.
_OPEN_PATHS = frozenset({"/healthz", TOKEN_PATH})
_OPEN_FOLDER = "/static/"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def is_loopback(host: str) -> bool:
    """True for an address of this machine only. Of names, only `localhost` is one."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class Access(Struct, frozen=True):
    """The requests that are accepted. Without a token only those to loopback addresses are."""

    token: str | None = None
    hosts: frozenset[str] = frozenset()
    """Names of this server beside `localhost`."""
    origins: frozenset[str] = frozenset()
    """Foreign pages that may call, e.g. `http://localhost:3000`."""
    beyond_loopback: bool = False

    @classmethod
    def of(
        cls,
        token: str | None = None,
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        *,
        beyond_loopback: bool = False,
    ) -> Access:
        if beyond_loopback and not token:
            raise ValueError("a server beyond loopback needs a token")
        return cls(
            token or None,
            frozenset(host.lower() for host in hosts),
            frozenset(origin.lower().rstrip("/") for origin in origins),
            beyond_loopback,
        )

    def knows_host(self, header: str) -> bool:
        name = _host_name(header)
        if name is None:
            return False
        try:
            # An address cannot be rebound; a name can.
            return ipaddress.ip_address(name).is_loopback or self.beyond_loopback
        except ValueError:
            return name == "localhost" or name in self.hosts

    def knows_origin(self, origin: str, host: str) -> bool:
        origin = origin.lower()
        return origin in (f"http://{host.lower()}", f"https://{host.lower()}") or origin in self.origins

    def accepts(self, offered: Iterable[str]) -> bool:
        if self.token is None:
            return True
        expected = self.token.encode()
        return any(hmac.compare_digest(expected, given.encode("utf-8", "surrogateescape")) for given in offered)


class Guard:
    """ASGI middleware that refuses requests without access, before any other part sees them."""

    def __init__(self, app: ASGIApp, access: Access, ask_token: Callable[[HTTPConnection], Response]) -> None:
        self.app = app
        self.access = access
        self._ask_token = ask_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        answer = self._answer(HTTPConnection(scope))
        if answer is not None:
            await answer(scope, receive, _with_headers(send))
        else:
            await self.app(scope, receive, _with_headers(send))

    def _answer(self, connection: HTTPConnection) -> Response | None:
        """The refusal of a request, or None."""
        hosts = connection.headers.getlist("host")
        if len(hosts) != 1 or not self.access.knows_host(hosts[0]):
            return error_response(
                403, "forbidden_host", "unknown Host header: use localhost, or start the server with --allow-host NAME"
            )
        origin = connection.headers.get("origin")
        if origin is not None and not self.access.knows_origin(origin, hosts[0]):
            return error_response(
                403, "forbidden_origin", "requests from other sites are refused; --allow-origin lets one in"
            )
        scope = connection.scope
        path = scope["path"]
        is_preflight = scope.get("method") == "OPTIONS" and origin is not None
        if path in _OPEN_PATHS or path.startswith(_OPEN_FOLDER) or is_preflight:
            return None
        if not self.access.accepts(_offered_tokens(connection)):
            if opens_page(connection):
                return self._ask_token(connection)
            return error_response(
                401,
                "unauthorized",
                "a token is needed: send `Authorization: Bearer <token>`",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return self._remember(connection)

    def _remember(self, connection: HTTPConnection) -> Response | None:
        """A person who opens a page with `?token=` gets a cookie and an address without it."""
        query = connection.query_params
        if self.access.token is None or not opens_page(connection) or "token" not in query:
            return None
        rest = urlencode([(key, value) for key, value in query.multi_items() if key != "token"])
        path = "/" + connection.scope["path"].lstrip("/")  # `//name` would lead to another site
        response = RedirectResponse(path + (f"?{rest}" if rest else ""), status_code=303)
        remember_token(response, self.access.token)
        return response


def remember_token(response: Response, token: str) -> None:
    """Let the browser present the token from now on; scripts and other sites cannot read or send it."""
    response.set_cookie(_COOKIE, token, max_age=_COOKIE_SECONDS, httponly=True, samesite="strict")


def opens_page(connection: HTTPConnection) -> bool:
    """True for a browser that opens an address, not for a script or a program."""
    return connection.scope.get("method") == "GET" and "text/html" in connection.headers.get("accept", "")


def _host_name(header: str) -> str | None:
    """`name` of `name`, `name:port`, `[v6]`, `[v6]:port`, in lower case."""
    if header.startswith("["):
        name, closed, port = header[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            return None
        port = port[1:]
    else:
        name, _, port = header.partition(":")
    return name.lower() if name and (not port or port.isdecimal()) else None


def _offered_tokens(connection: HTTPConnection) -> list[str]:
    offered = []
    scheme, _, credentials = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        offered.append(credentials.strip())
    # EventSource, WebSocket and links cannot send a header. None of them can do more than GET.
    if connection.scope.get("method", "GET") in ("GET", "HEAD"):
        offered += connection.query_params.getlist("token")
    for name in connection.scope.get("subprotocols", ()):
        if name.startswith(TOKEN_SUBPROTOCOL):
            offered.append(name.removeprefix(TOKEN_SUBPROTOCOL))
    if cookie := connection.cookies.get(_COOKIE):
        offered.append(cookie)
    return offered


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
