"""The writer lock of a home folder: one process on a machine writes, with every engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .errors import ArchiveBusy

if TYPE_CHECKING:
    import filelock


def take_lock(home: Path) -> filelock.BaseFileLock:
    """The writer lock. It is the system's: it is free again the moment its holder dies."""
    import filelock

    lock = filelock.FileLock(home / "writer.lock", timeout=0, mode=0o600)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise ArchiveBusy("another Backstory process is writing the archive") from None
    return lock
