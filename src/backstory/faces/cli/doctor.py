"""`backstory doctor`: the diagnosis for people, and as a report to paste into an issue."""

from __future__ import annotations

import platform
import re
import sqlite3
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct

from ... import __version__, open_archive
from ...archive.base import Counts
from ...config import ConfigError, Settings, TeamSettings, home_folder
from ...egress import egress
from ...ingest.unknown import Unknown, unknown_records
from ...library import Library
from ...model import rfc3339
from ..diagnosis import Agent, Diagnosis, Problem, diagnose
from ..words import home_path, megabytes, plural
from .app import json_option
from .output import Console, facts, print_json, put, put_facts, since, stdout_console

# Broken transcripts that are listed one by one.
_LISTED = 10
# `a record is not understood: KeyError: ...`: what follows the kind of error may quote a transcript.
_ERROR_KIND = re.compile(r"[^:]*(?:: \w+(?:Error|Exception)\b)?")
_REQUIREMENT = re.compile(r"[\w.-]+")


@click.command()
@click.option("--report", "as_report", is_flag=True, help="Print a report to paste into an issue, as Markdown.")
@json_option
def doctor(as_report: bool, as_json: bool) -> int:
    """Show what is found, indexed, broken or about to be purged, and how to fix it.

    The report of --report has versions, counts, settings and problems; no text and no file name of a transcript, and
    secrets are redacted. The exit code is 1 when there is a problem that needs fixing.
    """
    library = None
    try:
        library = open_archive()
        found = library.egress(diagnose(library))
    except ConfigError as error:
        home = home_folder()
        found = Diagnosis(home=str(home), problems=[Problem("error", str(error), f"edit {home / 'config.toml'}")])
    if as_report:
        report = make_report(found, library)
        if as_json:
            print_json(report)
        else:
            click.echo(to_markdown(report), nl=False)
    elif as_json:
        print_json(found)
    else:
        _show(found)
    return int(any(problem.level != "note" for problem in found.problems))


def _show(found: Diagnosis) -> None:
    console = stdout_console()
    for show in (_show_agents, _show_archive, _show_files, _show_problems):
        show(console, found)


def _show_agents(console: Console, found: Diagnosis) -> None:
    put(console, ("Agents", "bold"))
    for agent in found.agents:
        put(console, (agent.source, "cyan"), f"  {plural(agent.sessions, 'session')}", indent=2)
        unread = f"{agent.unread:,} not read yet" if agent.unread else None
        roots = map(home_path, agent.roots)
        put_facts(console, plural(agent.files, "file"), megabytes(agent.bytes), unread, *roots, indent=4)
    for other in found.not_read:
        put(console, (other.agent, "cyan"), f"  {plural(other.sessions, 'session')}, not read", indent=2)
        put_facts(console, home_path(other.folder), indent=4)
    if found.not_found:
        put(console, facts(f"not on this machine: {', '.join(found.not_found)}"), indent=2)


def _show_archive(console: Console, found: Diagnosis) -> None:
    put(console, ("\nArchive", "bold"))
    sizes = (f"{name} {megabytes(size)}" for name, size in found.disk.items() if size)
    put_facts(console, home_path(found.home), *sizes, indent=2)
    if found.archive is not None and found.sync is not None:
        counts = found.archive
        numbers = ((counts.sessions, "session"), (counts.turns, "turn"), (counts.events, "event"))
        put(console, ", ".join(plural(count, noun) for count, noun in numbers), indent=2)
        last = found.sync.finished_at
        put(console, facts(f"last complete sync: {since(last) if last else 'never'}"), indent=2)


