"""The pages of `backstory serve` for people, and the form that asks for the token.

Each module of a page gives its routes; a new page is one more line.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from ..http.security import TOKEN_PATH, Access, remember_token
from . import capsules, live, machine, search, session, traces, usage
from .site import Site, own_path, read_form


def page_routes(site: Site) -> list[BaseRoute]:
    """The routes of all pages; their data comes from the library's tools, or through `library.egress`."""
    return [
        *site.common_routes(),
        *search.routes(site),
        *session.routes(site),
        *traces.routes(site),
        *usage.routes(site),
        *live.routes(site),
        *capsules.routes(site),
        *machine.routes(site),
    ]


def access_routes(site: Site, access: Access) -> list[Route]:
    """The form that asks for the token: beyond loopback, once for each browser."""

    async def token(request: Request) -> Response:
        fields = await read_form(request)
        given, back = fields.get("token", "").strip(), own_path(fields.get("back", ""))
        if access.token is None or not access.accepts([given]):
            return site.token_page(request, refused_from=back)
        response = RedirectResponse(back, status_code=303)
        remember_token(response, access.token)
        return response

    return [Route(TOKEN_PATH, token, methods=["POST"])]
