from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from .options import json_option

if TYPE_CHECKING:
    from ...ingest.pipeline import SyncReport
    from ...library import Library

__all__ = ["watch"]


@click.command()
@click.option("--beside", is_flag=True, help="Give way to other programs, and stop when standard input ends.")
@json_option
def watch(as_json: bool, beside: bool) -> int:
    """Keep the archive live until stopped: whatever an agent writes is found a moment later.

    `backstory mcp` and `backstory serve` do the same while they run. With --json the totals are printed at the end.
    """
    from ... import open_archive
    from .output import hint, print_json
    from .words import plural

    library = open_archive()
    totals = {"syncs": 0, "files": 0, "events": 0, "errors": 0}

    def changed(report: SyncReport) -> None:
        totals["syncs"] += 1
        for name in ("files", "events", "errors"):
            totals[name] += getattr(report, name)
        if not as_json and report.events:
            what = f"{plural(report.events, 'event')} from {plural(report.files, 'file')}"
            click.echo(f"{time.strftime('%H:%M:%S')}  {what}")

    hint("watching; stop with Ctrl-C")
    started = time.monotonic()
    if beside:
        library.give_way()
    _run_until_told(library, changed, until_input_ends=beside)
    library.close()
    if as_json:
        print_json({**totals, "seconds": round(time.monotonic() - started, 3)})
    return 0


def _run_until_told(library: Library, changed: Callable[[SyncReport], None], *, until_input_ends: bool) -> None:
    """Watch in a thread: only the main thread hears signals, and it must not be inside native code then."""
    stop = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        try:
            library.watch(stop, on_change=changed)
        except Exception as error:
            failures.append(error)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def read_input() -> None:
        while os.read(0, 4096):
            pass
        stop.set()

    if until_input_ends:
        threading.Thread(target=read_input, name="backstory-parent", daemon=True).start()
    thread = threading.Thread(target=work, name="backstory-watch", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
