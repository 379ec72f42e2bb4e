"""Errors as JSON: `{"error": {"code": ..., "message": ...}}`, for people and programs alike."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ...egress import egress

__all__ = ["HANDLERS", "error_response", "json_response"]


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
