"""Where the next page starts. A cursor means nothing to its holder and works after what it names is gone."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec
from msgspec import Struct

from .errors import LiveError
from .requests import Order

__all__ = ["decode_list_cursor", "decode_page_cursor", "encode_list_cursor", "encode_page_cursor"]

T = TypeVar("T")


class _ListCursor(Struct):
    o: str
    k: int
    id: str


class _PageCursor(Struct):
    e: str


def encode_list_cursor(order: Order, key: int, session_id: str) -> str:
    return base64.b64encode(msgspec.json.encode(_ListCursor(order, key, session_id))).decode()


def decode_list_cursor(text: str, order: Order) -> tuple[int, str]:
    """The sort key and session id to go on after; a cursor is good for the order it was given in."""
    cursor = _decode(text, _ListCursor)
    if cursor.o != order or not -(2**63) <= cursor.k < 2**63:
        raise LiveError("invalid_cursor", f"the cursor belongs to order {cursor.o[:20]}, not {order}")
    return cursor.k, cursor.id


def encode_page_cursor(entry_id: str) -> str:
    return base64.b64encode(msgspec.json.encode(_PageCursor(entry_id))).decode()


def decode_page_cursor(text: str) -> str:
    return _decode(text, _PageCursor).e


def _decode(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(base64.b64decode(text, validate=True), type=kind)
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        raise LiveError("invalid_cursor", "not a cursor of this function") from None
