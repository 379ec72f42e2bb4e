"""Cursors: the end of a page, tied to the request it was a page of. Opaque to callers."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from ...model import digest

Position = tuple[int, str]

_Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
_MAX_CURSOR_CHARS = 8192


class BadCursor(ValueError):
    """Not a cursor, or one of another request; the message says which."""


class _Cursor(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    question: bytes
    position: tuple[_Integer, str]


_decode = msgspec.msgpack.Decoder(_Cursor).decode


def make_cursor(position: Position, *question: object) -> str:
    encoded = msgspec.msgpack.encode(_Cursor(_fingerprint(question), position))
    return base64.urlsafe_b64encode(encoded).rstrip(b"=").decode("ascii")


def read_cursor(text: str, *question: object) -> Position:
    try:
        if len(text) > _MAX_CURSOR_CHARS:
            raise ValueError
        encoded = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = _decode(encoded)
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise BadCursor("cursor is not valid; pass next_cursor exactly as it was returned") from None
    if cursor.question != _fingerprint(question):
        raise BadCursor("cursor belongs to another request; only the limit may change between pages")
    return cursor.position


def _fingerprint(question: tuple[object, ...]) -> bytes:
    return digest(*map(repr, question))
