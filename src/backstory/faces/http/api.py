"""The JSON API: every tool of every toolset (`GET /api/tools`, `POST /api/tools/<name>`), and `GET /healthz`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...toolsets.base import Reply, received
from ..mcp import PARALLEL_CALLS
from ..offer import describe_tools
from .bodies import json_response, read_json

if TYPE_CHECKING:
    from ...library import Library

MAX_ARGUMENT_BYTES = 4 * 1024 * 1024


def api_routes(library: Library) -> Sequence[BaseRoute]:
    limiter = anyio.CapacityLimiter(PARALLEL_CALLS)

    async def tools(request: Request) -> Response:
        listing = await run_sync(describe_tools, library, limiter=limiter)
        return json_response({"tools": listing})

    async def call(request: Request) -> Response:
        moment = time.monotonic()
        name = request.path_params["name"]
        arguments = await read_json(request, MAX_ARGUMENT_BYTES)
        if not isinstance(arguments, dict):
            raise HTTPException(400, "the arguments are a JSON object")
        try:
            tool = await run_sync(library.tool, name, limiter=limiter)
        except KeyError:
            raise HTTPException(404, f"there is no tool {name!r}; GET /api/tools lists them") from None
        with received(moment):
            reply = await run_sync(partial(tool.handler, arguments), limiter=limiter, abandon_on_cancel=True)
        return Response(reply.text.encode(), _status(reply), media_type="application/json")

    async def healthz(request: Request) -> Response:
        return json_response({"status": "ok"})

    return [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/api/tools", tools, methods=["GET"]),
        Route("/api/tools/{name}", call, methods=["POST"]),
    ]


def _status(reply: Reply) -> int:
    error = reply.data.get("error")
    if error is None and not reply.is_error:
        return 200
    if isinstance(error, dict) and isinstance(status := error.get("status"), int):  # capsules say it themselves
        return status
    code = error.get("code") if isinstance(error, dict) else error
    return 404 if "not_found" in str(code).lower() else 400
