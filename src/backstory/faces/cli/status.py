"""What bare `backstory` shows: a short status and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ...library import Library

__all__ = ["status"]


def status(as_json: bool) -> int:
    from ... import open_archive
    from .output import print_json

    library = open_archive()
    summary = library.egress(_summarize(library))
    if as_json:
        print_json(summary)
    else:
        from .report import show_status

        show_status(summary)
    return 0


def _summarize(library: Library) -> dict[str, Any]:
    from ... import __version__
    from ...model import rfc3339
    from ...sources import OWN_SOURCES
    from .progress import where_agents_are

    counts, state = library.archive.counts(), library.archive.sync_state()
    agents = [source.name for source in library.sources if library.roots(source) and source.name not in OWN_SOURCES]
    warnings = [] if counts.sessions or agents else [where_agents_are(library)]
    if state.read_only:
        warnings.append(f"{library.home} cannot be written to, so nothing new is read: run backstory doctor")
    elif state.first_finished_at is None and agents:
        warnings.append("not everything has been read yet: run backstory sync")
    if state.index_behind:
        warnings.append("the search index must be rebuilt: run backstory reindex")
    if counts.files_with_errors:
        warnings.append(f"{counts.files_with_errors} transcripts have broken parts: run backstory doctor")
    return {
        "version": __version__,
        "home": str(library.home),
        "agents": agents,
        "sessions": counts.sessions,
        "sessions_by_agent": counts.by_source,
        "events": counts.events,
        "last_sync": rfc3339(state.finished_at) if state.finished_at else None,
        "sample_query": _sample_query(library),
        "warnings": warnings,
    }


def _sample_query(library: Library) -> str | None:
    """Some words of the latest session's title: a search that finds something."""
    from ...archive.base import SessionsRequest
    from ...archive.query import STOP_WORDS, tokens

    for session in library.archive.sessions(SessionsRequest(start=0, end=1 << 53, limit=5)):
        words = [word for word in tokens(library.egress(session.title)) if len(word) > 3 and word not in STOP_WORDS]
        if len(words) > 1:
            return " ".join(words[:3])
    return None
