"""The writer lock of a home folder, with every engine.

It is the system's: it is free again the moment its holder dies.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import ArchiveBusy

try:
    import fcntl
except ImportError:  # Windows: nobody can see whether there is a writer without becoming one
    fcntl = None  # type: ignore[assignment]

# A reader that tried the lock itself would keep a writer from taking it at that moment. So the writer holds this file,
# too, and waits for readers, who have it for microseconds.
_HELD = "writer.held"


class WriterLock:
    """Held from the start. Raises ArchiveBusy when another process holds it."""

    def __init__(self, home: Path) -> None:
        import filelock

        # A writer may be closed by another thread than that which opened it.
        self._lock = filelock.FileLock(home / "writer.lock", timeout=0, mode=0o600, thread_local=False)
        try:
            self._lock.acquire()
        except filelock.Timeout:
            raise ArchiveBusy("another Backstory process is writing the archive") from None
        self._held = os.open(home / _HELD, os.O_CREAT | os.O_RDWR, 0o600)
        if fcntl is not None:
            fcntl.flock(self._held, fcntl.LOCK_EX)

    def release(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
        self._lock.release()


def is_held(home: Path) -> bool:
    """True while a process holds the lock; False also where that cannot be seen."""
    if fcntl is None:
        return False
    try:
        file = os.open(home / _HELD, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False
