"""Files and folders on disk: the transcripts and stores of a source, below its roots or among some paths."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from ..archive.base import FileRow, FolderRow
from ..config import expand_home
from ..sources.base import Source

_MAX_INT64 = (1 << 63) - 1
_DATABASES = (".db", ".sqlite", ".sqlite3", ".vscdb")
# New rows of a database are in its write-ahead log first, or, with some settings, announced by its rollback journal.
_LOGS = ("-wal", "-journal")
_UNSETTLED_NS = 2_000_000_000
RootsOf = Callable[[Source], Sequence[Path]]
"""Gives the `existing_roots` of a source on this machine."""


class Seen(Struct, frozen=True):
    """A transcript or store on disk. There may be tens of thousands, and few have changed: the path is a string."""

    name: str
    stored: str
    """The same as the archive keeps it."""
    inode: int
    size: int
    mtime_ns: int

    @property
    def path(self) -> Path:
        return Path(self.name)


def stored_path(path: Path | str) -> str:
    """The path as the archive keeps it: names that are not UTF-8 are made so."""
    name = os.fspath(path)
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "replace")


def is_as_read(before: FileRow, seen: Seen) -> bool:
    """True if a file has not changed since it was read."""
    return before.size == seen.size and before.mtime_ns == seen.mtime_ns and before.inode == seen.inode


def named_roots(source: Source, home: Path, environ: Mapping[str, str], extra: Iterable[str] = ()) -> list[Path]:
    """The source's folders and stores, existing or not. `extra` are those of the settings."""
    return [*source.roots(home, environ), *(expand_home(path, home) for path in extra)]


def existing_roots(source: Source, home: Path, environ: Mapping[str, str], extra: Iterable[str] = ()) -> list[Path]:
    """The source's folders and stores that are there, each once, none inside another."""
    found: list[tuple[Path, Path]] = []
    for root in named_roots(source, home, environ, extra):
        try:
            mode = root.stat().st_mode  # most agents are not there: one call for each root
            if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                found.append((root, root.resolve()))
        except OSError:
            continue
    roots: list[Path] = []
    for _, real in sorted(found):
        if not any(real.is_relative_to(other) for other in roots):
            roots.append(real)
    return roots


