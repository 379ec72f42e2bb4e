"""`backstory tools` and `backstory call`: show the tools of agents, and call one."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from .app import json_option
from .output import Console, exit_code, hint, print_json, put, stdout_console

if TYPE_CHECKING:
    from ...library import Library
    from ...toolsets.base import Tool

# The similarity of a misspelt name.
_ALIKE = 0.8
_NOT_TEXT = "the arguments are not UTF-8 text"


@click.command()
@click.option("--cost", is_flag=True, help="Show the context tokens that each choice of `mcp --tools` costs an agent.")
@json_option
def tools(cost: bool, as_json: bool) -> int:
    """Show the tools agents get, with their schemas."""
    from ... import open_archive
    from ...library import TOOLSETS

    library = open_archive()
    if cost:
        _show_cost(library, as_json=as_json)
        return 0
    if as_json:
        from ..offer import describe_tools

        print_json({"tools": describe_tools(library)})
        return 0
    console = stdout_console()
    for toolset in map(library.toolset, TOOLSETS):
        put(console, (toolset.name, "bold underline"))
        console.print()
        for tool in toolset.tools:
            _show(console, tool)
    hint("call one: backstory call NAME '{...}' · full schemas: backstory tools --json")
    return 0


def _show_cost(library: Library, *, as_json: bool) -> None:
    """Print the context cost of each choice as a Markdown table; docs/mcp.md contains it."""
    import msgspec

    from ..offer import CHOICES, DEFAULT, cost_of, make_offer

    names = (DEFAULT, *(name for name in CHOICES if name != DEFAULT))
    costs = {name: msgspec.to_builtins(cost_of(make_offer(library, [name]))) for name in names}
    if as_json:
        print_json({"costs": costs})
        return
    columns = [name.replace("_", " ") for name in costs[DEFAULT]]
    click.echo(f"| `--tools` | {' | '.join(columns)} |")
    click.echo(f"|---|{'---:|' * len(columns)}")
    for name, cost in costs.items():
        click.echo(f"| `{name}` | {' | '.join(f'{count:,}' for count in cost.values())} |")


def _show(console: Console, tool: Tool) -> None:
    mark = " (destructive)" if tool.destructive else "" if tool.read_only else " (writes)"
    put(console, (tool.name, "bold cyan"), (mark, "yellow"), indent=2)
    put(console, tool.description.strip(), indent=4)
    required = tool.input_schema.get("required", ())
    for name, schema in tool.input_schema.get("properties", {}).items():
        about = schema.get("description", "")
        kind = _kind(schema) + (", required" if name in required else "")
        put(console, (name, "green"), (f" {kind}", "dim"), f"  {about}" if about else "", indent=6)
    console.print()


def _kind(schema: dict[str, Any]) -> str:
    """`string`, `integer or null`, `one of asc, desc`, `list of string`."""
    if "enum" in schema:
        return "one of " + ", ".join("null" if value is None else str(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_kind(option) for option in schema["anyOf"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(kind)


@click.command()
@click.argument("tool")
@click.argument("arguments", metavar="[JSON]", required=False)
@json_option
def call(tool: str, arguments: str | None, as_json: bool) -> int:
    """Call any tool with JSON arguments and print its structured result.

    The arguments are one JSON object, given here or on stdin.

    \b
    backstory call search_sessions '{"query": "flaky login test"}'
    """
    from ... import open_archive

    given = _decode(_read(arguments))
    library = open_archive()
    try:
        found = library.tool(tool)
    except KeyError:
        from difflib import get_close_matches

        from ...library import TOOLSETS

        names = [known.name for name in TOOLSETS for known in library.toolset(name).tools]
        close = get_close_matches(tool, names, 1, _ALIKE)
        hint = f"did you mean {close[0]}?" if close else "backstory tools shows them all"
        raise click.UsageError(f"no tool {tool!r}; {hint}") from None
    library.catch_up()
    reply = found.handler(given)
    print_json(reply.data)
    return exit_code(reply.data) or int(reply.is_error)


def _read(arguments: str | None) -> str:
    if arguments is not None and arguments != "-":
        return arguments
    try:
        return "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    except UnicodeDecodeError:
        raise click.UsageError(_NOT_TEXT) from None


def _decode(text: str) -> dict[str, Any]:
    import msgspec

    if not text.strip():
        return {}
    try:
        given = msgspec.json.decode(text)
    except UnicodeError:
        raise click.UsageError(_NOT_TEXT) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.UsageError(f"the arguments are not JSON: {error}") from None
    if not isinstance(given, dict):
        raise click.UsageError("the arguments must be a JSON object")
    return given
