"""The journal: the store-wide log of changes.

It makes a mutation durable with one sync, numbers every event, and lets subscribers read events that they missed. A
change is written here first, then to its session's file; after a crash, changes that did not reach their file are
written to it from here (see `recovery`). Old segments are dropped when their files are synced and the log is too long.
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from mmap import ACCESS_READ, mmap
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from ...config import make_private_folder
from .files import cut_off, sync_folder, write_whole
from .records import write_lines

Cause = Literal[
    "created", "added", "updated", "status", "meta", "deleted", "stored", "published", "rewritten", "compacted"
]
SEGMENT_BYTES = 8 << 20
_RESERVE_BYTES = 128 << 10
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_encode = msgspec.json.encode
_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Change(Struct, omit_defaults=True, kw_only=True):
    """One mutation of one session."""

    head: int = field(default_factory=int)
    """The number of its last event, or of the last event before it when it has none. It is the first field, so that a
    search through the log reads the beginnings of lines only."""
    events: int = 0
    cause: Cause
    session_id: str
    time: int
    trigger_type: str | None = None
    """The type of the events in `envelopes`, which all are of this session."""
    at: int | UnsetType = UNSET
    """The offset of the change in the session's file; absent when the whole file was replaced or removed."""
    file: str | None = None
    """A complete file that takes the place of the session's."""
    entries: list[Raw] = []
    leaf: str | UnsetType | None = UNSET
    meta: Raw | UnsetType = UNSET
    metadata: dict[str, Any] | None = None
    """Of a session that is deleted, for its subscribers. Set after the change is logged: the log does not keep it."""
    origin: dict[str, Any] | None = None
    previous_status: str | None = None
    envelopes: list[Any] = []
    """Events published by another instance, which stored their change itself."""
    blank: bool = False
    """The session was deleted later, and the content of the change is gone from the log."""

    def lines(self) -> tuple[bytes, list[int]]:
        """The lines of the change in the session's file, and the offsets in them of the entries' JSON."""
        meta = None if self.meta is UNSET else bytes(self.meta)
        return write_lines([bytes(entry) for entry in self.entries], self.leaf, meta)

    def blanked(self) -> Change:
        """The change as the log keeps it once its session is deleted: numbers, type and session."""
        return Change(
            head=self.head,
            events=self.events,
            cause=self.cause,
            session_id=self.session_id,
            time=self.time,
            trigger_type=self.trigger_type,
            blank=self.cause != "deleted",
        )


class Position(Struct, frozen=True):
    """A position between two changes: a segment, named by the last event before it, and an offset."""

    segment: int
    offset: int


class _Header(Struct):
    store: str
    head: int


_decode_change = msgspec.json.Decoder(Change).decode
_decode_header = msgspec.json.Decoder(_Header).decode
_CHANGE = re.compile(
    rb'\{"head":(?P<head>\d+),(?:"events":\d+,)?"cause":"(?P<cause>\w+)","session_id":(?P<session_id>"(?:[^"\\]|\\.)*"),'
    rb'"time":\d+(?:,"trigger_type":"(?P<type>[^"\\]*)")?'
)
"""The beginning of a line: the fields of a `Change` that stay when its session is deleted."""
_Overwrite = tuple[Path, int, bytes, int]
"""A file, an offset in it, what to write there, and how many spaces after it."""


