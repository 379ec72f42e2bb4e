"""Noticing that there is something to read, at a cost that does not grow with the number of files.

Folders show by their times that names were added or removed; their number is small. Of the files only those that
changed last are looked at. An older one that grows, say of a session that is resumed after months, is noticed by the
next sync: one is due every hour where there are more files than are looked at.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..archive.base import Archive, FileRow, FilesRequest
from ..sources.base import Source
from .scan import existing_roots, is_as_read, look_again, store_of, stored_path, walk

RECENT_FILES = 1_000
_SWEEP_MS = 3_600_000
# In a path that is not UTF-8: the archive does not know its bytes. Only a sync looks there.
_REPLACED = "\ufffd"


def has_news(
    archive: Archive,
    sources: Sequence[Source],
    *,
    home: Path,
    environ: Mapping[str, str],
    extra_roots: Mapping[str, Sequence[str]],
    recent: int = RECENT_FILES,
) -> bool:
    """True if a sync would change anything: a transcript is new, changed or gone, or the last sync was cut short; or
    if a complete look is due. Needs no writer."""
    state = archive.sync_state()
    if state.finished_at is None or not state.recovered:
        return True
    return _News(archive, sources, recent).found(
        {source.name: existing_roots(source, home, environ, extra_roots.get(source.name, ())) for source in sources},
        is_due=time.time_ns() // 1_000_000 - state.finished_at > _SWEEP_MS,
    )


class _News:
    def __init__(self, archive: Archive, sources: Sequence[Source], recent: int) -> None:
        self._archive = archive
        self._sources = {source.name: source for source in sources}
        self._recent = recent
        self._folders = {(row.source, row.path): row.mtime_ns for row in archive.folders()}
        self._is_store: dict[str, bool] = {}

    def found(self, roots: Mapping[str, Sequence[Path]], *, is_due: bool) -> bool:
        if any(self._is_new(name, root) for name, found in roots.items() for root in found):
            return True
        if any(self._has_new_names(name, path) for name, path in self._folders if name in self._sources):
            return True
        rows = list(self._archive.files(FilesRequest(states=False, newest=self._recent + 1)))
        return any(map(self._has_changed, rows[: self._recent])) or (is_due and len(rows) > self._recent)

    def _is_new(self, source: str, root: Path) -> bool:
        path = stored_path(root)
        return (source, path) not in self._folders and not self._is_known(path)

    def _is_known(self, path: str) -> bool:
        return any(not row.missing for row in self._archive.files(FilesRequest(states=False, paths=(path,))))

    def _has_new_names(self, name: str, folder: str) -> bool:
        """True if a transcript was added to a folder, or is gone from it."""
        if _REPLACED in folder:
            return False
        try:
            if os.stat(folder).st_mtime_ns == self._folders[name, folder]:  # noqa: PTH116 - called for every folder
                return False
            entries = list(os.scandir(folder))
        except OSError:
            return True
        source = self._sources[name]
        rows = self._archive.files(FilesRequest(states=False, source=name, below=folder))
        missing = {row.path for row in rows if not row.missing and os.path.dirname(row.path) == folder}  # noqa: PTH120
        for entry in entries:
            path = stored_path(entry.path)
            if path in missing:
                missing.discard(path)
            elif not entry.is_dir(follow_symlinks=False):
                if source.accepts(Path(entry.path)) and entry.is_file():
                    return True
            elif (name, path) not in self._folders and any(True for _ in walk(source, Path(entry.path))):
                return True
        return any(not self._is_in_store(path) for path in missing)

    def _has_changed(self, row: FileRow) -> bool:
        if row.missing or row.source not in self._sources or _REPLACED in row.path or self._is_in_store(row.path):
            return False
        try:
            seen = look_again(row.path)
        except OSError:
            return True
        return seen is None or not is_as_read(row, seen)

    def _is_in_store(self, path: str) -> bool:
        """True for the row of a session: its store has a row of its own."""
        store = store_of(path)
        if store and store not in self._is_store:
            self._is_store[store] = self._is_known(store)
        return bool(store) and self._is_store[store]
