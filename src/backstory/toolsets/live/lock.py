"""One writer per folder, and who it is."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from .errors import InUse

__all__ = ["FolderLock"]


class _Owner(msgspec.Struct):
    pid: int = 0
    url: str = ""


class FolderLock:
    """Free the moment its holder dies: the lock is the system's."""

    def __init__(self, folder: Path, state: Path, url: str) -> None:
        """`url` is where others reach what is in the folder, if they do."""
        self._folder = folder
        self._owner = state / "owner"
        self._url = url
        self._lock = FileLock(state / "lock", thread_local=False)

    def acquire(self) -> None:
        """Raises InUse when another process has it."""
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise self._in_use() from None
        self._owner.write_bytes(msgspec.json.encode(_Owner(os.getpid(), self._url)))

    def release(self) -> None:
        self._lock.release()

    def _in_use(self) -> InUse:
        try:
            owner = msgspec.json.decode(self._owner.read_bytes(), type=_Owner)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            owner = _Owner()
        who = f"process {owner.pid}" if owner.pid else "another process"
        where = f", which serves it at {owner.url}" if owner.url else ""
        advice = "stop that process, or go through it with the bridge adapter"
        return InUse(f"{self._folder} is in use by {who}{where}; {advice}", owner.url)
