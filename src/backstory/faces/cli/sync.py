from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from .options import json_option

if TYPE_CHECKING:
    from ...ingest.pipeline import SyncReport
    from ...library import Library

__all__ = ["sync"]

# Whoever keeps the archive live sees a change well within this time.
_GRACE_SECONDS = 1.5
_POLL_SECONDS = 0.2


@click.command()
@json_option
def sync(as_json: bool) -> int:
    """Read everything new now."""
    import msgspec

    from ... import open_archive
    from .output import hint, print_json
    from .words import duration, megabytes, plural

    library = open_archive()
    library.give_way()
    report = _sync(library)
    if as_json:
        print_json({"by_another_process": report is None, **(msgspec.to_builtins(report) if report else {})})
        return 0
    if report is None:
        click.echo("Up to date: another Backstory process (mcp, watch or serve) reads new transcripts as they come.")
        return 0
    if not library.archive.counts().sessions:
        from .progress import where_agents_are

        click.echo(where_agents_are(library))
        return 0
    click.echo(
        f"Read {plural(report.events, 'event')} of {plural(report.sessions, 'session')} "
        f"from {plural(report.files, 'file')}, {megabytes(report.bytes)} in {duration(report.seconds)}."
    )
    if report.errors:
        click.echo(f"{plural(report.errors, 'part')} could not be understood.")
        hint("which ones and why: backstory doctor")
    hint("now: backstory search anything")
    return 0


def _sync(library: Library) -> SyncReport | None:
    """The report, or None when another process is the writer and has finished what there was to read."""
    from ...archive.base import ArchiveBusy
    from .progress import Progress

    enough = time.monotonic() + _GRACE_SECONDS
    with Progress() as progress:
        while True:
            try:
                return library.sync(progress=progress.of_sync)
            except ArchiveBusy:
                state = library.archive.sync_state()
                # The other one may be about to read, or be told of what is new only now.
                if state.finished_at is not None and time.monotonic() > enough:
                    return None
                progress.of_state(state)
                time.sleep(_POLL_SECONDS)
