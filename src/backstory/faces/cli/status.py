"""Bare `backstory`: a short status and the next steps."""

from __future__ import annotations

from typing import Any

from ... import __version__, open_archive
from ...archive.base import SessionsRequest
from ...archive.query import tokens
from ...archive.stopwords import stop_words
from ...library import Library
from ...model import parse_time, rfc3339
from ...sources import OWN_SOURCES
from ..words import home_path, plural
from .output import facts, print_json, put, since, stdout_console, warn
from .sync import where_agents_are


def status(as_json: bool) -> int:
    library = open_archive()
    summary = library.egress(_summarize(library))
    if as_json:
        print_json(summary)
    else:
        _show(summary)
    return 0


def _summarize(library: Library) -> dict[str, Any]:
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
        "sample_query": sample_query(library),
        "warnings": warnings,
    }


def sample_query(library: Library) -> str | None:
    """Words of the title of the latest session that has some: a search that finds something."""
    for session in library.archive.sessions(SessionsRequest(start=0, end=1 << 53, limit=5)):
        title = library.egress(session.title)
        ignored = stop_words(title)
        words = [word for word in tokens(title) if len(word) > 3 and word not in ignored]
        if len(words) > 1:
            return " ".join(words[:3])
    return None


def _show(summary: dict[str, Any]) -> None:
    console = stdout_console()
    put(console, ("Backstory", "bold"), (f" {summary['version']}  ", "dim"), (home_path(summary["home"]), "dim"))
    if summary["sessions"]:
        put(console, f"{plural(summary['sessions'], 'session')}, {plural(summary['events'], 'event')}")
    for agent in summary["agents"]:
        sessions = summary["sessions_by_agent"].get(agent, 0)
        put(console, (f"{agent:<14}", "cyan"), plural(sessions, "session"), indent=2)
    last = since(parse_time(summary["last_sync"]) or 0) if summary["last_sync"] else "never"
    put(console, facts(f"last sync: {last}"))
    warn(summary["warnings"])
    console.print()
    next_steps = [("backstory sync", "read what is new")]
    if summary["sample_query"]:
        next_steps = [
            (f"backstory search {summary['sample_query']}", "search everything"),
            ("backstory sessions", "the latest sessions"),
            ("backstory setup", "give it to your agents"),
        ]
    next_steps.append(("backstory --help", "all commands"))
    widest = max(len(command) for command, _ in next_steps)
    for command, purpose in next_steps:
        put(console, (f"{command:<{widest}}", "green"), (f"  {purpose}", "dim"), indent=2)
