"""`backstory forget`: delete a session for good."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from ..handles import find_id, unknown
from ..words import plural
from .options import json_option
from .output import print_json
from .sync import Progress, up_to_date

if TYPE_CHECKING:
    from ...archive.base import SessionRow


@click.command()
@click.argument("id_", metavar="ID")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@json_option
def forget(id_: str, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete a session everywhere, for good.

    Deletes the session and those of its subagents from the archive, the index and the traces; they are not read
    again. The agent's own files stay as they are. ID is as for open.
    """
    library = up_to_date(as_json=as_json)
    full_id = find_id(library.archive, id_)
    try:
        family = library.family(full_id)
    except LookupError as error:
        raise click.ClickException(str(error) if full_id != id_ else unknown(id_)) from None
    rows = library.egress([_row(session) for session in family])
    if not as_json:
        _show(rows, "Would delete" if dry_run else "Delete")
    if not dry_run:
        if not yes:
            _confirm(as_json)
        with Progress("Forgetting"):
            library.forget(full_id)
    if as_json:
        print_json({"sessions": rows, "forgotten": not dry_run})
    elif not dry_run:
        click.echo("Deleted. Its transcript is not read again.")
    return 0


def _row(session: SessionRow) -> dict[str, object]:
    from ...model import session_id

    return {
        "id": session_id(session.key),
        "session": session.key,
        "title": session.title,
        "turns": session.turn_count,
        "events": session.event_count,
    }


def _show(rows: list[dict[str, object]], verb: str) -> None:
    for number, row in enumerate(rows):
        size = f"{plural(int(str(row['turns'])), 'turn')}, {plural(int(str(row['events'])), 'event')}"
        click.echo(f"{'  with it' if number else verb} {row['session']}: {row['title'] or '(no title)'} ({size})")


def _confirm(as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to confirm at: give --yes to delete it, or --dry-run to see what would be deleted"
        )
    click.confirm("This cannot be undone. Delete it?", abort=True, err=True)
