"""Request bodies, read with a limit."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

__all__ = ["MAX_BODY_BYTES", "read_body", "read_json"]

MAX_BODY_BYTES = 64 * 1024 * 1024


async def read_body(request: Request, limit: int = MAX_BODY_BYTES) -> bytes:
    """The whole body. Too much is refused as soon as it is known to be, not after it was taken in."""
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
