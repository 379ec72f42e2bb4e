"""The program: its commands, its help, the options that commands share, and one line on stderr for every error."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any

import click

from ..words import parse_moment
from .output import print_error, print_json, use_color

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Command -> its module and function, and its line in `backstory --help`. A module is imported when its command runs.
COMMANDS: dict[str, tuple[str, str]] = {
    "search": ("search:search", "Find what was said or done, in any session of any agent."),
    "open": ("open:open_", "Read a session, a turn or an event."),
    "export": ("open:export", "Write one session as HTML, Markdown or JSON Lines."),
    "sessions": ("search:sessions", "List sessions by time."),
    "resume": (
        "resume:resume",
        "Continue a session in its agent: by its id, by words that find it, or the last one in this folder.",
    ),
    "traces": ("traces:traces", "See what agents did, how long it took and what it cost."),
    "usage": ("traces:usage", "Add up tokens and cost by day, project, model, agent or tool."),
    "setup": ("setup:setup", "Find the agents on this machine, give each the MCP server, and read their sessions."),
    "sync": ("sync:sync", "Read everything new now."),
    "watch": ("sync:watch", "Keep the archive live until stopped."),
    "mcp": ("serve:mcp", "Serve agents over MCP on stdin and stdout."),
    "ui": ("serve:ui", "Open the pages in the browser."),
    "serve": ("serve:serve", "Serve everything on one port: web pages, JSON API, MCP over HTTP, live sessions."),
    "service": ("setup:service", "Keep `backstory serve` running: a service of systemd or launchd."),
    "tools": ("tools:tools", "Show the tools agents get, with their schemas."),
    "call": ("tools:call", "Call any tool with JSON arguments."),
    "capsule": ("capsule:capsule", "Store, fetch and search handoff notes."),
    "live": ("serve:live", "Serve live sessions at an iii engine."),
    "doctor": ("doctor:doctor", "Show what is found, indexed, broken or about to be purged, and how to fix it."),
    "sources": ("status:sources", "Show every agent that can be read, and what was found of it."),
    "import": ("status:import_", "Import a data export of Claude.ai or ChatGPT."),
    "restore": ("resume:restore", "Write a session that its agent has deleted back into the agent's folder."),
    "team": ("team:team", "Share sessions with a team, and take them back."),
    "forget": ("sync:forget", "Delete a session everywhere, for good."),
    "reindex": ("sync:reindex", "Rebuild the search index from the archive."),
    "help": ("app:help_", "Show the help of a command."),
}
# The sections of `backstory --help`. A command that none of them names is in the last one.
_SECTIONS: dict[str, tuple[str, ...]] = {
    "Find and read": ("search", "open", "sessions", "resume", "export", "traces", "usage"),
    "Use it with agents": ("setup", "mcp", "tools", "call", "capsule"),
    "Run in the background": ("ui", "serve", "service", "watch", "live"),
    "Look after it": (),
}


class Moment(click.ParamType[int]):
    """A point in time as people write it, converted to milliseconds since the epoch."""

    name = "time"

    def __init__(self, *, end: bool = False) -> None:
        self.end = end

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        moment = parse_moment(value, end=self.end)
        if moment is None:
            self.fail(f"{value!r} is not a time: use 3d, 2h, yesterday, 2026-01-31 or RFC 3339", param, ctx)
        return moment


def _inherit(ctx: click.Context, param: click.Parameter, value: bool) -> bool:
    """`backstory --json COMMAND` is `backstory COMMAND --json`."""
    return value or bool(ctx.find_root().params.get("as_json"))


json_option = click.option("--json", "as_json", is_flag=True, callback=_inherit, help="Print one JSON document.")
since_option = click.option(
    "--since", type=Moment(), metavar="TIME", help="Not before: 3d, 2h, yesterday, a date, or RFC 3339."
)
until_option = click.option(
    "--until", type=Moment(end=True), metavar="TIME", help="Not after; a date includes that day."
)
project_option = click.option("--project", metavar="TEXT", help="Only projects whose path or repository contains this.")
source_option = click.option("--source", metavar="NAME", help="Only this agent: claude-code, codex, ...")
team_option = click.option("--team", is_flag=True, help="Ask the archive of your team, not that of this machine.")


class Program(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f".{module}", __package__), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            from difflib import get_close_matches

            close = get_close_matches(name, COMMANDS, 1)
            hint = f"did you mean {close[0]}?" if close else f"to look for it: backstory search {name}"
            raise click.UsageError(f"no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        placed = {name for names in _SECTIONS.values() for name in names}
        widest = max(map(len, COMMANDS))
        for title, names in _SECTIONS.items():
            shown = names or tuple(name for name in COMMANDS if name not in placed)
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{widest}}", COMMANDS[name][1]) for name in shown])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands from the table: importing every command would make each press of the key slow."""
        from click.shell_completion import CompletionItem

        commands = [
            CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]

    # Click would turn a broken pipe into exit code 1.

    def make_context(self, *given: Any, **named: Any) -> click.Context:
        with _broken_pipe_is_no_failure():
            return super().make_context(*given, **named)

    def invoke(self, ctx: click.Context) -> Any:
        from ..log import log_to_stderr

        log_to_stderr("%(message)s")
        with _broken_pipe_is_no_failure():
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from ... import __version__

        click.echo(f"backstory {__version__}")
        ctx.exit()


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show the version."
)
@json_option
@click.pass_context
def program(ctx: click.Context, as_json: bool) -> int | None:
    """The memory of your coding agents: every session on this machine, searchable in milliseconds.

    Start with `backstory search WORDS`; `backstory setup` gives it to your agents.
    """
    if ctx.invoked_subcommand is not None:
        return None
    if as_json or sys.stdout.isatty():
        from .status import status

        return status(as_json)
    click.echo(ctx.get_help())
    return None


