"""The folder of a store: its session files, its lock, and the record of its damaged files.

A process that waits for a folder which another one holds takes a second lock, the queue, until it gets the first. So
the holder knows that a process waits, and cannot overtake it when it needs the folder again.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct

from ...config import LIVE_STATE, ConfigError, live_folder
from ...files import replacing
from ...model import file_name
from .records import Place, chain, entry_line, head_of, leaf_line, meta_line
from .types import InUse, LiveError, SessionMeta, Unwritable

_MAX_OPEN = 128
_POLL_SECONDS = 0.02
_BUFFER = 1 << 20
_ENTRY_HEAD = len(entry_line(b"")) - 2
Transform = Callable[[Iterable[bytes]], Iterable[bytes]]
_PROBLEMS = "problems.json"
_UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, int] = {}

    def path(self, session_id: str) -> Path:
        return self.folder / file_name(session_id)

    def append(self, session_id: str, data: bytes, at: int) -> None:
        """Append all of the data or none. The file ends at `at`; with `at` 0 it must not exist."""
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
                raise changed()
            write_whole(fd, data, at)

    def read(self, session_id: str, offset: int, length: int) -> bytes:
        data = os.pread(self._fd(session_id), length, offset)
        if len(data) != length:
            raise changed()
        return data

    def duplicate(self, session_id: str) -> int:
        """A separate descriptor, for another thread."""
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
        """Make files survive a power failure. Uses separate descriptors, for another thread."""
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
    """Size, inode and times of a file. They change with every write: the change time cannot be set back."""
    return f"{stat.st_size} {stat.st_ino} {stat.st_mtime_ns} {stat.st_ctime_ns}"


class _Owner(msgspec.Struct):
    pid: int = 0
    url: str = ""


class FolderLock:
    """A lock of the operating system, which frees it when its holder dies."""

    def __init__(self, folder: Path, state: Path, url: str) -> None:
        """`url` is the address at which others reach the holder, or empty."""
        self._folder = folder
        self._owner = state / "owner"
        self._url = url
        self._lock = FileLock(state / "lock", thread_local=False)
        self._queue = FileLock(state / "queue", thread_local=False)

    def acquire(self, wait_seconds: float = 0.0) -> None:
        """Wait up to `wait_seconds` for another holder. Raises InUse, at once when the holder has a URL."""
        until = time.monotonic() + wait_seconds
        self._poll(self._queue, until)
        try:
            self._poll(self._lock, until)
        finally:
            self._queue.release()
        self._owner.write_bytes(msgspec.json.encode(_Owner(os.getpid(), self._url)))

    def release(self) -> None:
        self._lock.release()

    def contended(self) -> bool:
        """True if another process waits for the folder."""
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
        holder = f"process {owner.pid}" if owner.pid else "another process"
        where = f", which serves it at {owner.url}" if owner.url else ""
        advice = "stop that process, or go through it with the bridge adapter"
        return InUse(f"{self._folder} is in use by {holder}{where}; {advice}", owner.url)


class NewFile(Struct):
    path: Path
    size: int
    spans: list[tuple[int, int]]
    """Offset and length of each entry's JSON, in the order they were given."""
    digest: bytes
    """The `chain` of its lines."""


class Content(Struct):
    """The rest of a new file, beside the entries it is made from."""

    transform: Transform
    leaf: str | None
    meta: SessionMeta | None


def copy_file(
    fd: int, path: Path, places: Iterable[Place], content: Content, whole: tuple[int, bytes] | None
) -> NewFile:
    """Make a file from entries of another, whose descriptor is closed. For a thread.

    `whole` is the size and digest that the other must have; otherwise OSError is raised.
    """
    try:
        if whole is not None:
            check_file(fd, *whole)
        meta = None if content.meta is None else msgspec.json.encode(content.meta)
        return write_file(path, meta, content.transform(raw_entries(fd, places)), content.leaf)
    finally:
        os.close(fd)


def write_file(path: Path, meta: bytes | None, entries: Iterable[bytes], leaf: str | None) -> NewFile:
    """Write a complete session file that survives a power failure. For a thread."""
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
    """The JSON of entries in a file. OSError when another entry, or none, is at a place."""
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
    """Raise OSError unless a file has this size and digest."""
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        if os.fstat(fd).st_size != size or chain(b"", file) != digest:
            raise changed()


def changed() -> OSError:
    return OSError(errno.ESTALE, "another program changed its file; restart to read it again")


def write_problems(folder: Path, problems: Mapping[str, str]) -> None:
    """Record the problems of a folder's files, by name."""
    # On a full disk the folder is opened all the same.
    with suppress(OSError), replacing(folder / LIVE_STATE / _PROBLEMS) as file:
        file.write(msgspec.json.encode(problems))


def read_problems(folder: Path) -> dict[str, str]:
    """The problems that the writer of a folder found when it opened its files, by name."""
    try:
        return msgspec.json.decode((folder / LIVE_STATE / _PROBLEMS).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def configured_problems(table: Mapping[str, Any], home: Path) -> dict[Path, str]:
    """The problems of the files of a home, whose `[live]` table is given, by path."""
    try:
        folder = live_folder(table, home)
    except ConfigError:
        return {}
    return {folder / name: problem for name, problem in read_problems(folder).items()} if folder else {}


class Torn(OSError):
    """Part of a write is on the disk and cannot be cut off."""


def write_whole(fd: int, data: bytes, size: int) -> None:
    """Append all of the data or none: a write that fails half way (a full disk) is cut off again."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(fd, view) :]
    except OSError as error:
        cut_off(fd, size)
        raise error


def cut_off(fd: int, size: int) -> None:
    try:
        os.ftruncate(fd, size)
    except OSError as error:
        raise Torn(error.errno, f"a failed write could not be taken back: {error.strerror}") from None


def sync_folder(folder: Path) -> None:
    """Make new and removed names in a folder survive a power failure."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def disk_errors(action: str) -> Iterator[None]:
    """Turn errors of the disk and of SQLite into LiveError."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        message = f"cannot {action}: {getattr(error, 'strerror', None) or error}"
        if getattr(error, "errno", None) in _UNWRITABLE:
            raise Unwritable(message) from None
        raise LiveError("storage", message) from None