class Journal:
    """Segments are named by the number of the last event before them. One thread writes and reads."""

    def __init__(self, folder: Path, first: int = 0) -> None:
        """`first` is the number before the first event of a new log."""
        self._folder = make_private_folder(folder)
        self._reserve = folder.with_name("reserve")
        self._segments = sorted(int(path.stem) for path in folder.glob("*.jsonl") if path.stem.isdecimal())
        self.head = first
        self.store = uuid.uuid4().hex
        """The id of this sequence of events. Another store, or the same one after it lost its log, has another."""
        self._fd, self._size = -1, 0  # of the last segment
        self._undo: tuple[int, int] = (0, 0)
        while self._segments and not self._resume(self._segments[-1]):
            self._path(self._segments.pop()).unlink()
        if not self._segments:
            self._start_segment()

    @property
    def position(self) -> Position:
        return Position(self._segments[-1], self._size)

    @property
    def oldest(self) -> int:
        """Events with higher numbers can be read."""
        return self._segments[0]

    def append(self, change: Change) -> None:
        """Number the change and write it, whole or not at all. OSError: nothing happened."""
        change.head = self.head + change.events
        line = _encode(change) + b"\n"
        write_whole(self._fd, line, self._size)
        self._undo = (self._size, self.head)
        self._size += len(line)
        self.head = change.head

    def append_at_last(self, change: Change) -> None:
        """`append` for a change that frees space: on a full disk it uses the reserve."""
        try:
            self.append(change)
        except OSError as error:
            if error.errno not in _NO_ROOM or not self._reserve.exists():
                raise
            self._reserve.unlink()
            self.append(change)

    def keep_reserve(self) -> None:
        """Keep a reserve of disk space for `append_at_last`, if there is plenty."""
        if self._reserve.exists():
            return
        with suppress(OSError):
            disk = os.statvfs(self._folder)
            if disk.f_bavail * disk.f_frsize > 8 * _RESERVE_BYTES:
                self._reserve.touch(0o600)
                self._reserve.write_bytes(os.urandom(_RESERVE_BYTES))

    def take_back(self) -> None:
        """Undo the last append, whose session file could not be written."""
        self._size, self.head = self._undo
        cut_off(self._fd, self._size)

    def sync(self) -> None:
        """Make everything appended so far survive a power failure. May run in another thread."""
        _sync_data(self._fd)

    def rotate(self) -> None:
        """Continue in a new segment when the current one is full. OSError: the current one could not be synced."""
        if self._size < SEGMENT_BYTES or self.head == self._segments[-1]:
            return
        old = self._fd
        os.fsync(old)
        with suppress(OSError):  # no space for another: this one keeps growing
            self._start_segment()
            os.close(old)

    def trim(self, keep_bytes: int, done: Position) -> None:
        """Drop the oldest segments beyond the size to keep, but none that recovery needs."""
        sizes = [self._path(segment).stat().st_size for segment in self._segments]
        while len(self._segments) > 1 and sum(sizes) > keep_bytes and self._segments[1] <= done.segment:
            self._path(self._segments.pop(0)).unlink()
            sizes.pop(0)

    def blank(self, deletions: Mapping[str, int]) -> None:
        """Overwrite the content of all changes of sessions up to their deletions, given by their numbers.

        Numbers, types and offsets stay, so that subscribers can count and resume. May run in another thread. A line
        that an earlier call overwrote in part is overwritten again.
        """
        before: dict[bytes, list[_Overwrite]] = {_encode(session_id): [] for session_id in deletions}
        numbers = {_encode(session_id): number for session_id, number in deletions.items()}
        gone: list[_Overwrite] = []
        for path, offset, line in self._complete_lines(before):
            found = _CHANGE.match(_sound_part(line))
            if found is None or found["session_id"] not in before:
                continue
            if int(found["head"]) > numbers[found["session_id"]]:
                continue
            blank = _blank(found)
            room = len(line) - 1 - len(blank)
            if room >= 0 and line.rstrip() != blank:
                before[found["session_id"]].append((path, offset, blank, room))
            if found["cause"] == b"deleted" or found["type"] == b"session::deleted":
                gone += before[found["session_id"]]
                before[found["session_id"]] = []
        for path, lines in groupby(sorted(gone), key=itemgetter(0)):
            _overwrite(path, list(lines))

    def _complete_lines(self, ids: Collection[bytes]) -> Iterator[tuple[Path, int, bytes]]:
        """The complete lines of the segments that mention one of the ids, with their files and offsets."""
        for path in [self._path(segment) for segment in self._segments]:
            offset = 0
            with suppress(FileNotFoundError), path.open("rb") as file:
                with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
                    if all(data.find(session_id) < 0 for session_id in ids):
                        continue
                for line in file:
                    if line.endswith(b"\n"):
                        yield path, offset, line
                    offset += len(line)

    def changes(self, start: Position | None) -> Iterator[Change]:
        """All changes from a position on; all that are kept without one."""
        for segment in self._segments:
            if start is None or segment >= start.segment:
                offset = start.offset if start and segment == start.segment else 0
                yield from self._read(segment, offset)

    def after(self, number: int) -> Iterator[Change]:
        """The changes with events later than a number, oldest first."""
        first = max((segment for segment in self._segments if segment <= number), default=self._segments[0])
        for segment in self._segments:
            if segment >= first:
                offset = self._seek(segment, number) if segment == first else 0
                yield from (change for change in self._read(segment, offset) if change.head > number and change.events)

    def close(self) -> None:
        os.fsync(self._fd)
        os.close(self._fd)

    def _path(self, segment: int) -> Path:
        return self._folder / f"{segment:016d}.jsonl"

    def _start_segment(self) -> None:
        path = self._path(self.head)
        header = _encode(_Header(self.store, self.head)) + b"\n"
        fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_TRUNC, 0o600)
        try:
            write_whole(fd, header, 0)
            os.fsync(fd)
            sync_folder(self._folder)
        except OSError:
            os.close(fd)
            path.unlink()
            raise
        self._fd, self._size = fd, len(header)
        self._segments.append(self.head)

    def _resume(self, segment: int) -> bool:
        """Open the last segment for appending and cut off an unfinished line; False when nothing of it is left."""
        size = 0
        with self._path(segment).open("rb") as file:
            line = file.readline()
            header, size = _read_header(line), len(line)
            head = segment if header is None else header.head
            end, good = size, header is not None
            for line in file:
                end += len(line)
                with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    # A damaged line does not invalidate the lines after it.
                    found = _read_change(line).head
                    if line.endswith(b"\n"):
                        size, head, good = end, found, True
            file.seek(size)
            rest = file.read()
        if not good:
            return False
        if header is not None:
            self.store = header.store
        if b"\0" in rest or b"\n" in rest:
            # Damaged, not cut short: its events were published, and their numbers must not be used again.
            self.store, head = uuid.uuid4().hex, head + len(rest)
        self.head, self._size = head, size
        self._fd = os.open(self._path(segment), os.O_RDWR | os.O_APPEND)
        os.ftruncate(self._fd, size)
        return True

    def _read(self, segment: int, offset: int) -> Iterator[Change]:
        limit = self._size if segment == self._segments[-1] else None
        with self._path(segment).open("rb") as file:
            file.seek(offset)
            for line in file:
                offset += len(line)
                if limit is not None and offset > limit:
                    return
                with suppress(msgspec.MsgspecError, UnicodeDecodeError):  # the header, or a damaged line
                    yield _read_change(line)

    def _seek(self, segment: int, number: int) -> int:
        """An offset shortly before the first change later than a number, by bisection over the bytes."""
        low, high = 0, self._path(segment).stat().st_size
        with self._path(segment).open("rb") as file:
            while high - low > 1 << 16:
                middle = (low + high) // 2
                file.seek(middle)
                file.readline()
                start = file.tell()
                head = _head_of(file.read(32))
                if start >= high or head is None or head > number:
                    high = middle
                else:
                    low = start
        return low


