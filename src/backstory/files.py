"""Files that are replaced as a whole: a reader sees the old content or the new one, also after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PART_PATTERN = ".backstory-*.part"
"""The names of files that are being written. One that is old belongs to a process that was killed."""


@contextmanager
def replacing(path: Path, *, mode: int = 0o600, durable: bool = False) -> Iterator[BinaryIO]:
    """A file to write. It takes the place of `path` once it is complete; on an error it is removed. `durable` makes
    the new content survive a power cut.

    Its name is its own, so that two processes may replace the same file at once: the later one wins.
    """
    part = path.with_name(PART_PATTERN.replace("*", os.urandom(6).hex()))
    try:
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        error.filename = os.fspath(path)  # not that of the part
        raise
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(descriptor)
        part.chmod(mode)
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    if durable:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write a new name to the disk. Where folders cannot be opened, as on Windows, that is left to the system."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
