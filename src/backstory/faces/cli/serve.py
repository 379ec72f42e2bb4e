"""`backstory serve`: everything on one port."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .options import json_option
from .output import print_json, tell

if TYPE_CHECKING:
    from ..http.server import Address, Options


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; beyond loopback needs --token."
)
@click.option(
    "--port", default=7717, show_default=True, type=click.IntRange(0, 65535), metavar="N", help="0 for any free one."
)
@click.option("--token", envvar="BACKSTORY_TOKEN", show_envvar=True, help="The token that every client must present.")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME", help="Another name of this server.")
@click.option(
    "--allow-origin",
    "allow_origins",
    multiple=True,
    metavar="URL",
    help="A web page that may call it.",
)
@json_option
def serve(
    host: str, port: int, token: str | None, allow_hosts: tuple[str, ...], allow_origins: tuple[str, ...], as_json: bool
) -> int:
    """Serve everything on one port: web pages, JSON API, MCP over HTTP, live sessions, and the iii protocol.

    The archive is kept up to date meanwhile. Ctrl-C stops it.
    """
    from ..http.server import Options

    def on_ready(address: Address) -> None:
        if as_json:
            print_json(address)
        else:
            click.echo(f"Backstory is at {address.url}")
            tell("Ctrl-C stops it.")

    run_server(Options(host, port, token, allow_hosts, allow_origins), on_ready)
    return 0


def run_server(options: Options, on_ready: Callable[[Address], None]) -> None:
    """Serve until stopped; failures to start are errors for people."""
    import asyncio
    import os

    from ... import open_archive
    from ...toolsets.live import Live, LiveError
    from ..http.server import CannotServe, listen, new_loop
    from ..http.server import serve as run
    from ..log import log_to_stderr

    log_to_stderr()
    if options.token:
        os.environ["BACKSTORY_TOKEN"] = options.token  # tools of this process call its own server
    try:
        with listen(options) as listener:
            library = open_archive()
            try:
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(
                        run(library, Live(library.home, forget=library.forget_live), listener, options, on_ready)
                    )
            finally:
                library.close()
    except CannotServe as error:
        raise click.ClickException(str(error)) from None
    except LiveError as error:
        raise click.ClickException(error.message) from None
