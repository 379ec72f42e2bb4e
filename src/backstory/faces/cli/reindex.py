from __future__ import annotations

import time

import click

from .options import json_option

__all__ = ["reindex"]


@click.command()
@json_option
def reindex(as_json: bool) -> int:
    """Rebuild the search index from the archive.

    The index holds nothing that the archive does not: this loses nothing, and searches go on meanwhile.
    """
    from ... import open_archive
    from .output import print_json
    from .progress import Progress
    from .words import duration, plural

    library = open_archive()
    started = time.monotonic()
    with Progress("Indexing"):
        events = library.reindex()
    seconds = time.monotonic() - started
    if as_json:
        print_json({"events": events, "seconds": round(seconds, 3)})
    else:
        click.echo(f"Indexed {plural(events, 'event')} in {duration(seconds)}.")
    return 0
