"""The form that asks for the token: beyond loopback, once for each browser."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ..http.security import TOKEN_PATH, Access, remember_token
from .site import Site, own_path, read_form


def access_routes(site: Site, access: Access) -> list[Route]:
    async def token(request: Request) -> Response:
        fields = await read_form(request)
        given = fields.get("token", "").strip()
        if access.token is None or not access.accepts([given]):
            return site.token_page(request, wrong=True)
        response = RedirectResponse(own_path(fields.get("back", "")), status_code=303)
        remember_token(response, access.token)
        return response

    return [Route(TOKEN_PATH, token, methods=["POST"])]
