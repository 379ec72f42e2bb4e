from __future__ import annotations

import click

from .options import json_option

__all__ = ["help_"]


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
        from .output import print_json

        print_json({"help": found.get_help()})
    else:
        click.echo(found.get_help())
