"""Keeping the archive live, and noticing news at a cost that does not grow with the number of files.

Changes on disk are hints; what is read follows from the stored offsets. Where nothing watches, folders show by their
times that names were added or removed; their number is small. Of the files those that changed last are looked at, and
some of the others, in turn: a frontier in the home folder is where the next look goes on. So an old file that grows,
say of a session that is resumed after months, is noticed within some looks, or by the next sync: one is due every hour
where there are more files than are looked at.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..archive.base import Archive, FileRow, FilesRequest
from ..sources.base import Source
from .scan import store_of
from .walk import RootsOf, database_stamp, is_as_read, look_again, stored_path, walk

if TYPE_CHECKING:  # a search looks for news, and reads nothing where there are none
    from .pipeline import Ingest
    from .progress import SyncReport

# Changes are gathered until it has been quiet for a step, but not for longer than the debounce time.
_STEP_MS = 50
_DEBOUNCE_MS = 300
# Not every change is announced (network folders, overflowing queues): look by oneself too.
_RESCAN_SECONDS = 60.0
# The interval of syncs where the system reports no changes, or where there is nothing to watch yet.
_POLL_SECONDS = 2.0
# The first tick shows that the watcher runs; files that were written shortly before it are found then.
_TICK_MS = 200
_ROOTS_SECONDS = 1.0


def watch(
    ingest: Ingest,
    stop: threading.Event,
    on_change: Callable[[SyncReport], None] | None = None,
    *,
    news: Iterable[Path] = (),
    on_first: Callable[[], None] = lambda: None,
) -> None:
    """Read everything new, then changes as they happen, until stopped. `on_first` is called when everything was read
    that was new at the start. `news` are read first, without a look at all the rest."""

    def announce(report: SyncReport) -> None:
        if on_change and report.files:
            on_change(report)

    if news:
        announce(ingest.sync_paths(news))
        on_first()
    while not stop.is_set():
        roots = ingest.roots()
        announce(ingest.sync())
        on_first()
        started = look = time.monotonic()
        listening = False
        for paths in _changes(roots, stop):
            if paths is None or not listening:
                # Changes are not reported, or may have happened before the watcher started.
                announce(ingest.sync())
            elif paths:
                announce(ingest.sync_paths(paths))
            else:
                ingest.forget_requested()
            listening = True
            now = time.monotonic()
            if now > look + _ROOTS_SECONDS:
                look = now
                # Another agent may have begun to write meanwhile, in a folder that was not there.
                if now > started + _RESCAN_SECONDS or ingest.roots() != roots:
                    break


def _changes(roots: list[Path], stop: threading.Event) -> Iterator[set[Path] | None]:
    """The paths that changed, an empty set now and then; None where changes are not reported.

    Folders are watched. Databases are looked at: the folders around them hold much else.
    """
    folders = [root for root in roots if root.is_dir()]
    stores = _Stores(root for root in roots if root not in folders)
    if folders:
        from watchfiles import watch as follow

        try:
            for changed in follow(
                *folders,
                watch_filter=None,
                step=_STEP_MS,
                debounce=_DEBOUNCE_MS,
                rust_timeout=_TICK_MS,
                yield_on_timeout=True,
                stop_event=stop,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                yield {Path(path) for _, path in changed} | stores.changed()
        except (OSError, RuntimeError):
            # A folder went away, or one of the system's limits is reached: of watched folders, or (the RuntimeError)
            # of watching programs, 128 for each user on Linux.
            pass
    elif stores:
        while not stop.wait(_TICK_MS / 1000):
            yield stores.changed()
    while not stop.wait(_POLL_SECONDS):
        yield None


class _Stores:
    """Notices changes of databases by a look at each and at its log."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._stamps = {path: _stamp(path) for path in paths}

    def __bool__(self) -> bool:
        return bool(self._stamps)

    def changed(self) -> set[Path]:
        now = {path: _stamp(path) for path in self._stamps}
        changed = {path for path, stamp in now.items() if stamp != self._stamps[path]}
        self._stamps = now
        return changed


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        return database_stamp(path)
    except OSError:
        return None


# News


RECENT_FILES = 1_000
OLDER_FILES = 1_000
_SWEEP_MS = 3_600_000
_MOST_NEWS = 100
# In a path that is not UTF-8: the archive does not know its bytes. Only a sync looks there.
_REPLACED = "\ufffd"


