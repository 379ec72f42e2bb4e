"""`backstory service`: keep `backstory serve` running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..words import home_path
from .options import json_option
from .output import hint, print_json

if TYPE_CHECKING:
    from ...setup.service import Service


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
    from ...setup.service import ServiceError

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
    from ...setup.service import Service, ServiceError

    try:
        return Service()
    except ServiceError as error:
        raise click.ClickException(str(error)) from None
