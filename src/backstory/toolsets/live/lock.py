"""One writer per folder, who it is, and who is next.

A process that wants a folder which another one has stands at a second lock, the queue, until it gets the first: so the
one that has it knows that somebody waits, and cannot overtake it when it wants the folder again.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from .errors import InUse

__all__ = ["FolderLock"]

_POLL_SECONDS = 0.02


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
        self._queue = FileLock(state / "queue", thread_local=False)

    def acquire(self, wait_seconds: float = 0.0) -> None:
        """Blocks for so long while another process has it, unless that one can be reached; then raises InUse."""
        until = time.monotonic() + wait_seconds
        self._poll(self._queue, until)
        try:
            self._poll(self._lock, until)
        finally:
            self._queue.release()
        self._owner.write_bytes(msgspec.json.encode(_Owner(os.getpid(), self._url)))

    def release(self) -> None:
        self._lock.release()

    def wanted(self) -> bool:
        """Whether another process waits for the folder."""
        try:
            self._queue.acquire(blocking=False)
        except Timeout:
            return True
        self._queue.release()
        return False

    def _poll(self, lock: FileLock, until: float) -> None:
        while True:
            try:
                lock.acquire(blocking=False)
                return
            except Timeout:
                in_use = self._in_use()
                if in_use.url or time.monotonic() >= until:
                    raise in_use from None
                time.sleep(_POLL_SECONDS)

    def _in_use(self) -> InUse:
        try:
            owner = msgspec.json.decode(self._owner.read_bytes(), type=_Owner)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            owner = _Owner()
        who = f"process {owner.pid}" if owner.pid else "another process"
        where = f", which serves it at {owner.url}" if owner.url else ""
        advice = "stop that process, or go through it with the bridge adapter"
        return InUse(f"{self._folder} is in use by {who}{where}; {advice}", owner.url)
