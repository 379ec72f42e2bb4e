"""What changed: the transcripts on disk against how far each was read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from ..archive.base import FileRow
from ..sources.base import Source, Transcript

__all__ = [
    "Changed",
    "changed_files",
    "existing_roots",
    "family_order",
    "is_append",
    "open_transcript",
    "prefix_digest",
]

HEAD_BYTES = 65_536
UNREADABLE = "cannot be read"
"""The beginning of the error of a file that could not be opened."""
_DIGEST_BYTES = 4_096
_MAX_INODE = (1 << 63) - 1


class Changed(Struct, kw_only=True):
    """A transcript that is new or not as it was when it was last read."""

    source: Source
    transcript: Transcript
    path: Path
    before: FileRow | None
    inode: int
    size: int
    mtime_ns: int


class _Seen(Struct, frozen=True):
    path: Path
    inode: int
    size: int
    mtime_ns: int


def stored_path(path: Path) -> str:
    """The path as the archive keeps it: names that are not UTF-8 are made so."""
    return os.fsencode(path).decode("utf-8", "replace")


def changed_files(
    source: Source, candidates: Iterable[_Seen], known: Mapping[str, FileRow], outdated: Container[str] = ()
) -> Iterator[Changed | FileRow]:
    """What to read, `outdated` files included. A FileRow is a file with nothing to read: it cannot be opened, or is no
    transcript after all. It is remembered so that it is not looked into again until it changes."""
    for seen in candidates:
        before = known.get(stored_path(seen.path))
        same = before and (before.size, before.mtime_ns, before.inode) == (seen.size, seen.mtime_ns, seen.inode)
        if before and same and before.path not in outdated:
            continue
        try:
            with open_transcript(seen.path) as stream:
                transcript = source.describe(seen.path, stream.read(HEAD_BYTES))
        except (OSError, ValueError) as error:
            yield _nothing_to_read(source, seen, before, error)
            continue
        if transcript is None:
            yield _nothing_to_read(source, seen, before, None)
        else:
            yield Changed(
                source=source,
                transcript=transcript,
                path=seen.path,
                before=before,
                inode=seen.inode,
                size=seen.size,
                mtime_ns=seen.mtime_ns,
            )


def nothing_to_read(change: Changed) -> FileRow:
    """The row of a file that is not to be read, now or when it grows."""
    return FileRow(
        path=stored_path(change.path),
        source=change.source.name,
        session="",
        inode=change.inode,
        size=change.size,
        mtime_ns=change.mtime_ns,
    )


def _nothing_to_read(source: Source, seen: _Seen, before: FileRow | None, error: Exception | None) -> FileRow:
    row = before or FileRow(path=stored_path(seen.path), source=source.name, session="")
    row.inode, row.size, row.mtime_ns, row.missing = seen.inode, seen.size, seen.mtime_ns, False
    if error is not None:
        # The reason may go away without a trace on the file (permissions, limits): it is tried again each time.
        row.size = -1
        row.errors, row.last_error = row.errors or 1, f"{UNREADABLE}: {error}"
    return row


def existing_roots(source: Source, home: Path, environ: Mapping[str, str], extra: Iterable[str] = ()) -> list[Path]:
    """The source's folders that are there, each once, none inside another."""
    roots: list[Path] = []
    for root in sorted({*source.roots(home, environ), *(Path(path).expanduser() for path in extra)}):
        try:
            real = root.resolve()
            if real.is_dir() and not any(real.is_relative_to(other) for other in roots):
                roots.append(real)
        except OSError:
            continue
    return roots


def walk(source: Source, root: Path, unreadable: Callable[[OSError], None] | None = None) -> Iterator[_Seen]:
    """Every transcript below a root, by name; folders that cannot be read are reported and passed over."""
    folders = [os.fspath(root)]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError as error:
            if unreadable is not None:
                unreadable(error)
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif (seen := _look(source, Path(entry.path))) is not None:
                    yield seen
            except OSError:
                continue


def named(source: Source, paths: Iterable[Path]) -> Iterator[_Seen]:
    """The transcripts among some paths. A folder among them is new, and what is in it may not have been told of."""
    for path in paths:
        try:
            if path.is_dir():
                yield from walk(source, path)
            elif (seen := _look(source, path)) is not None:
                yield seen
        except OSError:
            continue


def _look(source: Source, path: Path) -> _Seen | None:
    if not source.accepts(path):
        return None
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for
        return None
    return _Seen(path, status.st_ino & _MAX_INODE, status.st_size, status.st_mtime_ns)


def family_order(changes: Iterable[Changed], *, strictly: bool = False) -> list[Changed]:
    """Newest first, so that search is useful at once; but the members of a family by rank, the original first, and
    whatever a transcript copies from, and earlier parts of its session, before it. `strictly`: all by rank, as if they
    were one family."""
    families: dict[tuple[str, str], list[Changed]] = {}
    by_session: dict[tuple[str, str], list[Changed]] = {}
    for change in changes:
        source, transcript = change.source.name, change.transcript
        family = "" if strictly else transcript.family or transcript.session
        families.setdefault((source, family), []).append(change)
        by_session.setdefault((source, transcript.session), []).append(change)
    groups = sorted(families.values(), key=lambda group: max(change.mtime_ns for change in group), reverse=True)
    for group in groups:
        group.sort(key=_order)

    ordered: dict[str, Changed] = {}
    for change in (change for group in groups for change in group):
        waiting, entered = [change], set[str]()
        while waiting:
            here = waiting[-1]
            name = os.fspath(here.path)
            if name in ordered or name in entered:
                ordered.setdefault(name, waiting.pop())
                continue
            entered.add(name)
            for session in here.transcript.after:
                waiting += by_session.get((here.source.name, session), ())
            parts = by_session[here.source.name, here.transcript.session]
            waiting += [part for part in parts if _order(part) < _order(here)]
    return list(ordered.values())


def _order(change: Changed) -> tuple[tuple[int, str], str]:
    return change.transcript.rank, stored_path(change.path)


def open_transcript(path: Path) -> BinaryIO:
    """The file's content; `.zst` is decompressed on the way."""
    if path.suffix != ".zst":
        return path.open("rb")
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=1 << 28).stream_reader(path.open("rb"), closefd=True)


def prefix_digest(stream: BinaryIO, offset: int) -> bytes:
    """A digest of the first bytes and of those just before `offset`: an append changes neither."""
    hasher = blake2b(digest_size=16)
    stream.seek(0)
    hasher.update(stream.read(min(_DIGEST_BYTES, offset)))
    stream.seek(max(0, offset - _DIGEST_BYTES))
    hasher.update(stream.read(min(_DIGEST_BYTES, offset)))
    return hasher.digest()


def is_append(before: FileRow | None, stream: BinaryIO, size: int) -> bool:
    """Whether the file is what was read, with something added; otherwise it is read again from its start."""
    return before is not None and before.offset <= size and before.prefix == prefix_digest(stream, before.offset)
