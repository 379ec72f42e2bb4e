"""Bodies of requests, read with a limit, and of responses: JSON, and errors as `{"error": {"code", "message"}}`."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ...egress import egress

MAX_BODY_BYTES = 64 * 1024 * 1024


async def read_body(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """The whole body. A body that is too large is refused as soon as that is known."""
    too_large = HTTPException(413, f"the body may have up to {limit} bytes")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise too_large
    except ClientDisconnect:
        raise HTTPException(400, "the connection ended before the body did") from None
    return bytes(body)


async def read_json(request: Request, limit: int = MAX_BODY_BYTES) -> Any:
    """The body as JSON; an empty body is an empty object."""
    body = await read_body(request, limit)
    if not body.strip():
        return {}
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise HTTPException(400, f"the body is not JSON that can be read: {error}") from None


def json_response(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(data), status, headers, media_type="application/json")


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_response({"error": {"code": code, "message": egress(message)}}, status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code = phrase.lower().replace(" ", "_").replace("-", "_")
    message = error.detail
    if message == phrase:
        message = f"{request.method} {request.url.path}: {phrase.lower()}"
    return error_response(error.status_code, code, message, error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    # The error goes on to the server, which logs it.
    return error_response(500, "internal_error", "internal error; the server's log has the details")


HANDLERS: Mapping[Any, Any] = {HTTPException: _http_error, Exception: _unexpected}