class Frontier:
    """The path up to which older files were looked at. It is kept in a file: searches are processes of their own."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> str:
        """The empty string at the beginning, and where the file is missing or broken."""
        try:
            return self._file.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            return ""

    def write(self, path: str) -> None:
        # Without it the next look is at the same files. Not by a rename: any text is a place to go on from.
        with suppress(OSError), open(self._file, "w", encoding="utf-8", opener=_private) as file:
            file.write(path)

    def forget(self) -> None:
        """Begin from the start: the path may name a session that is forgotten."""
        self._file.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def find_news(
    archive: Archive,
    sources: Sequence[Source],
    roots_of: RootsOf,
    frontier: Frontier,
    *,
    recent: int = RECENT_FILES,
    older: int = OLDER_FILES,
) -> list[Path] | None:
    """The transcripts, stores and folders that are new or have changed. None if a complete sync is needed: an agent is
    new, a transcript is gone, the last sync was cut short, there are many news, or a complete look is due. Needs no
    writer."""
    state = archive.sync_state()
    if state.finished_at is None or not state.recovered:
        return None
    since_sync = time.time_ns() // 1_000_000 - state.finished_at
    news = _News(archive, sources, frontier, recent, older)
    try:
        news.look(
            {source.name: roots_of(source) for source in sources},
            is_due=not 0 <= since_sync <= _SWEEP_MS,  # negative when the clock was set back
        )
    except _Unclear:
        return None
    return news.found if len(news.found) <= _MOST_NEWS else None


class _Unclear(Exception):
    """Something has changed that only a complete sync can deal with."""


class _News:
    def __init__(
        self, archive: Archive, sources: Sequence[Source], frontier: Frontier, recent: int, older: int
    ) -> None:
        self._archive = archive
        self._sources = {source.name: source for source in sources}
        self._frontier = frontier
        self._recent = recent
        self._older = older
        self._folders = {(row.source, row.path): row.mtime_ns for row in archive.sync_state(folders=True).folders}
        self._is_store: dict[str, bool] = {}
        self.found: list[Path] = []

    def look(self, roots: Mapping[str, Sequence[Path]], *, is_due: bool) -> None:
        if any(self._is_new(name, root) for name, found in roots.items() for root in found):
            raise _Unclear
        for name, folder in self._folders:
            if name in self._sources:
                self._look_into(name, folder)
        rows = list(self._archive.files(FilesRequest(stamps=True, newest=self._recent + 1)))
        if len(rows) > self._recent and is_due:
            raise _Unclear
        self._look_at(rows[: self._recent])
        if len(rows) > self._recent:
            self._look_at(self._older_files())

    def _older_files(self) -> list[FileRow]:
        """The next files in the order of paths, from the start again after the last one."""
        rows = self._files_after(self._frontier.read(), self._older)
        if len(rows) < self._older:
            rows += self._files_after("", self._older - len(rows))
        if rows:
            self._frontier.write(rows[-1].path)
        return rows

    def _files_after(self, path: str, limit: int) -> list[FileRow]:
        return list(self._archive.files(FilesRequest(stamps=True, after=path, limit=limit)))

    def _is_new(self, source: str, root: Path) -> bool:
        path = stored_path(root)
        return (source, path) not in self._folders and not self._is_known(path)

    def _is_known(self, path: str) -> bool:
        return any(True for _ in self._archive.files(FilesRequest(stamps=True, paths=(path,))))

    def _look_into(self, name: str, folder: str) -> None:
        """Find what was added to a folder."""
        if _REPLACED in folder:
            return
        try:
            if os.stat(folder).st_mtime_ns == self._folders[name, folder]:  # noqa: PTH116 - called for every folder
                return
            entries = list(os.scandir(folder))
        except OSError:
            raise _Unclear from None
        source = self._sources[name]
        rows = self._archive.files(FilesRequest(stamps=True, source=name, below=folder))
        missing = {row.path for row in rows if os.path.dirname(row.path) == folder}  # noqa: PTH120
        for entry in entries:
            path = stored_path(entry.path)
            if path in missing:
                missing.discard(path)
            elif not entry.is_dir(follow_symlinks=False):
                if source.accepts(Path(entry.path)) and _is_file(entry):
                    self.found.append(Path(entry.path))
            elif (name, path) not in self._folders and any(True for _ in walk(source, Path(entry.path))):
                self.found.append(Path(entry.path))
        if any(not self._is_in_store(path) for path in missing):
            raise _Unclear

    def _look_at(self, rows: Iterable[FileRow]) -> None:
        """Find the files that have changed since they were read."""
        for row in rows:
            if row.source not in self._sources or _REPLACED in row.path or self._is_in_store(row.path):
                continue
            try:
                seen = look_again(row.path)
            except OSError:
                raise _Unclear from None
            if seen is None:
                raise _Unclear
            if not is_as_read(row, seen):
                self.found.append(seen.path)

    def _is_in_store(self, path: str) -> bool:
        """True for the row of a session: its store has a row of its own."""
        store = store_of(path)
        if store and store not in self._is_store:
            self._is_store[store] = self._is_known(store)
        return bool(store) and self._is_store[store]


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a symlink that leads to itself, among others
        return False
