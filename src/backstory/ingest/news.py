"""Whether there is anything to read, found out without becoming the writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..archive.base import Archive
from ..sources.base import Source
from .scan import existing_roots, stored_path, walk

__all__ = ["has_news"]


def has_news(
    archive: Archive,
    sources: Sequence[Source],
    *,
    home: Path,
    environ: Mapping[str, str],
    extra_roots: Mapping[str, Sequence[str]],
) -> bool:
    """Whether a sync would change anything: a transcript is new, changed or gone, or the last sync was cut short."""
    state = archive.sync_state()
    if state.finished_at is None or not state.recovered:
        return True
    known = {row.path: row for row in archive.files(states=False)}
    for source in sources:
        roots = existing_roots(source, home, environ, extra_roots.get(source.name, ()))
        for seen in (seen for root in roots for seen in walk(source, root)):
            before = known.pop(stored_path(seen.path), None)
            if before is None or before.missing:
                return True
            if (before.inode, before.size, before.mtime_ns) != (seen.inode, seen.size, seen.mtime_ns):
                return True
    # What is left is not there any more, which matters if nobody has noticed.
    names = {source.name for source in sources}
    return any(row.source in names and not row.missing for row in known.values())
