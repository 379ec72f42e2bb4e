from __future__ import annotations

import click

from .options import json_option

__all__ = ["serve"]


@click.command()
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; beyond loopback needs --token."
)
@click.option("--port", default=7717, show_default=True, type=click.IntRange(0, 65535), help="0 takes any free one.")
@click.option("--token", envvar="BACKSTORY_TOKEN", show_envvar=True, help="Let in only who presents it.")
@click.option("--allow-host", "allow_hosts", multiple=True, metavar="NAME", help="A name this server is reached by.")
@click.option("--allow-origin", "allow_origins", multiple=True, metavar="URL", help="A foreign page that may call it.")
@json_option
def serve(
    host: str, port: int, token: str | None, allow_hosts: tuple[str, ...], allow_origins: tuple[str, ...], as_json: bool
) -> int:
    """Serve everything on one port: JSON API, MCP over HTTP, live sessions, and the iii protocol.

    The archive is kept up to date meanwhile. Ctrl-C stops it.
    """
    import asyncio
    import os

    from ... import open_archive
    from ...toolsets.live import Live, LiveError
    from ..http.server import Address, CannotServe, Options, listen, new_loop
    from ..http.server import serve as run
    from ..log import log_to_stderr
    from .output import print_json, tell

    def on_ready(address: Address) -> None:
        if as_json:
            print_json(address)
        else:
            click.echo(f"Backstory is at {address.url}")
            tell("Ctrl-C stops it.")

    log_to_stderr()
    options = Options(host, port, token, allow_hosts, allow_origins)
    if token:
        os.environ["BACKSTORY_TOKEN"] = token  # tools of this process that go through its own server present it too
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
    return 0
