"""`backstory doctor`: the diagnosis as a person reads it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from .options import json_option
from .output import Console, facts, print_json, put, put_facts, since, stdout_console
from .words import home_path, megabytes, plural

if TYPE_CHECKING:
    from .checks import Diagnosis

# Broken transcripts that are listed one by one.
_LISTED = 10


@click.command()
@click.option("--report", "as_report", is_flag=True, help="Print a report to paste into an issue, as Markdown.")
@json_option
def doctor(as_report: bool, as_json: bool) -> int:
    """Show what is found, indexed, broken or about to be purged, and how to fix it.

    The report of --report has versions, counts, settings and problems; no text and no file name of a transcript, and
    secrets are redacted. The exit code is 1 when there is a problem that needs fixing.
    """
    from ... import open_archive
    from ...config import ConfigError, home_folder
    from .checks import Diagnosis, Problem, diagnose

    library = None
    try:
        library = open_archive()
        found = library.egress(diagnose(library))
    except ConfigError as error:
        home = home_folder()
        found = Diagnosis(home=str(home), problems=[Problem("error", str(error), f"edit {home / 'config.toml'}")])
    if as_report:
        from .report import make_report, to_markdown

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
