"""Finding changes: compares the transcripts and stores on disk with the rows of what was read.

A session of a store has a row of its own, as if it were a file: its path is the store's with `#` and the session's id,
its size the version of the session, its time that of the latest change. The row of the store itself is written when
all of its sessions are read.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ..archive.base import FileRow, FilesRequest, Writer
from ..sources.base import Source, Stored, Transcript
from ..sources.fields import integer
from .walk import Seen, is_as_read, stored_path

T = TypeVar("T", bound=Struct)

HEAD_BYTES = 65_536
UNREADABLE = "cannot be read"
"""The beginning of the error of a file that could not be opened."""
MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that a source may raise for a shape that it did not foresee: they must not stop the rest."""
_MAX_INT64 = (1 << 63) - 1
# The rank of a session of a store: before that of a file of its own, which the store took in or writes beside.
STORED = (-1, "")


class Changed(Struct, kw_only=True):
    """A transcript that is new or not as it was when it was last read."""

    source: Source
    transcript: Transcript
    path: Path
    before: FileRow | None
    inode: int
    size: int
    mtime_ns: int
    store: Path | None = None
    """The store that holds it; `size` is then no number of bytes."""
    weight: int = 0
    """About how many bytes are to be read, where neither size nor offset say it."""

    @property
    def bytes_to_read(self) -> int:
        if self.store is not None:
            return self.weight
        before = self.before
        return self.size - before.offset if before and 0 < before.offset <= self.size else self.size


class Listed(Struct):
    """A store whose sessions were listed: its row, and the paths of its sessions as the archive keeps them."""

    row: FileRow
    sessions: frozenset[str]


def in_utf8(found: T) -> T:
    """A transcript, item or row with texts that the archive can keep: sources take some from the path of the file."""
    return replace(found, **{name: _text(getattr(found, name)) for name in found.__struct_fields__})


def _text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _text(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_text, value))
    return stored_path(value) if type(value) is str else value


def session_path(store: str, session: str) -> str:
    """The path of the row of a session in a store."""
    return f"{store}#{session.replace('#', '%23').replace('/', '%2F')}"


def store_of(path: str) -> str:
    """The store in the path of a session's row; of any other path, the empty string or a path that is no store."""
    return path.rpartition("#")[0]


def changed_files(
    source: Source,
    candidates: Iterable[Seen],
    known: Mapping[str, FileRow],
    outdated: Container[str] = (),
    stamps: Callable[[], Mapping[str, FileRow]] = dict,
) -> Iterator[Changed | Listed | FileRow]:
    """The transcripts to read, `outdated` ones included, and the stores that were listed. A FileRow is a file with
    nothing to read: it cannot be opened, or is no transcript after all. It is kept so that the file is not opened again
    until it changes. `stamps` gives the files of the source as they were read, as far as they are at hand
    (`FilesRequest.stamps`): a store may have thousands of sessions, and few have changed."""
    for seen in candidates:
        before = known.get(seen.stored)
        if before is not None and is_as_read(before, seen) and before.path not in outdated:
            continue
        path = seen.path
        try:
            stored = source.sessions(path)
            if stored is not None:
                yield from _changed_sessions(source, seen, list(stored), known, stamps())
                continue
            transcript = source.describe(path, _head(path))
        except (OSError, *MISREAD) as error:
            yield _nothing_to_read(source, seen, before, error)
            continue
        if transcript is None:
            yield _nothing_to_read(source, seen, before, None)
        else:
            yield Changed(
                source=source,
                transcript=transcript if stored_path(path) == seen.name else in_utf8(transcript),
                path=path,
                before=before,
                inode=seen.inode,
                size=seen.size,
                mtime_ns=seen.mtime_ns,
            )


