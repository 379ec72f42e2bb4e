"""`backstory ui`: the pages in the browser."""

from __future__ import annotations

import os

import click

from .options import json_option
from .output import print_json, tell

_PATIENCE_SECONDS = 2.0


@click.command()
@click.option(
    "--port", default=7717, show_default=True, type=click.IntRange(1, 65535), metavar="N", help="Port of the server."
)
@click.option("--print", "only_print", is_flag=True, help="Only print the address.")
@json_option
def ui(port: int, only_print: bool, as_json: bool) -> int:
    """Open the pages in the browser. Starts the server if it does not run; Ctrl-C stops it then."""
    from ..http.server import Options
    from .serve import run_server

    url, running = f"http://127.0.0.1:{port}", _is_running(port)
    if as_json:
        print_json({"url": url, "running": running})
    elif only_print or running:
        click.echo(url)
    if only_print or as_json:
        return 0
    if running:
        _open(url)
        return 0

    def on_ready() -> None:
        click.echo(f"Backstory is at {url}")
        tell("Ctrl-C stops it.")
        _open(url)

    run_server(Options(port=port, token=os.environ.get("BACKSTORY_TOKEN")), lambda address: on_ready())
    return 0


def _is_running(port: int) -> bool:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().read() == b'{"status":"ok"}'
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _open(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        tell(f"No browser could be started: open {url} yourself.")
