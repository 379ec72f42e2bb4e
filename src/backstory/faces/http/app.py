"""The ASGI app of `backstory serve`. Each part gives its routes; a new part is one more line in `routes`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route, WebSocketRoute

from ...toolsets.live import Live
from ..web.access import access_routes
from ..web.pages import page_routes
from ..web.site import Site
from .api import api_routes
from .bodies import HANDLERS
from .iii import Engine, iii_socket
from .mcp import McpEndpoint
from .otlp import otlp_routes
from .security import Access, Guard
from .sessions import session_routes

if TYPE_CHECKING:
    from ...library import Library

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
    mcp = McpEndpoint(library)
    site = Site(library)
    routes: list[BaseRoute] = [
        *page_routes(site),
        *access_routes(site, access),
        WebSocketRoute("/", iii_socket(Engine(live))),
        *session_routes(live),
        *api_routes(library),
        *otlp_routes(library),
        Route("/mcp", mcp),
    ]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await mcp.close()

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
