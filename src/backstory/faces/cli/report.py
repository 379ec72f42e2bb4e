"""`backstory doctor --report`: the state of an installation, to paste into an issue.

It has counts, kinds of errors, and the shapes of records that are not understood; no text and no file name of a
transcript. Paths below the home folder are cut after
their first part, and secrets are redacted even if the settings turn that off.
"""

from __future__ import annotations

import platform
import re
import sqlite3
from collections import Counter
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ... import __version__
from ...archive.base import Counts
from ...config import Settings
from ...egress import egress
from ...ingest.unknown import Unknown, unknown_records
from ...library import Library
from ...model import rfc3339
from .checks import Agent, Diagnosis
from .words import megabytes, plural

# `a record is not understood: KeyError: ...`: what follows the kind of error may quote a transcript.
_ERROR_KIND = re.compile(r"[^:]*(?:: \w+(?:Error|Exception)\b)?")
_REQUIREMENT = re.compile(r"[\w.-]+")


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
    changed: dict[str, Any] = {}
    for name in given.__struct_fields__:
        value, usual = getattr(given, name), getattr(default, name)
        if isinstance(value, Struct):
            changed |= {f"{name}.{inner}": each for inner, each in _changed(value, usual).items()}
        elif value != usual:
            changed[name] = value
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
