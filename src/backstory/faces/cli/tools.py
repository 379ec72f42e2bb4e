from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import json_option

if TYPE_CHECKING:
    from ...library import Library
    from ...toolsets.base import Tool
    from .render import Console

__all__ = ["tools"]


@click.command()
@click.option("--cost", is_flag=True, help="Show what each choice of `mcp --tools` takes of an agent's context.")
@json_option
def tools(cost: bool, as_json: bool) -> int:
    """Show the tools agents get, with their schemas."""
    from ... import open_archive
    from ...library import TOOLSETS
    from .output import hint, print_json

    library = open_archive()
    if cost:
        _show_cost(library, as_json=as_json)
        return 0
    toolsets = [library.toolset(name) for name in TOOLSETS]
    if as_json:
        print_json({"tools": [_describe(toolset.name, tool) for toolset in toolsets for tool in toolset.tools]})
        return 0
    from .render import put, stdout_console

    console = stdout_console()
    for toolset in toolsets:
        put(console, (toolset.name, "bold underline"))
        console.print()
        for tool in toolset.tools:
            _show(console, tool)
    hint("call one: backstory call NAME '{...}' · full schemas: backstory tools --json")
    return 0


def _show_cost(library: Library, *, as_json: bool) -> None:
    """As a table in Markdown: the documentation has it."""
    import msgspec

    from ..offer import CHOICES, DEFAULT, cost_of, make_offer
    from .output import print_json

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


def _describe(toolset: str, tool: Tool) -> dict[str, Any]:
    return {
        "toolset": toolset,
        "name": tool.name,
        "aliases": tool.aliases,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "read_only": tool.read_only,
        "destructive": tool.destructive,
        "idempotent": tool.idempotent,
    }


def _show(console: Console, tool: Tool) -> None:
    from .render import put

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