@click.command("help")
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@json_option
@click.pass_context
def help_(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """Show the help of a command, the same as COMMAND --help."""
    found = ctx.find_root()
    for name in names:
        group = found.command
        command = group.get_command(found, name) if isinstance(group, click.Group) else None
        if command is None:
            raise click.UsageError(f"no command {' '.join(names)!r}", ctx.find_root())
        found = click.Context(command, info_name=name, parent=found)
    if as_json:
        print_json({"help": found.get_help()})
    else:
        click.echo(found.get_help())


def run(arguments: Sequence[str]) -> int:
    """Run the program and return its exit code: 0 ok, 1 failed or not found, 2 wrong usage, 130 interrupted."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123 - until the end
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the encoding of the terminal lacks become `?`
    try:
        result = program.main(list(arguments), prog_name="backstory", standalone_mode=False, color=use_color())
        return result if isinstance(result, int) else 0
    except click.Abort:
        return 130
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "backstory"
        message = _egress(f"{error.format_message().rstrip('.')} (see {where} --help)")
        if _asks_for_json(arguments):
            print_json(_failure(message), err=True)
        else:
            print_error(message)
        return 2
    except Exception as error:
        return report(error, as_json=_asks_for_json(arguments))


def _asks_for_json(arguments: Sequence[str]) -> bool:
    """True if `--json` is among the options, which the command line cannot say itself when it is wrong."""
    return "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)


def report(error: Exception, *, as_json: bool = False) -> int:
    """Print an error that ends a command, and return the exit code."""
    if os.environ.get("BACKSTORY_DEBUG"):
        raise error
    message = _egress(_explain(error))
    print_error(" ".join(message.split()))
    if as_json:
        with suppress(OSError):
            print_json(_failure(message))
    _end_output()
    return 1


def _failure(message: str) -> dict[str, Any]:
    return {"error": {"message": message}}


def _egress(message: str) -> str:
    from ...egress import egress

    return egress(message)


def _explain(error: Exception) -> str:
    """Describe an error in one line."""
    from ...archive.errors import explain
    from ...config import ConfigError
    from ..words import AmbiguousHandle

    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, ConfigError | AmbiguousHandle):
        return str(error)
    if reason := explain(error):
        return reason
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return (
        f"unexpected {type(error).__name__}: {error}; please report this{_where_to_report()} "
        "with the details that BACKSTORY_DEBUG=1 shows"
    )


def _where_to_report() -> str:
    from importlib.metadata import metadata

    urls = (entry.partition(", ") for entry in metadata("backstory").get_all("Project-URL") or ())
    return next((f" at {url}" for label, _, url in urls if label == "Issues"), "")


@contextmanager
def _broken_pipe_is_no_failure() -> Iterator[None]:
    """End with exit code 0 when the reader (`head`, a pager) has closed the pipe."""
    try:
        yield
    except BrokenPipeError:
        _end_output()
        raise click.exceptions.Exit(0) from None


def _end_output() -> None:
    """Discard output that cannot be written: the interpreter flushes stdout at its end, which must not fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
