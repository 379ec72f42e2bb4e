from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import json_option

if TYPE_CHECKING:
    from ..http.iii.worker import Worker

__all__ = ["live"]


@click.group(invoke_without_command=True)
@click.pass_context
def live(ctx: click.Context) -> None:
    """Live sessions beyond `backstory serve`."""
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
    """Serve the session functions at an existing iii engine, until stopped.

    An engine with a configuration worker keeps the settings, under the id session-manager; otherwise config.toml does.
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
    from .output import print_json, tell

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
    """Connect, and open the sessions; whether the settings come from the engine."""
    from ...config import load_settings
    from ...toolsets.live.settings import default_table, parse_settings

    if seed is None:
        seed = {**default_table(home), **load_settings(home).live}
    parse_settings(seed, home)
    await engine.connected()
    return await engine.start(seed)
