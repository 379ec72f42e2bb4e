from __future__ import annotations

import sys

import click

__all__ = ["mcp"]


# A pattern may begin with a dash, as folders of Claude Code projects do; the command has no short options.
@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--tools",
    "names",
    metavar="LIST",
    help="Toolsets, comma-separated: history, conversations, capsules, capsules-all, traces, live, default, all. "
    "[default: the most useful tools of history,capsules,traces]",
)
@click.argument("pattern", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print the entry for an MCP client's configuration, and end.")
def mcp(names: str | None, pattern: str | None, as_json: bool) -> int:
    """Serve agents over MCP on stdin and stdout, and read new transcripts meanwhile.

    PATTERN narrows the conversations toolset to the Claude Code projects whose folder name matches it.
    """
    chosen = _choose(names)
    if pattern is not None and not {"conversations", "all"} & set(chosen):
        raise click.UsageError(
            f"unexpected {pattern!r}: a PATTERN goes with --tools conversations", click.get_current_context()
        )
    if as_json:
        _print_configuration(names, pattern)
        return 0
    if sys.stdin.isatty():
        click.echo("This is an MCP server; an agent starts it. To give it to your agents: backstory setup", err=True)
        click.echo("Waiting for requests on stdin; end with Ctrl-D.", err=True)
    from ... import open_archive
    from ..mcp import serve_stdio

    serve_stdio(open_archive(), chosen, pattern=pattern)
    return 0


def _choose(names: str | None) -> tuple[str, ...]:
    from ..offer import CHOICES, DEFAULT

    if names is None:
        return (DEFAULT,)
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in chosen if name not in CHOICES]
    if unknown or not chosen:
        what = f"no toolset {', '.join(map(repr, unknown))}" if unknown else "no toolset named"
        raise click.UsageError(f"{what}; there are {', '.join(CHOICES)}", click.get_current_context())
    return tuple(dict.fromkeys(chosen))


def _print_configuration(names: str | None, pattern: str | None) -> None:
    from ...setup.command import own_command
    from .output import print_json

    program, *arguments = own_command()
    arguments += ["mcp", *(["--tools", names] if names else []), *([pattern] if pattern else [])]
    print_json({"mcpServers": {"backstory": {"command": program, "args": arguments}}})
