from __future__ import annotations

import sys
from typing import Any

import click

from .options import json_option

__all__ = ["call"]

_NOT_TEXT = "the arguments are not UTF-8 text"


@click.command()
@click.argument("tool")
@click.argument("arguments", metavar="[JSON]", required=False)
@json_option
def call(tool: str, arguments: str | None, as_json: bool) -> int:
    """Call any tool with JSON arguments and print its structured result.

    The arguments are one JSON object, given here or on stdin.
    """
    from ... import open_archive
    from .output import exit_code, print_json

    given = _decode(_read(arguments))
    library = open_archive()
    try:
        found = library.tool(tool)
    except KeyError:
        from difflib import get_close_matches

        from ...library import TOOLSETS

        names = [known.name for name in TOOLSETS for known in library.toolset(name).tools]
        close = get_close_matches(tool, names, 1)
        hint = f"did you mean {close[0]}?" if close else "backstory tools shows them all"
        raise click.UsageError(f"no tool {tool!r}; {hint}", click.get_current_context()) from None
    library.catch_up()
    reply = found.handler(given)
    print_json(reply.data)
    return exit_code(reply.data) or int(reply.is_error)


def _read(arguments: str | None) -> str:
    if arguments is not None and arguments != "-":
        return arguments
    try:
        return "" if sys.stdin.isatty() else sys.stdin.read()
    except UnicodeDecodeError:
        raise click.UsageError(_NOT_TEXT, click.get_current_context()) from None


def _decode(text: str) -> dict[str, Any]:
    import msgspec

    if not text.strip():
        return {}
    try:
        given = msgspec.json.decode(text)
    except UnicodeError:
        raise click.UsageError(_NOT_TEXT, click.get_current_context()) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise click.UsageError(f"the arguments are not JSON: {error}", click.get_current_context()) from None
    if not isinstance(given, dict):
        raise click.UsageError("the arguments must be a JSON object", click.get_current_context())
    return given
