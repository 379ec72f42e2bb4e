from __future__ import annotations

from pathlib import Path

import click

from .options import json_option


@click.command("import")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@json_option
def import_(file: Path, as_json: bool) -> int:
    """Import a data export of Claude.ai or ChatGPT: the ZIP, or the conversations.json in it.

    A later export adds what is new; nothing is doubled.
    """
    from ... import open_archive
    from ...ingest.exports import import_export
    from .output import print_json
    from .words import plural

    with open_archive() as library:
        try:
            imported = import_export(file, library.home / "imports")
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        report = library.sync()
    if as_json:
        print_json({"imported": imported, "sessions": report.sessions, "events": report.events})
        return 0
    for source, count in imported.items():
        click.echo(f"Imported {plural(count, 'conversation')} of {source}.")
    click.echo(f"Read {plural(report.events, 'new event')} in {plural(report.sessions, 'session')}.")
    return 0