def _show_files(console: Console, found: Diagnosis) -> None:
    if found.broken:
        put(console, ("\nBroken transcripts", "bold"))
        for broken in found.broken[:_LISTED]:
            put(console, broken.path, indent=2)
            put(console, facts(plural(broken.errors, "error"), broken.last_error or ""), indent=4)
        if len(found.broken) > _LISTED:
            put(console, facts(f"and {len(found.broken) - _LISTED:,} more: backstory doctor --json"), indent=2)
    if found.missing:
        put(console, ("\nGone from disk, kept in the archive", "bold"))
        put(console, plural(len(found.missing), "transcript"), indent=2)
        put(console, facts("backstory restore ID writes one back"), indent=2)
    if found.purge is not None:
        purge = found.purge
        put(console, ("\nAbout to be deleted by Claude Code", "bold"))
        read = purge.files - purge.unread
        soon = plural(purge.files, "transcript")
        put(console, f"{soon} within a week; {read:,} of them {'is' if read == 1 else 'are'} in the archive", indent=2)
        keep = f'{{"cleanupPeriodDays": 3650}} in {purge.settings_file} keeps the files'
        put_facts(console, f"after {purge.after_days} days, the first {_due(purge.first_at or 0)}", keep, indent=2)
        put(console, facts("the archive keeps them; backstory restore ID writes one back"), indent=2)


def _show_problems(console: Console, found: Diagnosis) -> None:
    problems = [problem for problem in found.problems if problem.level != "note"]
    put(console, ("\nProblems" if problems else "\nNo problems.", "bold"))
    for problem in problems:
        mark = ("✗ ", "bold red") if problem.level == "error" else ("! ", "bold yellow")
        put(console, mark, problem.message, indent=2)
        put(console, ("fix: ", "dim"), (problem.fix, "green"), indent=4)
    if notes := [problem for problem in found.problems if problem.level == "note"]:
        put(console, ("\nNotes", "bold"))
        for note in notes:
            put(console, note.message, indent=2)


def _due(at: float) -> str:
    days = (at - time.time()) / 86_400
    return "the next time it starts" if days <= 0 else "tomorrow" if days < 1.5 else f"in {days:.0f} days"


# The report


class SourceReport(Struct, frozen=True, kw_only=True):
    source: str
    sessions: int
    files: int
    bytes: int
    not_read: int
    """Files that are new or have changed since they were read."""
    files_with_errors: int
    errors: dict[str, int]
    """Files by the kind of their last error."""
    unknown_records: int
    """Records of kinds that the parser does not know."""
    unknown: list[Unknown]
    """Kinds of records and fields that the parser does not know, with their shapes."""


class Report(Struct, frozen=True, kw_only=True):
    """Counts, kinds of errors, and shapes of records that are not understood; no text and no file name of a transcript.

    Paths below the home folder are cut after their first part. Secrets are redacted even if the settings turn that off.
    """

    versions: dict[str, str]
    home: str
    archive: Counts | None
    disk: dict[str, int]
    last_sync: str | None
    sources: list[SourceReport]
    settings: dict[str, Any]
    """The settings that differ from their defaults."""
    problems: list[str]
    libraries: dict[str, str]


def make_report(found: Diagnosis, library: Library | None) -> Report:
    """The report of a diagnosis; there is no library when the settings cannot be read."""
    finished = found.sync.finished_at if found.sync else None
    report = Report(
        versions={
            "Backstory": __version__,
            "Python": f"{platform.python_implementation()} {platform.python_version()}",
            "platform": platform.platform(),
            "SQLite": sqlite3.sqlite_version,
        },
        home=found.home,
        archive=found.archive,
        disk=found.disk,
        last_sync=rfc3339(finished) if finished else None,
        sources=_sources(found, library) if library and found.archive else [],
        settings=_changed(library.settings, Settings()) if library else {},
        # Notes may quote a record, and need no action.
        problems=[f"{problem.level}: {problem.message}" for problem in found.problems if problem.level != "note"],
        libraries=_libraries(),
    )
    return msgspec.convert(_without_home(egress(msgspec.to_builtins(report))), Report)


def _sources(found: Diagnosis, library: Library) -> list[SourceReport]:
    errors: dict[str, Counter[str]] = {}
    for row in library.archive.files():
        if row.errors:
            kind = _ERROR_KIND.match(row.last_error or "")
            errors.setdefault(row.source, Counter())[kind[0] if kind else ""] += 1
    unknown: dict[str, list[Unknown]] = {}
    for each in unknown_records(library.archive):
        unknown.setdefault(each.source, []).append(each)
    agents = {agent.source: agent for agent in found.agents}
    names = sorted(agents | errors | unknown | (found.archive.by_source if found.archive else {}))
    return [
        _source(agents.get(name, Agent(source=name, roots=[])), errors.get(name, Counter()), unknown.get(name, []))
        for name in names
    ]