def _overwrite(path: Path, lines: Iterable[_Overwrite]) -> None:
    """Blank the rests of the lines before their beginnings, by which they are found again after a crash."""
    with suppress(FileNotFoundError), path.open("r+b") as file:
        for _, offset, blank, room in lines:
            file.seek(offset + len(blank))
            file.write(b" " * room)
        file.flush()
        _sync_data(file.fileno())
        for _, offset, blank, _ in lines:
            file.seek(offset)
            file.write(blank)
        file.flush()
        _sync_data(file.fileno())


def _read_header(line: bytes) -> _Header | None:
    try:
        return _decode_header(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _read_change(line: bytes) -> Change:
    """The change on a line, which may be one that is just being blanked."""
    sound = _sound_part(line)
    try:
        return _decode_change(sound.decode())  # as text, so that what stays raw is checked, too
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = _CHANGE.match(sound) if line.endswith(b" \n") else None
        if found is None:
            raise
        return _decode_change(_blank(found))


def _blank(found: re.Match[bytes]) -> bytes:
    """A line without its content, from its beginning."""
    return found[0] + (b"}" if found["cause"] == b"deleted" else b',"blank":true}')


def _sound_part(line: bytes) -> bytes:
    """A line without the zeros of an unwritten block before it: JSON has none."""
    return line.rpartition(b"\0")[2]


def _head_of(beginning: bytes) -> int | None:
    name, _, rest = beginning.partition(b":")
    digits = rest.partition(b",")[0]
    return int(digits) if name == b'{"head"' and digits.isdigit() else None


def now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
