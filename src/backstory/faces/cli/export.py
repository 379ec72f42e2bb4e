"""`backstory export`: one session as a file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..handles import find_id, handle, unknown
from .options import json_option
from .output import print_json
from .sync import up_to_date

if TYPE_CHECKING:
    from ..web.export import Format

_STDOUT = "-"


@click.command()
@click.argument("id_", metavar="ID")
@click.option("--html", "format_", flag_value="html", help="A page that needs nothing else (default).")
@click.option("--md", "format_", flag_value="md", help="Markdown.")
@click.option("--jsonl", "format_", flag_value="jsonl", help="JSON Lines: the session, then its events.")
@click.option("--output", "-o", metavar="FILE", help="The file to write; - for stdout.")
@json_option
def export(id_: str, format_: Format | None, output: str | None, as_json: bool) -> int:
    """Write one session as a file, to keep or to share.

    Secrets are redacted. The HTML page needs no scripts and loads nothing. ID is as for open.
    """
    from ...model import InvalidId
    from ..web.export import export as pieces_of

    format_ = format_ or "html"
    library = up_to_date(as_json=as_json)
    full_id = find_id(library.archive, id_)
    try:
        pieces = pieces_of(library, full_id, format_)
    except (InvalidId, LookupError):
        raise click.ClickException(unknown(id_)) from None
    if output == _STDOUT:
        if as_json:
            print_json({"id": full_id, "format": format_, "content": "".join(pieces)})
        else:
            for piece in pieces:
                sys.stdout.write(piece)
        return 0
    path = Path(output or f"{re.sub(r'[^A-Za-z0-9._-]+', '-', handle(full_id))[:80]}.{format_}")
    size = _write(path, pieces)
    if as_json:
        print_json({"id": full_id, "format": format_, "path": str(path.absolute()), "bytes": size})
    else:
        click.echo(f"Wrote {path} ({size:,} bytes)")
    return 0


def _write(path: Path, pieces: Iterable[str]) -> int:
    """Write a file that only its owner can read, as the transcripts are; gives its size."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:  # noqa: PTH123 - the mode
        return sum(file.write(piece.encode("utf-8", "replace")) for piece in pieces)
