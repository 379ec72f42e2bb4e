"""Bare `backstory`, `sources` and `import`: the state of the archive, the next steps, and where sessions come from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..words import home_path, plural
from .app import json_option
from .output import facts, hint, print_json, put, since, stdout_console, warn
from .sync import read_everything, where_agents_are

if TYPE_CHECKING:
    from ...ingest.unknown import Unknown
    from ...library import Library

_EVER = 1 << 50
_ADD = "Another agent, or a folder of one that is not found by itself: docs/sources.md and the setting extra_roots."


def status(as_json: bool) -> int:
    from ... import open_archive

    library = open_archive()
    summary = library.egress(_summarize(library))
    if as_json:
        print_json(summary)
    else:
        _show_summary(summary)
    return 0


def _summarize(library: Library) -> dict[str, Any]:
    from ... import __version__
    from ...model import rfc3339
    from ...sources import OWN_SOURCES

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
    from ...archive.base import SessionsRequest
    from ...archive.query import tokens
    from ...archive.stopwords import stop_words

    for session in library.archive.sessions(SessionsRequest(start=0, end=1 << 53, limit=5)):
        title = library.egress(session.title)
        ignored = stop_words(title)
        words = [word for word in tokens(title) if len(word) > 3 and word not in ignored]
        if len(words) > 1:
            return " ".join(words[:3])
    return None


def _show_summary(summary: dict[str, Any]) -> None:
    from ...model import parse_time

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


@click.command()
@click.option("--all", "everything", is_flag=True, help="Also agents that are not on this machine, and their folders.")
@json_option
def sources(everything: bool, as_json: bool) -> int:
    """Show every agent that can be read: where it was found, its sessions, and what could not be understood."""
    from ... import open_archive
    from ...sources import OWN_SOURCES

    with open_archive() as library:
        rows = survey(library)
    if as_json:
        print_json({"sources": rows})
        return 0
    found = [row for row in rows if row["found"] or row["sessions"]]
    for row in found:
        _show_source(row)
    missing = [row for row in rows if row not in found and row["source"] not in OWN_SOURCES]
    if everything:
        for row in missing:
            _show_source(row)
    elif missing:
        put(stdout_console(), f"Not on this machine: {', '.join(row['title'] for row in missing)}.")
    hint(_ADD)
    return 0


def survey(library: Library) -> list[dict[str, Any]]:
    """The facts about each source, in the order of the table."""
    from ...archive.base import SessionsRequest
    from ...egress import egress
    from ...ingest.unknown import unknown_records
    from ...model import rfc3339
    from ...sources import title_of

    archive = library.archive
    sessions = archive.counts().by_source
    errors: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for row in archive.files():
        errors[row.source] += row.errors
        if row.last_error:
            examples.setdefault(row.source, f"{row.path}: {row.last_error}")
    unknown: dict[str, list[Unknown]] = {}
    for kind in unknown_records(archive):
        unknown.setdefault(kind.source, []).append(kind)
    rows = []
    for source in library.sources:
        newest = archive.sessions(SessionsRequest(start=0, end=_EVER, limit=1, source=source.name))
        example = examples.get(source.name)
        rows.append(
            {
                "source": source.name,
                "title": title_of(source.name),
                "found": [str(root) for root in library.roots(source)],
                "looked_for": [str(root) for root in library.looked_for(source)],
                "sessions": sessions.get(source.name, 0),
                "newest": rfc3339(newest[0].updated_at) if newest else None,
                "errors": errors[source.name],
                "error": egress(example) if example else None,
                "unknown": [
                    {
                        "version": kind.version,
                        "kind": egress(kind.kind),
                        "field": kind.is_field,
                        "count": kind.count,
                        "sample": egress(kind.sample),
                    }
                    for kind in unknown.get(source.name, ())
                ],
            }
        )
    return rows


def _show_source(row: dict[str, Any]) -> None:
    facts = [plural(row["sessions"], "session")]
    if row["newest"]:
        facts.append(f"newest {row['newest'][:10]}")
    if row["errors"]:
        facts.append(plural(row["errors"], "error"))
    if row["unknown"]:
        records = sum(kind["count"] for kind in row["unknown"] if not kind["field"])
        fields = sum(kind["field"] for kind in row["unknown"])
        facts += [
            plural(count, name) for count, name in ((records, "unknown record"), (fields, "unknown field")) if count
        ]
    console = stdout_console()
    put(console, (row["title"], "bold"), f" ({row['source']}): {', '.join(facts)}")
    for root in row["found"] or row["looked_for"]:
        put(console, root if row["found"] else f"{root} (not there)", indent=2)
    if row["error"]:
        put(console, f"first error: {row['error']}", indent=2)
    for kind in row["unknown"]:
        version = f" of version {kind['version']}" if kind["version"] else ""
        count = plural(kind["count"], "record")
        put(console, f"unknown: {kind['kind']}{version}, {count}, such as {kind['sample']}", indent=2)


@click.command("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@json_option
def import_(file: Path, as_json: bool) -> int:
    """Import a data export of Claude.ai or ChatGPT: the ZIP, or the conversations.json in it.

    A later export adds what is new; nothing is doubled, and what was forgotten is left out.
    """
    from ... import open_archive
    from ...ingest.exports import import_export
    from ...model import session_mark

    with open_archive() as library:
        archive = library.archive
        try:
            imported = import_export(file, library.home, lambda key: bool(archive.forgotten([session_mark(key)])))
        except ValueError as error:
            raise click.ClickException(
                f"{file} cannot be imported: {error}; give the ZIP of an export, or the conversations.json in it"
            ) from None
        report = read_everything(library)
    if as_json:
        counts = {} if report is None else {"sessions": report.sessions, "events": report.events}
        print_json({"imported": imported, "by_another_process": report is None, **counts})
        return 0
    for source, count in imported.items():
        click.echo(f"Imported {plural(count, 'conversation')} of {source}.")
    if report is None:
        click.echo("Another Backstory process (mcp, watch or serve) reads them.")
    else:
        click.echo(f"Read {plural(report.events, 'new event')} in {plural(report.sessions, 'session')}.")
    return 0
