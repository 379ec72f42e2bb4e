"""`backstory forget` and `restore`: delete a session for good, and write back one that its agent has deleted."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ...files import replacing
from ..words import find_id, find_session, handle, home_path, megabytes, plural, resume_command, unknown
from .app import json_option
from .output import hint, print_json, tell
from .sync import Progress, up_to_date

if TYPE_CHECKING:
    from ...archive.rows import SessionRow
    from ...library import Library
    from ...raw import RawFile


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
    full_id = find_session(library.archive, id_)
    if full_id not in (id_, find_id(library.archive, id_)):
        raise click.ClickException(f"{id_} is a part of the session {handle(full_id)}; only whole sessions are deleted")
    rows = library.egress([_row(session) for session in _family(library, full_id, id_)])
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


def _family(library: Library, full_id: str, given: str) -> list[SessionRow]:
    """A session and those of its subagents."""
    try:
        return library.family(full_id)
    except LookupError as error:
        raise click.ClickException(str(error) if full_id != given else unknown(given)) from None


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


State = Literal["written", "there already", "differs"]


@click.command()
@click.argument("id_", metavar="ID")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Write below this folder instead.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@json_option
def restore(id_: str, folder: Path | None, dry_run: bool, as_json: bool) -> int:
    """Write a session that its agent has deleted back into the agent's folder.

    Byte for byte as it was read, with the sessions of its subagents, so that the agent itself can resume it. A file
    that is there is never overwritten. Sessions that an agent keeps in a database cannot be written back. ID is as
    for open.
    """
    from ... import open_archive

    library = open_archive()
    full_id = find_session(library.archive, id_)
    files = _files(library, full_id, id_)
    rows = []
    top = os.path.commonpath([file.path.parent for file in files])
    for file in files:
        target = folder / file.path.relative_to(top) if folder is not None else file.path
        state = _state(library, file, target)
        if state == "written" and not dry_run:
            _write(library, file, target)
        rows.append({"path": library.egress(str(target)), "bytes": file.size, "state": state})
    if as_json:
        print_json({"id": full_id, "files": rows, "restored": not dry_run})
    else:
        for row in rows:
            verb = "Would write" if dry_run and row["state"] == "written" else str(row["state"]).capitalize()
            click.echo(f"{verb}: {home_path(str(row['path']))} ({megabytes(int(str(row['bytes'])))})")
        location = library.locate(full_id)
        if location is not None and (command := resume_command(location)):
            hint(f"continue it: {command}")
    return int(any(row["state"] == "differs" for row in rows))


def restore_purged(library: Library, full_id: str, *, moved_to: Path | None) -> None:
    """Write back what is missing of a session before its agent resumes it.

    Claude Code looks for a session in a folder that is named by the project's path: for a project that has moved, the
    transcript is written to the folder of its new place, too.
    """
    family = library.family(full_id)
    for file in library.raw.files(family[0].source, [row.key.partition("/")[2] for row in family]):
        target = file.path
        if moved_to is not None and file.source == "claude-code":
            slug = re.sub(r"[^A-Za-z0-9-]", "-", str(moved_to))
            projects = next((parent for parent in target.parents if parent.name == "projects"), None)
            if projects is not None:
                target = projects / slug / Path(*target.relative_to(projects).parts[1:])
        if not target.exists():
            tell(f"Writing {home_path(library.egress(str(target)))}")
            _write(library, file, target)


def _files(library: Library, full_id: str, id_: str) -> list[RawFile]:
    """The files of a session and of those it started."""
    family = _family(library, full_id, id_)
    files = library.raw.files(family[0].source, [row.key.partition("/")[2] for row in family])
    if not files:
        raise click.ClickException(_why_not(library, family[0]))
    return files


def _why_not(library: Library, session: SessionRow) -> str:
    """The reason why a session cannot be written back."""
    from ...archive.base import FilesRequest
    from ...ingest.families import repeated
    from ...ingest.scan import store_of
    from ...sources import title_of

    native_id = session.key.partition("/")[2]
    files = [row for row in library.archive.files(FilesRequest(source=session.source)) if row.session == native_id]
    if store := next(filter(None, (store_of(row.path) for row in files)), None):
        return (
            f"{title_of(session.source)} keeps many sessions in {home_path(library.egress(store))}, into which nothing "
            "is written back. All that was read is in the archive: backstory open shows it, export writes it as a "
            "file, and resume --in AGENT continues it in another agent"
        )
    if any(Path(row.path).is_relative_to(library.home) for row in files):
        return "no agent has a file of this session: it is kept by Backstory alone. backstory export writes one"
    reason = "it was read by a version that did not keep them"
    if library.archive.forgotten([mark for row in files for mark in repeated(row)]):
        reason = "they repeat a session that was forgotten"
    elif not library.settings.keep_raw:
        reason = "the setting keep_raw is off"
    elif library.settings.redact == "ingest":
        reason = "secrets are redacted when they are read (redact = ingest)"
    return f"the raw records of this session are not kept: {reason}"


def _state(library: Library, file: RawFile, target: Path) -> State:
    if not target.exists():
        return "written"
    if target.stat().st_size != file.size:
        return "differs"
    with target.open("rb") as stream:
        same = all(stream.read(len(piece)) == piece for piece in library.raw.read(file.path))
    return "there already" if same else "differs"


def _write(library: Library, file: RawFile, target: Path) -> None:
    """Write a file atomically. Its modification time is now: agents delete old files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as stream:
        stream.writelines(library.raw.read(file.path))
