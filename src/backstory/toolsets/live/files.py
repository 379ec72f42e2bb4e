"""The session files of one folder: appending, reading and replacing them, with a bounded number of them open."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...livefiles import file_name
from .journal import sync_folder, write_whole

__all__ = ["Files", "stamp_of"]

_MAX_OPEN = 128


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, int] = {}

    def path(self, session_id: str) -> Path:
        return self.folder / file_name(session_id)

    def append(self, session_id: str, data: bytes, at: int) -> None:
        """Write at the end, which is at `at`; a file that is to be new must not exist. All or nothing."""
        if at == 0 and session_id not in self._open:
            self._keep(
                session_id, os.open(self.path(session_id), os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND, 0o600)
            )
            try:
                write_whole(self._open[session_id], data, 0)
            except OSError:
                self.remove(session_id)
                raise
        else:
            fd = self._fd(session_id)
            if os.fstat(fd).st_size != at:
                raise OSError(errno.ESTALE, "another program changed its file; restart to read it again")
            write_whole(fd, data, at)

    def read(self, session_id: str, offset: int, length: int) -> bytes:
        data = os.pread(self._fd(session_id), length, offset)
        if len(data) != length:
            raise OSError(errno.ESTALE, "another program changed its file; restart to read it again")
        return data

    def duplicate(self, session_id: str) -> int:
        """A descriptor of its own, for another thread."""
        return os.dup(self._fd(session_id))

    def stat(self, session_id: str) -> os.stat_result | None:
        try:
            return os.fstat(self._open[session_id]) if session_id in self._open else self.path(session_id).stat()
        except FileNotFoundError:
            return None

    def stamp(self, session_id: str) -> str | None:
        stat = self.stat(session_id)
        return stamp_of(stat) if stat else None

    def replace(self, session_id: str, new: Path) -> None:
        self._close(session_id)
        new.replace(self.path(session_id))
        sync_folder(self.folder)

    def remove(self, session_id: str) -> None:
        self._close(session_id)
        self.path(session_id).unlink(missing_ok=True)

    def sync(self, session_ids: Iterable[str]) -> None:
        """Make files survive a power failure. For another thread: uses descriptors of its own."""
        for session_id in session_ids:
            with suppress(FileNotFoundError):
                fd = os.open(self.path(session_id), os.O_RDONLY)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
        sync_folder(self.folder)

    def close(self) -> None:
        for session_id in list(self._open):
            self._close(session_id)

    def _fd(self, session_id: str) -> int:
        fd = self._open.pop(session_id, None)
        if fd is None:
            fd = os.open(self.path(session_id), os.O_RDWR | os.O_APPEND)
        return self._keep(session_id, fd)

    def _keep(self, session_id: str, fd: int) -> int:
        if len(self._open) >= _MAX_OPEN:
            self._close(next(iter(self._open)))
        self._open[session_id] = fd
        return fd

    def _close(self, session_id: str) -> None:
        fd = self._open.pop(session_id, None)
        if fd is not None:
            os.close(fd)


def stamp_of(stat: os.stat_result) -> str:
    """What changes when a file is written, by whomever: its times, too, cannot all be set back."""
    return f"{stat.st_size} {stat.st_ino} {stat.st_mtime_ns} {stat.st_ctime_ns}"
