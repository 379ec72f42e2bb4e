"""Keeping the archive live beside the server, in a process of its own: reading transcripts would hold up answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...library import Library

__all__ = ["keeping_live"]

logger = logging.getLogger(__name__)

_STOP_SECONDS = 5
_RESTART_SECONDS = 2
# Not from the current folder, where something else may be called `backstory`.
_COMMAND = (sys.executable, "-P", "-m", "backstory", "watch", "--beside")


@contextlib.asynccontextmanager
async def keeping_live(library: Library) -> AsyncIterator[None]:
    """Whoever has the writer lock keeps the archive live; this sees to it that there is somebody."""
    library.expect_first_sync()
    task = asyncio.create_task(_keep(library))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep(library: Library) -> None:
    environ = {**os.environ, "BACKSTORY_HOME": str(library.home)}
    while True:
        try:
            outcome = f"ended with code {await _watch(environ)}"
        except OSError as error:
            outcome = f"cannot be started ({error})"
        # What is there is served on; only news would be missing.
        logger.warning("keeping the archive live %s, trying again in %d s", outcome, _RESTART_SECONDS)
        await asyncio.sleep(_RESTART_SECONDS)


async def _watch(environ: dict[str, str]) -> int:
    # A group of its own: Ctrl-C is for the server, which then ends this in good order.
    process = subprocess.Popen(_COMMAND, env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, process_group=0)
    ended = asyncio.ensure_future(asyncio.to_thread(process.wait))
    try:
        return await asyncio.shield(ended)
    finally:
        await _stop(process, ended)


async def _stop(process: subprocess.Popen[bytes], ended: asyncio.Future[int]) -> None:
    """The end of its input, which also comes when this process dies, is how it is told to stop."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(asyncio.shield(ended), _STOP_SECONDS)
    except TimeoutError:
        process.kill()