def _source(agent: Agent, errors: Counter[str], unknown: list[Unknown]) -> SourceReport:
    return SourceReport(
        source=agent.source,
        sessions=agent.sessions,
        files=agent.files,
        bytes=agent.bytes,
        not_read=agent.unread,
        files_with_errors=errors.total(),
        errors=dict(errors),
        unknown_records=sum(kind.count for kind in unknown if not kind.is_field),
        unknown=unknown,
    )


def _changed(given: Struct, default: Struct) -> dict[str, Any]:
    """The settings that differ. Those of a team name people, servers and projects: only that they are set is shown."""
    changed: dict[str, Any] = {}
    for name in given.__struct_fields__:
        value, usual = getattr(given, name), getattr(default, name)
        if isinstance(value, Struct):
            changed |= {f"{name}.{inner}": each for inner, each in _changed(value, usual).items()}
        elif value != usual:
            changed[name] = "(set)" if isinstance(given, TeamSettings) and isinstance(value, str | tuple) else value
    return changed


def _libraries() -> dict[str, str]:
    """The installed versions of the packages that Backstory requires."""
    found = {}
    for requirement in requires("backstory") or ():
        name = _REQUIREMENT.match(requirement)
        if name and "extra ==" not in requirement:
            try:
                found[name[0]] = version(name[0])
            except PackageNotFoundError:
                found[name[0]] = "not installed"
    return found


def _without_home(value: Any) -> Any:
    """Replace the home folder by `~` in every text, and paths below it by `~/.claude/…` or `~/…`."""
    home = Path.home()
    names = "|".join(re.escape(str(path)) for path in {home, home.resolve()})
    # Names may contain spaces, so a path reaches to the last slash of its text and the word after it.
    pattern = re.compile(rf"(?:{names})(?:/(?P<first>[^/\n]*)(?P<rest>/(?:.*/)?[^\s/'\",:]*)?)?")

    def shorten(match: re.Match[str]) -> str:
        first = match["first"] or ""
        return f"~/{first}{'/…' if match['rest'] else ''}" if first.startswith(".") else "~/…" if first else "~"

    def walk(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(shorten, value)
        if isinstance(value, dict):
            return {walk(key): walk(inner) for key, inner in value.items()}
        return [walk(inner) for inner in value] if isinstance(value, list) else value

    return walk(value)


def to_markdown(report: Report) -> str:
    counts = report.archive
    amounts = "cannot be read"
    if counts:
        numbers = ((counts.sessions, "session"), (counts.turns, "turn"), (counts.events, "event"))
        amounts = ", ".join(plural(count, noun) for count, noun in numbers)
    sizes = ", ".join(f"{name} {megabytes(size)}" for name, size in report.disk.items() if size)
    facts = {**report.versions, "home": report.home, "archive": amounts, "disk": sizes, "last sync": report.last_sync}
    lines = ["### Backstory report", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value or '-'} |" for name, value in facts.items()]
    lines += ["", "| source | sessions | files | size | not read | with errors | unknown records |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|"]
    for source in report.sources:
        read = f"{source.sessions} | {source.files} | {megabytes(source.bytes)} | {source.not_read}"
        lines.append(f"| {source.source} | {read} | {source.files_with_errors} | {source.unknown_records} |")
    errors = [
        f"{source.source}: {kind}: {plural(count, 'file')}"
        for source in report.sources
        for kind, count in source.errors.items()
    ]
    unknown = [
        f"{' '.join(filter(None, (kind.source, kind.version)))}: {'field' if kind.is_field else 'record'}"
        f" `{kind.kind}`, {kind.count} times: `{kind.sample}`"
        for source in report.sources
        for kind in source.unknown
    ]
    settings = [f"`{name} = {msgspec.json.encode(value).decode()}`" for name, value in report.settings.items()]
    libraries = [", ".join(f"{name} {number}" for name, number in report.libraries.items())]
    for title, entries in (
        ("Errors in transcripts", errors),
        ("Unknown records and fields", unknown),
        ("Settings that differ from the default", settings),
        ("Problems", report.problems),
        ("Libraries", libraries),
    ):
        lines += ["", f"{title}:", "", *(f"- {entry}" for entry in entries or ["none"])]
    return "\n".join(lines) + "\n"
