"""`backstory setup` and `service`.

Setup finds the agents, gives each the MCP server, reads their sessions, and shows that it works. The service keeps
`backstory serve` running.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ..words import home_path, plural
from .app import json_option
from .output import facts, hint, print_json, put, put_facts, stdout_console, tell
from .sync import read_everything

if TYPE_CHECKING:
    from ...library import Library
    from ...setup import FoundAgent, Wiring
    from ...setup.files import Outcome
    from ...setup.server import Service

_SENTENCE = "Search Backstory for what we did last in this project, and tell me where we left off."


@click.command()
@click.option("--yes", is_flag=True, help="Change files without asking.")
@click.option("--agents", "names", metavar="LIST", help="Only these agents, comma-separated: claude-code,codex,...")
@click.option("--hooks", is_flag=True, help="Also add hooks: a reminder at the start of a session, capsules.")
@click.option("--skill", is_flag=True, help="Also write the skill into the agents' folders of skills.")
@click.option("--instructions", is_flag=True, help="Also add a paragraph to Codex's AGENTS.md.")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@click.option("--remove", is_flag=True, help="Take back everything that setup has written.")
@json_option
def setup(
    yes: bool,
    names: str | None,
    hooks: bool,
    skill: bool,
    instructions: bool,
    dry_run: bool,
    remove: bool,
    as_json: bool,
) -> int:
    """Find the agents on this machine, give each the MCP server, and read their sessions.

    Shows what it will change and asks once. Every file has a backup, and --remove takes all of it back.
    """
    from ... import open_archive
    from ...setup import Wiring
    from ...setup.files import Journal

    library = open_archive()
    wiring = Wiring(Journal(library.home), home=library.agents_home)
    chosen = _chosen(names)
    if remove:
        return _remove(wiring, chosen, yes=yes, dry_run=dry_run, as_json=as_json)
    with _waiting("Looking for agents", as_json):
        found = [one for one in wiring.find() if chosen is None or one.agent.name in chosen]
    if chosen is not None and (missing := set(chosen) - {one.agent.name for one in found}):
        raise click.ClickException(f"not on this machine: {', '.join(sorted(missing))}")
    sessions = library.archive.counts().by_source if library.is_made else {}
    if not as_json:
        _show_agents(found, sessions)
    todo = _todo(found, hooks=hooks, skill=skill, instructions=instructions)
    if dry_run:
        _report_plan(found, sessions, todo, as_json)
        return int(any(target.state == "refused" for one in found for target in one.targets))
    if todo and not yes:
        _confirm(todo, as_json)
    outcomes = _apply(wiring, found, hooks=hooks, skill=skill, instructions=instructions)
    report = read_everything(library)
    with _waiting("Starting the server as the agents do", as_json):
        _verify(wiring, found, outcomes)
    sample = _sample(library)
    if as_json:
        agents = [_row(one, sessions) for one in found]
        print_json({"agents": agents, "changes": outcomes, "sync": report, "search": sample, "say": _SENTENCE})
    else:
        _show_outcomes(outcomes)
        _show_end(library, found, sample)
    return int(any(outcome.action == "refused" or not _works(outcome) for outcome in outcomes))


def _chosen(names: str | None) -> list[str] | None:
    from ...setup.agents import WIRABLE

    if names is None:
        return None
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    known = [agent.name for agent in WIRABLE]
    if unknown := [name for name in chosen if name not in known]:
        raise click.UsageError(f"no agent {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    return chosen


# The plan


def _todo(found: list[FoundAgent], *, hooks: bool, skill: bool, instructions: bool) -> list[str]:
    """The files that may be written, each with the reason, for the question."""
    from ...setup import HOOK_FILES, INSTRUCTIONS, SKILL_FOLDERS

    todo = []
    for one in found:
        todo += [
            f"{one.agent.title}: the MCP server, in {home_path(str(target.file))}"
            for target in one.targets
            if target.state in ("not wired", "outdated")
        ]
        if hooks and one.agent.name in HOOK_FILES:
            todo.append(f"{one.agent.title}: hooks, in {_shown(HOOK_FILES[one.agent.name])}")
        if skill and one.agent.name in SKILL_FOLDERS:
            todo.append(f"{one.agent.title}: the skill, in {_shown(SKILL_FOLDERS[one.agent.name])}")
        if instructions and one.agent.name in INSTRUCTIONS:
            todo.append(f"{one.agent.title}: a paragraph, in {_shown(INSTRUCTIONS[one.agent.name])}")
    return todo


def _shown(root: str) -> str:
    import os
    from pathlib import Path

    from ...sources.agents import expand_root

    return home_path(str(expand_root(root, Path.home(), os.environ)[0]))


def _confirm(todo: list[str], as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to confirm at: give --yes to change the files, or --dry-run to see which"
        )
    tell("")
    for line in todo:
        tell(f"  {line}")
    click.confirm("Change these files? Each has a backup, and setup --remove takes it back", abort=True, err=True)


# The changes


def _apply(wiring: Wiring, found: list[FoundAgent], *, hooks: bool, skill: bool, instructions: bool) -> list[Outcome]:
    from ...setup import HOOK_FILES, INSTRUCTIONS, SKILL_FOLDERS, Additions

    outcomes = [wiring.wire(one, target) for one in found for target in one.targets]
    additions = Additions(wiring.journal, home=wiring.home)
    names = [one.agent.name for one in found]
    if hooks:
        outcomes += [additions.add_hooks(name) for name in names if name in HOOK_FILES]
    if skill:
        outcomes += [additions.add_skill(name) for name in names if name in SKILL_FOLDERS]
    if instructions:
        outcomes += [additions.add_instructions(name) for name in names if name in INSTRUCTIONS]
    return outcomes


def _verify(wiring: Wiring, found: list[FoundAgent], outcomes: list[Outcome]) -> None:
    files = {str(target.file): (one, target) for one in found for target in one.targets if target.state == "wired"}
    for outcome in outcomes:
        if outcome.action != "refused" and outcome.file in files:
            one, target = files[outcome.file]
            outcome.probe = wiring.verify(one.agent, target.file)


def _works(outcome: Outcome) -> bool:
    return outcome.probe is None or outcome.probe.works


def _remove(wiring: Wiring, chosen: list[str] | None, *, yes: bool, dry_run: bool, as_json: bool) -> int:
    files = [
        name
        for name, written in wiring.journal.files.items()
        if chosen is None or any(entry.agent in chosen for entry in written.entries)
    ]
    if dry_run:
        if as_json:
            print_json({"files": files})
        else:
            for name in files:
                click.echo(f"Would take back {home_path(name)}")
        return 0
    if files and not yes:
        _confirm([f"take back {home_path(name)}" for name in files], as_json)
    outcomes = wiring.remove(chosen)
    if as_json:
        print_json({"changes": outcomes})
    elif not outcomes:
        click.echo("Nothing to take back.")
    else:
        _show_outcomes(outcomes)
    return int(any(outcome.action == "refused" for outcome in outcomes))


def _sample(library: Library) -> dict[str, Any] | None:
    """A search over what was found, with its first hit."""
    from .status import sample_query

    query = sample_query(library)
    if query is None:
        return None
    hits = library.search(query, n_hits=1).get("data", {}).get("results", [])
    return {"query": query, "hit": hits[0] if hits else None}


# Output


def _waiting(message: str, as_json: bool) -> Any:
    from contextlib import nullcontext

    if as_json or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(f"{message} ...")


def _row(one: FoundAgent, sessions: dict[str, int]) -> dict[str, Any]:
    return {
        "agent": one.agent.name,
        "title": one.agent.title,
        "program": one.program,
        "version": one.version,
        "sessions": sessions.get(one.agent.name, 0),
        "files": [{"file": str(t.file), "state": t.state, "reason": t.reason} for t in one.targets],
    }


def _show_agents(found: list[FoundAgent], sessions: dict[str, int]) -> None:
    from .output import Column, show_table

    if not found:
        click.echo("No agent that takes MCP servers was found on this machine.")
        return
    columns = [
        Column("version", [one.version or "" for one in found], 2),
        # Before the first sync nobody knows how many there are.
        Column("sessions", [f"{sessions.get(one.agent.name, 0):,}" if sessions else "" for one in found], 1),
        Column("server", [_state(one) for one in found]),
        Column("found in", [home_path(str(one.targets[0].file)) for one in found], 3),
    ]
    show_table("agent", [one.agent.title for one in found], columns)
    for one in found:
        for target in one.targets:
            if target.state == "refused":
                tell(f"{home_path(str(target.file))} is left as it is: {target.reason}")


def _state(one: FoundAgent) -> str:
    states = {target.state for target in one.targets}
    return next((state for state in ("refused", "outdated", "not wired") if state in states), "wired")


def _report_plan(found: list[FoundAgent], sessions: dict[str, int], todo: list[str], as_json: bool) -> None:
    if as_json:
        print_json({"agents": [_row(one, sessions) for one in found], "would_change": todo})
        return
    for line in todo:
        click.echo(f"Would write {line}")
    if not todo:
        click.echo("Nothing to change.")


def _show_outcomes(outcomes: list[Outcome]) -> None:
    console = stdout_console()
    for outcome in outcomes:
        if outcome.action == "refused":
            put(console, ("✗ ", "bold red"), f"{outcome.agent}: {home_path(outcome.file)} is left as it is")
            put(console, (outcome.reason or "", "yellow"), indent=2)
            continue
        tested = outcome.probe
        mark = ("✗ ", "bold red") if not _works(outcome) else ("✓ ", "green")
        by = f"by {outcome.by}" if outcome.by else None
        put(console, mark, f"{outcome.agent}: {outcome.action}")
        backup = f"backup {home_path(outcome.backup)}" if outcome.backup else None
        put_facts(console, home_path(outcome.file), by, backup, indent=2)
        if tested is not None:
            put(console, facts(f"starts, {plural(tested.tools, 'tool')}" if tested.works else tested.problem), indent=2)


def _show_end(library: Library, found: list[FoundAgent], sample: dict[str, Any] | None) -> None:
    from ...setup.agents import retentions

    console = stdout_console()
    for kept in retentions(library.agents_home):
        put(console, "")
        due = f"{kept.soon:,} of {kept.files:,} within a week"
        put(console, f"{kept.title} deletes transcripts after {kept.days:g} days, {due}.")
        put(console, facts("the archive keeps them; backstory restore writes one back", kept.setting), indent=2)
    if sample is not None and sample["hit"] is not None:
        put(console, "")
        put(console, (f"backstory search {sample['query']}", "green"))
        put(console, facts(sample["hit"]["session"]["title"], sample["hit"]["session"]["source"]), indent=2)
        put(console, sample["hit"]["snippet"]["text"], indent=2)
    if found:
        put(console, "")
        put(console, "Now say to your agent: ", (_SENTENCE, "bold"))
    hint("take it back: backstory setup --remove")


@click.group()
def service() -> None:
    """Keep `backstory serve` running: a service of systemd or launchd.

    Without it everything works, too: `backstory mcp` reads new sessions while an agent runs, and a search reads what
    is new before it answers.
    """


@service.command()
@click.option("--port", type=int, help="The port of the server. [default: that of backstory serve]")
@json_option
def install(port: int | None, as_json: bool) -> None:
    """Start the server now, and at every login."""
    from ...setup.server import ServiceError

    found = _service()
    try:
        found.install(port)
    except ServiceError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        print_json(found.status())
    else:
        click.echo(f"Installed {home_path(str(found.file))}.")
        hint("look at it: backstory service status; take it back: backstory service uninstall")


@service.command()
@json_option
def status(as_json: bool) -> int:
    """Show whether the server runs. The exit code is 1 when it does not."""
    state = _service().status()
    if as_json:
        print_json(state)
    else:
        where = home_path(state.file) if state.installed else "not installed: backstory service install"
        click.echo(f"{'Running' if state.running else 'Not running'} ({state.manager}: {state.detail}), {where}")
    return int(not state.running)


@service.command()
@json_option
def uninstall(as_json: bool) -> None:
    """Stop the server, and delete the service."""
    found = _service()
    removed = found.uninstall()
    if as_json:
        print_json({"removed": removed, "file": str(found.file)})
    else:
        click.echo(f"Deleted {home_path(str(found.file))}." if removed else "There is no service.")


def _service() -> Service:
    from ...setup.server import Service, ServiceError

    try:
        return Service()
    except ServiceError as error:
        raise click.ClickException(str(error)) from None
