"""Writing a session file from scratch: for forks, and to drop what newer records have superseded."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from .branches import Place
from .records import entry_line, leaf_line, meta_line

__all__ = ["NewFile", "raw_entries", "write_file"]

_BUFFER = 1 << 20
_ENTRY_HEAD = len(entry_line(b"")) - 2


class NewFile(Struct):
    path: Path
    size: int
    spans: list[tuple[int, int]]
    """Offset and length of each entry's JSON, in the order they were given."""


def write_file(path: Path, meta: bytes | None, entries: Iterable[bytes], leaf: str | None) -> NewFile:
    """A complete session file that survives a power failure. Meant for a thread."""
    spans: list[tuple[int, int]] = []
    with path.open("xb", buffering=_BUFFER) as file:
        path.chmod(0o600)
        if meta is not None:
            file.write(meta_line(meta))
        for entry in entries:
            start = file.tell()
            spans.append((start + _ENTRY_HEAD, len(entry)))
            file.write(entry_line(entry))
        if leaf is not None:
            file.write(leaf_line(leaf))
        size = file.tell()
        file.flush()
        os.fsync(file.fileno())
    return NewFile(path, size, spans)


def raw_entries(fd: int, places: Iterable[Place]) -> Iterable[bytes]:
    """The entries' JSON as it is in a file."""
    return (os.pread(fd, place.length, place.offset) for place in places)