def _changed_sessions(
    source: Source,
    seen: Seen,
    sessions: Sequence[Stored],
    known: Mapping[str, FileRow],
    stamps: Mapping[str, FileRow],
) -> Iterator[Changed | Listed]:
    store = seen.stored
    weight = 0 if store in known else seen.size // max(len(sessions), 1)
    paths = []
    for stored in sessions:
        name = session_path(seen.name, stored.session)
        paths.append(stored_path(name))
        # A column may hold a value of any type.
        size = max(integer(stored.version) or 0, 0)
        mtime_ns = max(integer(stored.updated) or 0, 0) * 1_000_000 & _MAX_INT64
        stamp = stamps.get(paths[-1]) or known.get(paths[-1])
        if stamp is not None and (stamp.size, stamp.mtime_ns) == (size, mtime_ns):
            continue
        path = Path(name)
        parent = stored.parent if isinstance(stored.parent, str) else None
        yield Changed(
            source=source,
            transcript=Transcript(source=source.name, path=path, session=stored.session, parent=parent, rank=STORED),
            path=path,
            before=known.get(paths[-1]),
            inode=0,
            size=size,
            mtime_ns=mtime_ns,
            store=seen.path,
            weight=weight,
        )
    row = FileRow(path=store, source=source.name, session="")
    row.inode, row.size, row.mtime_ns = seen.inode, seen.size, seen.mtime_ns
    yield Listed(row, frozenset(paths))


def _head(path: Path) -> bytes:
    if path.is_dir():
        return b""
    with open_transcript(path) as stream:
        return stream.read(HEAD_BYTES)


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


def _nothing_to_read(source: Source, seen: Seen, before: FileRow | None, error: Exception | None) -> FileRow:
    row = before or FileRow(path=seen.stored, source=source.name, session="")
    row.inode, row.size, row.mtime_ns, row.missing = seen.inode, seen.size, seen.mtime_ns, False
    if error is not None:
        # The reason may go away without a trace on the file (permissions, limits): it is tried again each time.
        row.size = -1
        row.errors, row.last_error = row.errors or 1, f"{UNREADABLE}: {error}"
    return row


def family_order(changes: Iterable[Changed], *, strictly: bool = False) -> list[Changed]:
    """Newest first, so that search is useful at once; but the members of a family by rank, the original first, and
    the transcripts that one copies from, and earlier parts of its session, before it. `strictly`: all by rank, as if
    they were one family."""
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
    return io.BufferedReader(_Decompressed(path)) if path.suffix == ".zst" else path.open("rb")


class _Decompressed(io.RawIOBase):
    """The content of a zstd file. Raises ValueError where that is damaged."""

    def __init__(self, path: Path) -> None:
        import zstandard

        self._damaged = zstandard.ZstdError
        self._file = path.open("rb")
        self._stream = zstandard.ZstdDecompressor(max_window_size=1 << 28).stream_reader(self._file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._stream.readinto(buffer)
        except self._damaged as error:
            raise ValueError(str(error)) from None

    def close(self) -> None:
        self._file.close()
        super().close()


# What was read


_FEW = 64
_WITHOUT_STATES = FilesRequest(states=False)


class KnownFiles(Mapping[str, FileRow]):
    """The rows by path, without the states of parsers, which take most of the memory: `with_states` reads the few that
    are needed. The first rows are read one by one, when they are asked for; with more, all are read."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rows: dict[str, FileRow | None] = {}
        self._is_complete = False

    def __getitem__(self, path: str) -> FileRow:
        if path not in self._rows and not self._is_complete:
            if len(self._rows) < _FEW:
                request = FilesRequest(paths=(path,), states=False)
                self._rows[path] = next(iter(self._writer.files(request)), None)
            else:
                self._complete()
        row = self._rows.get(path)
        if row is None:
            raise KeyError(path)
        return row

    def __iter__(self) -> Iterator[str]:
        self._complete()
        return (path for path, row in self._rows.items() if row is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _complete(self) -> None:
        if not self._is_complete:
            self._is_complete = True
            # What was noted since is not in the archive yet.
            self._rows = {**{row.path: row for row in self._writer.files(_WITHOUT_STATES)}, **self._rows}

    def note(self, row: FileRow) -> None:
        """The row of a file as it is about to be written."""
        self._rows[row.path] = msgspec.structs.replace(row, state=None if row.state is None else {})

    def drop(self, row: FileRow) -> None:
        self._rows[row.path] = None

    def with_states(self, rows: Sequence[FileRow]) -> list[FileRow]:
        """Rows as they are to be written."""
        paths = [row.path for row in rows if row.state is not None]
        states = {row.path: row.state for row in self._writer.files(FilesRequest(paths=paths))} if paths else {}
        return [msgspec.structs.replace(row, state=states.get(row.path)) for row in rows]

    def with_state(self, row: FileRow) -> FileRow:
        return self.with_states([row])[0]
