"""The state of things as a person reads it: what `backstory` and `backstory doctor` show."""

from __future__ import annotations

import time
from typing import Any

from ...egress import clean
from ...model import parse_time
from .checks import Diagnosis
from .output import warn
from .render import Console, facts, put, put_facts, since, stdout_console
from .words import megabytes, plural

__all__ = ["show_diagnosis", "show_status"]

_SHOWN = 10


def show_diagnosis(found: Diagnosis) -> None:
    console = stdout_console()
    for show in (_show_agents, _show_archive, _show_files, _show_problems):
        show(console, found)


def _show_agents(console: Console, found: Diagnosis) -> None:
    put(console, ("Agents", "bold"))
    for agent in found.agents:
        put(console, (agent.source, "cyan"), f"  {plural(agent.sessions, 'session')}", indent=2)
        unread = f"{agent.unread:,} not read yet" if agent.unread else None
        put_facts(console, plural(agent.files, "file"), megabytes(agent.bytes), unread, *agent.roots, indent=4)
    for other in found.not_read:
        put(console, (other.agent, "cyan"), f"  {plural(other.sessions, 'session')}, not read", indent=2)
        put_facts(console, other.folder, indent=4)
    if found.not_found:
        put(console, facts(f"not on this machine: {', '.join(found.not_found)}"), indent=2)


def _show_archive(console: Console, found: Diagnosis) -> None:
    put(console, ("\nArchive", "bold"))
    sizes = (f"{name} {megabytes(size)}" for name, size in found.disk.items() if size)
    put_facts(console, found.home, *sizes, indent=2)
    if found.archive is not None and found.sync is not None:
        counts = found.archive
        numbers = ((counts.sessions, "session"), (counts.turns, "turn"), (counts.events, "event"))
        put(console, ", ".join(plural(count, noun) for count, noun in numbers), indent=2)
        last = found.sync.finished_at
        put(console, facts(f"last complete sync: {since(last) if last else 'never'}"), indent=2)


def _show_files(console: Console, found: Diagnosis) -> None:
    if found.broken:
        put(console, ("\nBroken transcripts", "bold"))
        for broken in found.broken[:_SHOWN]:
            put(console, clean(broken.path), indent=2)
            put(console, facts(plural(broken.errors, "error"), clean(broken.last_error or "")), indent=4)
        if len(found.broken) > _SHOWN:
            put(console, facts(f"and {len(found.broken) - _SHOWN:,} more: backstory doctor --json"), indent=2)
    if found.missing:
        put(console, ("\nGone from disk, kept in the archive", "bold"))
        put(console, plural(len(found.missing), "transcript"), indent=2)
    if found.purge is not None:
        purge = found.purge
        put(console, ("\nAbout to be deleted by Claude Code", "bold"))
        read = purge.files - purge.unread
        soon = plural(purge.files, "transcript")
        put(console, f"{soon} within a week; {read:,} of them {'is' if read == 1 else 'are'} in the archive", indent=2)
        keep = f'{{"cleanupPeriodDays": 3650}} in {purge.settings_file} keeps the files'
        put_facts(console, f"after {purge.after_days} days, the first {_due(purge.first_at or 0)}", keep, indent=2)


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


def show_status(summary: dict[str, Any]) -> None:
    console = stdout_console()
    put(console, ("Backstory", "bold"), (f" {summary['version']}  ", "dim"), (summary["home"], "dim"))
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
            (f"backstory search {summary['sample_query']}", "find anything"),
            ("backstory sessions", "what happened lately"),
            ("claude mcp add --scope user backstory -- backstory mcp", "let an agent remember"),
        ]
    for command, why in [*next_steps, ("backstory --help", "everything else")]:
        put(console, (command, "green"), (f"  {why}", "dim"), indent=2)
