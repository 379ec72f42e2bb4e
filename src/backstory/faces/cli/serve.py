"""`backstory mcp`, `serve`, `ui` and `live`: commands that serve agents and people until they are stopped."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .app import json_option
from .output import print_json, tell

if TYPE_CHECKING:
    from ..http.iii.worker import Worker
    from ..http.server import Address, Options

_PATIENCE_SECONDS = 10.0


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
        raise click.UsageError(f"unexpected {pattern!r}: a PATTERN goes with --tools conversations")
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
        raise click.UsageError(f"{what}; there are {', '.join(CHOICES)}")
    return tuple(dict.fromkeys(chosen))


def _print_configuration(names: str | None, pattern: str | None) -> None:
    from ...setup.server import own_command

    program, *arguments = own_command()
    arguments += ["mcp", *(["--tools", names] if names else []), *([pattern] if pattern else [])]
    print_json({"mcpServers": {"backstory": {"command": program, "args": arguments}}})


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
@click.option("--hub", is_flag=True, help="Serve the members of a team, each with a token of `backstory team token`.")
@json_option
def serve(
    host: str,
    port: int,
    token: str | None,
    allow_hosts: tuple[str, ...],
    allow_origins: tuple[str, ...],
    hub: bool,
    as_json: bool,
) -> int:
    """Serve everything on one port: web pages, JSON API, MCP over HTTP, live sessions, and the iii protocol.

    The archive is kept up to date meanwhile. Ctrl-C stops it. With --hub the archive is that of a team instead, and
    this machine's agents are not read.
    """
    from ..http.server import Options

    def on_ready(address: Address) -> None:
        if as_json:
            print_json(address)
        else:
            click.echo(f"Backstory is at {address.url}")
            tell("Ctrl-C stops it.")

    options = Options(host, port, token, allow_hosts, allow_origins)
    if hub:
        run_hub(options, on_ready)
    else:
        run_server(options, on_ready)
    return 0


def run_hub(options: Options, on_ready: Callable[[Address], None]) -> None:
    """Serve the members of a team until stopped."""
    import asyncio
    from contextlib import closing

    from ... import open_archive
    from ..http.hub import Hub
    from ..http.server import CannotServe, listen, new_loop, serve_hub
    from ..log import log_to_stderr

    log_to_stderr()
    try:
        with (
            listen(options, is_hub=True) as listener,
            closing(open_archive()) as library,
            closing(Hub(library.home, library.archive)) as hub,
            asyncio.Runner(loop_factory=new_loop) as runner,
        ):
            runner.run(serve_hub(hub, listener, on_ready))
    except CannotServe as error:
        raise click.ClickException(str(error)) from None


def run_server(options: Options, on_ready: Callable[[Address], None]) -> None:
    """Serve until stopped; failures to start are errors for people."""
    import asyncio

    from ... import open_archive
    from ...toolsets.live import Live, LiveError
    from ..http.server import CannotServe, listen, new_loop
    from ..http.server import serve as run
    from ..log import log_to_stderr

    log_to_stderr()
    try:
        with listen(options) as listener:
            if options.token:
                os.environ["BACKSTORY_TOKEN"] = options.token  # tools of this process call its own server
            library = open_archive()
            try:
                live = Live(library.home, forget=library.forget_live, start_unwritable=True)
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(run(library, live, listener, options, on_ready))
            finally:
                library.close()
    except CannotServe as error:
        raise click.ClickException(str(error)) from None
    except LiveError as error:
        raise click.ClickException(error.message) from None


@click.command()
@click.option(
    "--port", default=7717, show_default=True, type=click.IntRange(1, 65535), metavar="N", help="Port of the server."
)
@click.option("--print", "only_print", is_flag=True, help="Only print the address.")
@json_option
def ui(port: int, only_print: bool, as_json: bool) -> int:
    """Open the pages in the browser. Starts the server if it does not run; Ctrl-C stops it then."""
    from ..http.server import Options

    url, running = f"http://127.0.0.1:{port}", _is_running(port)
    if as_json:
        print_json({"url": url, "running": running})
    elif only_print or running:
        click.echo(url)
    if only_print or as_json:
        return 0
    if running:
        _open_browser(url)
        return 0

    def on_ready() -> None:
        click.echo(f"Backstory is at {url}")
        tell("Ctrl-C stops it.")
        _open_browser(url)

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


def _open_browser(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        tell(f"No browser could be started: open {url} yourself.")


@click.group(invoke_without_command=True)
@click.pass_context
def live(ctx: click.Context) -> None:
    """Serve live sessions at an iii engine; `backstory serve` serves them itself."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@live.command()
@click.option("--url", required=True, metavar="ws://HOST:PORT", help="The iii engine to connect to.")
@click.option("--token", envvar="III_TOKEN", show_envvar=True, help="Its token, where it asks for one.")
@click.option(
    "--config",
    "seed",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings (YAML, JSON or TOML) for an engine whose configuration worker has none yet.",
)
@json_option
def worker(url: str, token: str | None, seed: Path | None, as_json: bool) -> int:
    """Serve live sessions at an existing iii engine.

    Runs until it is stopped. An engine with a configuration worker keeps the settings, under the id session-manager;
    otherwise config.toml does.
    Needs the iii SDK: pip install 'backstory[iii]'.
    """
    import asyncio
    from importlib.util import find_spec

    from ...config import home_folder, make_private_folder
    from ...toolsets.live import LiveError

    if not url.startswith(("ws://", "wss://")):
        raise click.UsageError(f"--url {url!r}: an engine's address begins with ws:// or wss://")
    if find_spec("iii") is None:
        raise click.ClickException("the iii SDK is not installed: pip install 'backstory[iii]'")
    try:
        asyncio.run(_work(make_private_folder(home_folder()), url, token, seed, as_json))
    except LiveError as error:
        raise click.ClickException(error.message) from None
    return 0


async def _work(home: Path, url: str, token: str | None, config: Path | None, as_json: bool) -> None:
    import asyncio
    import signal

    from ...library import Library
    from ...toolsets.live import Live
    from ..http.iii.worker import Worker, read_seed
    from ..log import log_to_stderr

    log_to_stderr()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    seed = read_seed(config) if config else None

    def forget(session_id: str) -> None:
        with Library(home) as library:
            library.forget_live(session_id)

    sessions = Live(home, own_urls=[url], forget=forget)
    engine = Worker(sessions, url, token)
    ends: set[asyncio.Future[Any]] = {asyncio.create_task(stop.wait()), engine.failed}
    steps = asyncio.create_task(_start(engine, home, seed))
    try:
        await asyncio.wait(ends | {steps}, return_when=asyncio.FIRST_COMPLETED)
        if steps.done():
            if not steps.result() and config is not None:
                tell(f"{url} has no configuration worker: {config} is not used, {home / 'config.toml'} is")
            if as_json:
                print_json({"url": url})
            else:
                click.echo(f"Serving live sessions at {url}")
                tell("Ctrl-C stops it.")
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if engine.failed.done():
            raise click.ClickException(f"{url}: the engine refuses this worker; is another one connected?")
    finally:
        for task in ends | {steps}:
            task.cancel()
        await engine.close()


async def _start(engine: Worker, home: Path, seed: dict[str, Any] | None) -> bool:
    """Connect and open the sessions. True if the settings come from the engine."""
    from ...config import load_settings
    from ...toolsets.live.types import default_table, parse_settings

    if seed is None:
        seed = {**default_table(home), **load_settings(home).live}
    parse_settings(seed, home)
    await engine.connected()
    return await engine.start(seed)
