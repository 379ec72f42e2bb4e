"""Writing a session file from scratch: for forks, and to drop what newer records have superseded."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from .branches import Branch, Place
from .index import Index
from .records import chain, entry_line, head_of, leaf_line, meta_line
from .types import SessionMeta

__all__ = ["Content", "NewFile", "Transform", "changed", "copy_file", "index_slices"]

_BUFFER = 1 << 20
_SLICE = 2000
_ENTRY_HEAD = len(entry_line(b"")) - 2
Transform = Callable[[Iterable[bytes]], Iterable[bytes]]


class NewFile(Struct):
    path: Path
    size: int
    spans: list[tuple[int, int]]
    """Offset and length of each entry's JSON, in the order they were given."""
    digest: bytes
    """The `chain` of its lines."""


class Content(Struct):
    """What a new file holds beside the entries it is made from."""

    transform: Transform
    leaf: str | None
    meta: SessionMeta | None


def copy_file(
    fd: int, path: Path, places: Iterable[Place], content: Content, whole: tuple[int, bytes] | None
) -> NewFile:
    """A file made from entries of another, whose descriptor is closed. Meant for a thread.

    `whole` are the size and digest the other must have: OSError when it is not as it was written.
    """
    try:
        if whole is not None:
            check_file(fd, *whole)
        meta = None if content.meta is None else msgspec.json.encode(content.meta)
        return write_file(path, meta, content.transform(raw_entries(fd, places)), content.leaf)
    finally:
        os.close(fd)


async def index_slices(index: Index, key: int, places: Sequence[Place], branches: Iterable[Branch]) -> None:
    """Index entries under a key that no session has yet, a slice at a time."""
    for start in range(0, len(places), _SLICE):
        index.add_entries(key, places[start : start + _SLICE])
        await asyncio.sleep(0)
    index.add_branches(key, branches)


def write_file(path: Path, meta: bytes | None, entries: Iterable[bytes], leaf: str | None) -> NewFile:
    """A complete session file that survives a power failure. Meant for a thread."""
    spans: list[tuple[int, int]] = []
    digest, size = b"", 0
    with path.open("xb", buffering=_BUFFER) as file:
        path.chmod(0o600)

        def write(line: bytes) -> None:
            nonlocal digest, size
            file.write(line)
            digest, size = chain(digest, [line]), size + len(line)

        if meta is not None:
            write(meta_line(meta))
        for entry in entries:
            spans.append((size + _ENTRY_HEAD, len(entry)))
            write(entry_line(entry))
        if leaf is not None:
            write(leaf_line(leaf))
        file.flush()
        os.fsync(file.fileno())
    return NewFile(path, size, spans, digest)


def raw_entries(fd: int, places: Iterable[Place]) -> Iterator[bytes]:
    """The entries' JSON as it is in a file. OSError when what is there is not the entry that should be."""
    for place in places:
        raw = os.pread(fd, place.length, place.offset)
        try:
            right = head_of(raw).id == place.id
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            right = False
        if not right:
            raise changed()
        yield raw


def check_file(fd: int, size: int, digest: bytes) -> None:
    """Raise OSError unless a file is still what was written to it, all of it and nothing else."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        if os.fstat(fd).st_size != size or chain(b"", file) != digest:
            raise changed()


def changed() -> OSError:
    return OSError(errno.ESTALE, "another program changed its file; restart to read it again")
