"""Recovery when a store is opened: folder, journal and index are made to agree, after a crash or changes by others.

A file is unchanged when it has the size and times that the index recorded, or the same digest of its lines. It then
gets the changes that only the journal holds, and lines that were added to it are read. Any other file is read from its
beginning, repaired from the journal, and reported.

The clock of a file system is coarse: times that were young when the store was closed do not show a change just after.
The digest decides about these files.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from msgspec import UNSET, Struct

from ...config import LIVE_STATE, make_private_folder
from ...model import FILE_SUFFIX, session_of_file
from .files import Files, FolderLock, disk_errors, stamp_of, write_problems
from .index import Index, Session
from .journal import Change, Journal, now
from .records import Scan, chain, scan
from .repair import Additions, Held, additions, finish, held_by, read_file
from .types import FsSettings

_log = logging.getLogger("backstory.live")
_COMMIT_EVERY = 10_000
_CLOCK_MS = 2_000
"""The coarsest clock of a file system."""


class Folder(Struct):
    """A folder that this process has opened: it holds the lock."""

    path: Path
    lock: FolderLock
    files: Files
    journal: Journal
    index: Index
    problems: dict[str, str]
    """Files that could not be used, or not all of them, by name."""

    @property
    def scratch(self) -> Path:
        """Holds complete files that are about to take the place of session files."""
        return _scratch(self.path)


def open_folder(path: Path, settings: FsSettings, url: str = "", wait_seconds: float = 0.0) -> Folder:
    """Lock a folder, recover it, and open its journal and index. Blocks; raises LiveError when it cannot be used.

    `url` is the address at which other processes reach the store. Waits that long for a process that has the folder.
    """
    state = path / LIVE_STATE
    lock = FolderLock(path, state, url)
    with disk_errors(f"use {path}"):
        for folder in (path, state, _scratch(path)):
            make_private_folder(folder)
        lock.acquire(wait_seconds)
    with ExitStack() as undo, disk_errors(f"open {path}"):
        undo.callback(lock.release)
        files = Files(path)
        undo.callback(files.close)
        # Sessions without a journal had events once: their numbers must not be used again.
        first = now() if next(path.glob(f"*{FILE_SUFFIX}"), None) else 0
        journal = Journal(state / "journal", first)
        undo.callback(journal.close)
        index = Index(state / "index.db")
        undo.callback(index.database.close)
        journal.keep_reserve()
        recovery = Recovery(journal, index, files, _scratch(path))
        written = recovery.run()
        if settings.fsync != "off":
            files.sync(written)
        index.set_checkpoint(journal.position)
        index.commit()
        undo.pop_all()
    write_problems(path, recovery.problems)
    for name, problem in recovery.problems.items():
        _log.warning("%s: %s", path / name, problem)
    return Folder(path, lock, files, journal, index, recovery.problems)


def _scratch(path: Path) -> Path:
    return path / LIVE_STATE / "new"


class Recovery:
    def __init__(self, journal: Journal, index: Index, files: Files, scratch: Path) -> None:
        self.problems: dict[str, str] = {}
        """Files that could not be used, or not all of them, by name."""
        self._journal = journal
        self._index = index
        self._files = files
        self._scratch = scratch
        self._trusted = index.state("closed") == "synced" or index.state("boot") == boot_id() != ""
        """True if a file with recorded size and times is unchanged. After a power failure it may not be."""
        self._settled = int(index.state("checkpoint_time") or 0) - _CLOCK_MS
        """A file whose times are older has other times if it was changed after the checkpoint."""
        self._pending: dict[str, list[Change]] = {}
        """Changes since the last checkpoint that were appended to a file, by session."""
        self._damaged: list[str] = []

    def run(self) -> set[str]:
        """Make files and index agree. Returns the sessions whose files may not be synced."""
        self._redo_whole_files()
        self._index.set_state("closed", None)
        self._index.set_state("boot", boot_id())
        self._look_at_files()
        self._restore_damaged()
        self._index.commit()
        return set(self._pending)

    def _redo_whole_files(self) -> None:
        """Repeat the latest replacement or removal of each file since the checkpoint, and collect the later changes."""
        checkpoint = self._index.checkpoint()
        latest: dict[str, Change] = {}
        for change in self._journal.changes(checkpoint):
            if change.cause == "published" or change.blank:
                continue
            if change.at is not UNSET:
                self._pending.setdefault(change.session_id, []).append(change)
            else:
                self._pending.pop(change.session_id, None)
                latest[change.session_id] = change
        for session_id, change in latest.items():
            if change.cause == "deleted":
                self._index.note_deleted(session_id, change.head)
                # Without a checkpoint the deletion may be old, and the file may have been put there since.
                if session_id in self._pending:
                    self._remove_if_older(session_id)
                elif checkpoint is not None:
                    self._files.remove(session_id)
            elif change.file is not None and (self._scratch / change.file).exists():
                self._files.replace(session_id, self._scratch / change.file)
        for leftover in self._scratch.iterdir():
            leftover.unlink()

    def _remove_if_older(self, session_id: str) -> None:
        """Remove the file of a session that was deleted and created again, unless it is the new one."""
        _, data = _appended(self._pending[session_id])
        if stat := self._files.stat(session_id):
            there = self._files.read(session_id, 0, min(stat.st_size, len(data)))
            if not data.startswith(there):
                self._files.remove(session_id)

    # --- every file

    def _look_at_files(self) -> None:
        known = {session_id: (stamp, bad_lines) for session_id, stamp, bad_lines in self._index.files()}
        missing = dict(self._pending)
        with os.scandir(self._files.folder) as found:
            for item in found:
                if not item.name.endswith(FILE_SUFFIX) or not item.is_file():
                    continue
                session_id = session_of_file(item.name)
                if session_id is None:
                    printable = os.fsencode(item.name).decode("utf-8", "replace")
                    self.problems[printable] = "is not the name of a session's file"
                    continue
                stamp, bad_lines = known.pop(session_id, (None, 0))
                missing.pop(session_id, None)
                if bad_lines:
                    self.problems[item.name] = skipped(bad_lines)
                if session_id in self._pending or not self._is_as_recorded(stamp, item.stat()):
                    self._look_at(session_id)
        for session_id in missing:
            if self._complete(session_id):
                known.pop(session_id, None)
                self._look_at(session_id)
        for session_id in known:
            if session := self._index.session(session_id):
                self._index.remove(session)

    def _is_as_recorded(self, stamp: str | None, stat: os.stat_result) -> bool:
        """True if the size and times of a file show that it has not changed."""
        settled = max(stat.st_mtime_ns, stat.st_ctime_ns) // 1_000_000 < self._settled
        return self._trusted and settled and stamp == stamp_of(stat)

    def _look_at(self, session_id: str) -> None:
        """Index the new lines of a file. A damaged one is repaired later, from the journal."""
        session = self._index.session(session_id)
        try:
            sound = self._is_sound(session_id, session) and self._complete(session_id)
            if not sound or not read_file(self._index, self._files, session_id, session, only_sound=True):
                self._damaged.append(session_id)
        except OSError as error:
            self._unusable(session_id, error)
        self._check_meta(session_id)
        if self._index.database.uncommitted > _COMMIT_EVERY:
            self._index.commit()

    def _is_sound(self, session_id: str, session: Session | None) -> bool:
        """True if the file agrees with the index and the journal, as far as it goes."""
        with self._files.path(session_id).open("rb") as file:
            if session and _digest_up_to(file, session.size) != session.digest:
                return False
            if changes := self._pending.get(session_id):
                at, data = _appended(changes)
                size = file.seek(0, os.SEEK_END)
                file.seek(at)
                return size >= at and data.startswith(file.read(len(data)))
        return True

    def _complete(self, session_id: str) -> bool:
        """Append the changes that only the journal has to a sound file; False when there is no such file."""
        changes = self._pending.get(session_id)
        if changes is None:
            return True
        at, data = _appended(changes)
        stat = self._files.stat(session_id)
        size = stat.st_size if stat else 0
        name = self._files.path(session_id).name
        if size < at:
            self.problems[name] = "is gone; its latest changes are in the journal only"
            return False
        try:
            if stat is not None and size == 0:
                self._files.remove(session_id)
            if rest := data[size - at :]:
                self._files.append(session_id, rest, size)
        except OSError as error:
            self.problems[name] = f"could not be completed after a crash: {error.strerror or error}"
            return stat is not None and size > 0
        return True

    def _check_meta(self, session_id: str) -> None:
        session = self._index.session(session_id)
        if session is not None and session.meta is None:
            name = self._files.path(session_id).name
            self.problems.setdefault(name, "has entries but no session to show them in")

    def _unusable(self, session_id: str, error: OSError) -> None:
        self.problems[self._files.path(session_id).name] = f"cannot be read: {error.strerror or error}"
        if session := self._index.session(session_id):
            self._index.remove(session)

    # --- damaged files

    def _restore_damaged(self) -> None:
        if not self._damaged:
            return
        held = held_by(self._journal, self._damaged)
        for session_id in self._damaged:
            try:
                self._restore(session_id, held[session_id])
            except OSError as error:
                self._unusable(session_id, error)

    def _restore(self, session_id: str, held: Held) -> None:
        session = self._index.session(session_id)
        path = self._files.path(session_id)
        before = {place.id for place in self._index.all_places(session)} if session else set()
        with path.open("r+b") as file:
            found = scan(file, acknowledged=session.size if session else 0)
            added = additions(found, held, file, session.meta if session else None)
            if not (added.data or found.entries or found.meta):
                raise OSError("it holds no session")
            if added.data:
                finish(file, found)
                file.write(added.data)
                file.flush()
                os.fsync(file.fileno())
        read_file(self._index, self._files, session_id, session, from_start=True)
        gone = len(before - found.entries.keys() - held.entries.keys())
        self.problems[path.name] = "; ".join(_damage(found, added, gone))
        self._check_meta(session_id)


def _damage(found: Scan, added: Additions, gone: int) -> Iterator[str]:
    yield skipped(found.bad_lines) if found.bad_lines else "was changed by another program while nothing ran"
    if added.restored:
        yield f"restored from the journal: {added.restored} entries"
    if added.linked:
        yield f"without their parent, now behind the entry before the gap: {added.linked} entries"
    if gone:
        yield f"lost: {gone} entries"


def skipped(bad_lines: int) -> str:
    return (
        "1 line could not be read and was skipped"
        if bad_lines == 1
        else f"{bad_lines} lines could not be read and were skipped"
    )


def boot_id() -> str:
    """The id of the current boot of the machine; empty if unknown."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _appended(changes: Iterable[Change]) -> tuple[int, bytes]:
    """The offset and the lines of consecutive changes in a file."""
    at: int | None = None
    parts: list[bytes] = []
    for change in changes:
        assert change.at is not UNSET
        at = change.at if at is None else at
        parts.append(change.lines()[0])
    return at or 0, b"".join(parts)


def _digest_up_to(file: BinaryIO, size: int) -> bytes:
    """The `chain` of the first `size` bytes, or a value that matches no digest."""
    digest, end = b"", 0
    file.seek(0)
    while end < size:
        line = file.readline()
        if not line:
            return b"shorter"
        end += len(line)
        digest = chain(digest, [line])
    return digest if end == size else b"other lines"
