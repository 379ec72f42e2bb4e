"""OpenTelemetry over HTTP: `POST /v1/traces` and `POST /v1/logs`, protobuf or JSON, gzip or plain."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import anyio
import msgspec
from anyio.to_thread import run_sync
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...archive.base import ArchiveError
from ...ingest.telemetry import Receiver, Taken
from ...sources.otel.otlp import Encoding, empty_reply, partial_reply
from ...sources.otel.records import Undecodable
from . import MAX_BODY_BYTES, read_body

if TYPE_CHECKING:
    from ...library import Library

_TYPES: dict[str, Encoding] = {"application/x-protobuf": "protobuf", "application/json": "json"}
_MEDIA = {encoding: media for media, encoding in _TYPES.items()}
# The codes of gRPC that go with an HTTP status.
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNAVAILABLE = 3, 8, 14
_CODES = {400: _INVALID_ARGUMENT, 413: _RESOURCE_EXHAUSTED, 415: _INVALID_ARGUMENT, 503: _UNAVAILABLE}
_FIRST_PIECE = 256
_RETRY_SECONDS = "5"


def otlp_routes(library: Library) -> Sequence[BaseRoute]:
    @cache
    def receiver() -> Receiver:
        return Receiver(library.archive, library.home, library.settings.redact)

    # SQLite writes one transaction at a time; more threads would only wait.
    limiter = anyio.CapacityLimiter(2)

    def endpoint(kind: Literal["spans", "logs"]) -> Any:
        def take(body: bytes, encoding: Encoding, coding: str) -> Taken:
            plain = _plain(body, coding)
            return receiver().take_spans(plain, encoding) if kind == "spans" else receiver().take_logs(plain, encoding)

        async def receive(request: Request) -> Response:
            media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            encoding = _TYPES.get(media)
            if encoding is None:
                return _refusal("json", 415, f"Content-Type must be one of {', '.join(_TYPES)}")
            try:
                body = await read_body(request)
                coding = request.headers.get("content-encoding", "").strip().lower()
                taken = await run_sync(take, body, encoding, coding, limiter=limiter)
            except HTTPException as error:
                return _refusal(encoding, error.status_code, error.detail)
            except Undecodable as error:
                return _refusal(encoding, 400, str(error))
            except ArchiveError as error:
                return _refusal(encoding, 503, str(error))
            reply = empty_reply(encoding)
            if taken.rejected:
                reply = partial_reply(encoding, kind, taken.rejected, taken.message)
            return Response(reply, media_type=_MEDIA[encoding])

        return receive

    return [
        Route("/v1/traces", endpoint("spans"), methods=["POST"]),
        Route("/v1/logs", endpoint("logs"), methods=["POST"]),
    ]


def _plain(body: bytes, coding: str) -> bytes:
    if coding in ("", "identity"):
        return body
    if coding not in ("gzip", "deflate"):
        raise HTTPException(415, "Content-Encoding must be gzip, deflate or identity")
    plain = bytearray()
    rest = memoryview(body)
    while rest:
        rest = _inflate(rest, plain, coding)
    return bytes(plain)


def _inflate(data: memoryview, plain: bytearray, coding: str) -> memoryview:
    """Decompress one member to `plain`. Returns the rest of the data.

    A member is decompressed in pieces, the first ones small: zlib copies the rest of the last piece, and a body may
    have very many members.
    """
    inflate = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # 32: by its own header, gzip or zlib
    size, place = _FIRST_PIECE, 0
    while not inflate.eof:
        if place >= len(data):
            raise Undecodable(f"the body is not complete {coding}")
        piece = data[place : place + size]
        try:
            plain += inflate.decompress(piece, MAX_BODY_BYTES - len(plain) + 1)
        except zlib.error as error:
            raise Undecodable(f"the body is not {coding}: {error}") from None
        if len(plain) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body may have up to {MAX_BODY_BYTES} bytes when it is decompressed")
        place += len(piece)
        size *= 2
    return data[place - len(inflate.unused_data) :]


def _refusal(encoding: Encoding, status: int, message: str) -> Response:
    """The error in the form of OTLP: a google.rpc.Status in the request's type."""
    code = _CODES.get(status, _INVALID_ARGUMENT)
    headers = {"Retry-After": _RETRY_SECONDS} if status == 503 else None
    if encoding == "json":
        body = msgspec.json.encode({"code": code, "message": message})
    else:
        text = message.encode("utf-8", "replace")
        # Field 1 is the code, field 2 the message.
        body = bytes((0x08, code, 0x12)) + _varint(len(text)) + text
    return Response(body, status, headers, media_type=_MEDIA[encoding])


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*data, number))