class Survey(Struct):
    """A complete look at the disk. The files that are as they were read are counted as present, and passed over."""

    read: dict[str, FileRow]
    """The files as they were read, by path (`FilesRequest.stamps`)."""
    present: set[str] = field(default_factory=set)
    """The transcripts and stores that are there, by path."""
    folders: list[FolderRow] = field(default_factory=list)
    """The folders that were searched."""

    def look_at(self, paths: Iterable[str]) -> None:
        """Have files yielded by `walk` although they have not changed."""
        for path in paths:
            if path in self.read:
                self.read[path] = replace(self.read[path], size=-1)

    def has_changed(self, source: str, seen: Seen) -> bool:
        self.present.add(seen.stored)
        before = self.read.get(seen.stored)
        return before is None or before.source != source or not is_as_read(before, seen)

    def changed(self, source: str, entries: Iterable[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
        """The entries of a folder without the files that are as they were read. A home may have tens of thousands of
        those: no object is made for them, and no source is asked."""
        read, present = self.read, self.present
        for entry in entries:
            path = entry.path
            before = read.get(path)  # a path that is not UTF-8 is none of them
            if before is not None and before.source == source and not path.endswith(_DATABASES):
                try:
                    status = entry.stat()
                except OSError:
                    continue
                if (
                    before.mtime_ns == status.st_mtime_ns
                    and before.size == status.st_size
                    and before.inode == status.st_ino & _MAX_INT64
                ):
                    present.add(path)
                    continue
            yield entry


def walk(
    source: Source, root: Path, unreadable: Callable[[OSError], None] | None = None, survey: Survey | None = None
) -> Iterator[Seen]:
    """Every transcript and store at or below a root; with a survey, those that have changed. Folders that cannot be
    read are reported and passed over."""
    found = _walk(source, root, unreadable, survey)
    return found if survey is None else (seen for seen in found if survey.has_changed(source.name, seen))


def _walk(
    source: Source, root: Path, unreadable: Callable[[OSError], None] | None, survey: Survey | None
) -> Iterator[Seen]:
    pending: list[str] = []
    try:
        if not root.is_dir():
            yield from filter(None, (_look(source, root),))
        elif source.gathers(root):
            yield _gather(root)
        else:
            pending.append(os.fspath(root))
    except OSError as error:
        if unreadable is not None:
            unreadable(error)
    while pending:
        folder = pending.pop()
        try:
            # Before its names: what is added while they are read shows in a later time.
            if survey is not None:
                survey.folders.append(FolderRow(stored_path(folder), source.name, _settled_time(folder)))
            entries = list(os.scandir(folder))
            if survey is not None:
                entries = list(survey.changed(source.name, entries))
        except OSError as error:
            if unreadable is not None:
                unreadable(error)
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    if source.gathers(Path(entry.path)):
                        yield _gather(Path(entry.path))
                    else:
                        pending.append(entry.path)
                    continue
                if source.accepts(Path(entry.path)):
                    yield from filter(None, (_seen(entry.path, stored_path(entry.path), entry.stat()),))
            except OSError:
                continue


def _settled_time(folder: str) -> int:
    """The time of a folder, or 0 if it has just changed: the clock of a file system is coarse, and another change
    might get the same time."""
    mtime_ns = os.stat(folder).st_mtime_ns  # noqa: PTH116 - called for every folder
    return mtime_ns if time.time_ns() - mtime_ns > _UNSETTLED_NS else 0


def named(source: Source, paths: Iterable[Path]) -> Iterator[Seen]:
    """The transcripts and stores among some paths, and those that the paths are a part of. A folder among them is new,
    and what is in it may not have been announced."""
    for path in dict.fromkeys(_whole(source, path) for path in paths):
        try:
            if path.is_dir():
                yield from walk(source, path)
            elif (seen := _look(source, path)) is not None:
                yield seen
        except OSError:
            continue


def _whole(source: Source, path: Path) -> Path:
    """The database that a log belongs to, or the folder that is a transcript or a store with all that is in it."""
    for suffix in _LOGS:
        if path.name.endswith(suffix):
            path = path.with_name(path.name.removesuffix(suffix))
    return next((folder for folder in path.parents if source.gathers(folder)), path)


def _look(source: Source, path: Path) -> Seen | None:
    return _seen(os.fspath(path), stored_path(path), path.stat()) if source.accepts(path) else None


def look_again(path: str) -> Seen | None:
    """A transcript or store that is known, as it is now; None for what is neither file nor folder. Raises OSError."""
    status = os.stat(path)  # noqa: PTH116 - called for thousands of files before a search
    return _gather(Path(path)) if stat.S_ISDIR(status.st_mode) else _seen(path, path, status)


def _seen(path: str, stored: str, status: os.stat_result) -> Seen | None:
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        return None
    size, mtime_ns = status.st_size, status.st_mtime_ns
    if path.endswith(_DATABASES):
        size, mtime_ns = database_stamp(Path(path))
    return Seen(path, stored, status.st_ino & _MAX_INT64, size, mtime_ns)


def database_stamp(path: Path) -> tuple[int, int]:
    """Size and time of a database with its log, which has the newest changes."""
    status = path.stat()
    size, mtime_ns = status.st_size, status.st_mtime_ns
    try:
        log = os.stat(f"{path}-wal")  # noqa: PTH116 - called for every database several times a second
    except OSError:
        return size, mtime_ns
    return size + log.st_size, max(mtime_ns, log.st_mtime_ns)


def _gather(folder: Path) -> Seen:
    """A folder as one file: how many files it has, their bytes, the time of the latest change."""
    count = size = mtime_ns = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(parent, name))  # noqa: PTH118 - trees of many small files
            if stat.S_ISREG(status.st_mode):
                count, size, mtime_ns = count + 1, size + status.st_size, max(mtime_ns, status.st_mtime_ns)
    return Seen(os.fspath(folder), stored_path(folder), count, size, mtime_ns)
