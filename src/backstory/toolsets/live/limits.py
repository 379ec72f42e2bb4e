"""How much one message of the wire, one entry and one page may hold, in bytes of JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import msgspec

from .errors import LiveError

__all__ = ["MAX_FRAME_BYTES", "PAGE_BYTES", "check_sizes", "page_of", "size_of"]

MAX_FRAME_BYTES = 64 << 20
MAX_ENTRY_BYTES = 48 << 20
MAX_META_BYTES = 8 << 20
"""An event holds an entry and the metadata of its session, and has to fit a message."""
PAGE_BYTES = 16 << 20

T = TypeVar("T")


def check_sizes(entries: Iterable[bytes], meta: bytes) -> None:
    """Refuse what could be stored and then not be told to anyone."""
    if max(map(len, entries), default=0) > MAX_ENTRY_BYTES:
        raise LiveError("invalid_request", f"an entry may have up to {MAX_ENTRY_BYTES} bytes")
    if len(meta) > MAX_META_BYTES:
        raise LiveError("invalid_request", f"title, description and metadata may have up to {MAX_META_BYTES} bytes")


def page_of(items: Iterable[tuple[T, int]]) -> Iterator[T]:
    """Items, each with its size, up to where they would be too long for one page; the first in any case."""
    total = 0
    for number, (item, size) in enumerate(items):
        total += size
        if number and total > PAGE_BYTES:
            return
        yield item


def size_of(value: object) -> int:
    return len(msgspec.json.encode(value))
