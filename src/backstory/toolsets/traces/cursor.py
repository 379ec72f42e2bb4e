"""Cursors: Base64 of a small JSON object that says where a page ended and which question it was a page of."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from ...archive.spans import Position
from ...model import digest
from .errors import Refused

__all__ = ["make_cursor", "read_cursor"]

_MAX_CHARS = 16_384
_Integer = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Cursor(Struct, frozen=True, forbid_unknown_fields=True):
    offset: _Integer
    value: _Integer | float | str | bool | None
    number: _Integer
    query: str


_decode = msgspec.json.Decoder(_Cursor).decode


def make_cursor(offset: int, last: Position, *question: Any) -> str:
    cursor = _Cursor(offset, last.value, last.number, _fingerprint(question))
    return base64.b64encode(msgspec.json.encode(cursor)).decode("ascii")


def read_cursor(text: str, *question: Any) -> tuple[int, Position]:
    """How many rows came before, and where they ended. Raises Refused for what is not a cursor of this question."""
    try:
        if len(text) > _MAX_CHARS:
            raise ValueError
        cursor = _decode(base64.b64decode(text, validate=True))
    except (binascii.Error, msgspec.DecodeError, ValueError):
        raise Refused(
            "INVALID_QUERY", "Invalid cursor: pass the cursor of the page before exactly as it came", field="cursor"
        ) from None
    if cursor.query != _fingerprint(question):
        raise Refused(
            "INVALID_QUERY", "Invalid cursor: it belongs to another query; only limit may change", field="cursor"
        )
    return cursor.offset, Position(cursor.value, cursor.number)


def _fingerprint(question: tuple[Any, ...]) -> str:
    return digest(*map(repr, question)).hex()
