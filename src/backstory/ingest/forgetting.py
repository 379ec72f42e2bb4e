"""Forgetting sessions: the family of a session, what repeats it, and waiting for the writer to delete it."""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from pathlib import Path

from ..archive.base import Archive, ArchiveBusy, FilesRequest, SessionRow, SessionsRequest
from ..model import InvalidId, SessionRef, parse_id, session_mark
from .exports import FOLDER
from .families import repeated

_POLL_SECONDS = 0.1


def family_of(archive: Archive, id: str) -> list[SessionRow]:
    """A session and those it started, which are forgotten with it. Raises LookupError when there is none."""
    try:
        ref = parse_id(id)
    except InvalidId:
        raise LookupError(f"{id} is not the id of a session") from None
    if not isinstance(ref, SessionRef):
        raise LookupError(f"{id} is a part of a session; only whole sessions can be forgotten")
    session = archive.session(ref.key)
    if session is None:
        raise LookupError(f"no session {ref.key} is in the archive")
    family = [session]
    for member in family:
        family += archive.sessions(SessionsRequest(parent=member.key, order="started_at", ascending=True))
    return family


def copies_of(archive: Archive, family: Sequence[SessionRow]) -> set[str]:
    """The sessions, by the agent's own ids, whose transcripts repeat something of these."""
    marks = {session_mark(row.key) for row in family}
    rows = archive.files(FilesRequest(source=family[0].source))
    return {row.session for row in rows if not marks.isdisjoint(repeated(row))}


def delete_imported(archive: Archive, home: Path, family: Sequence[SessionRow]) -> None:
    """Delete the files of these sessions that `backstory import` has made below the home."""
    keys = {row.key for row in family}
    rows = archive.files(FilesRequest(source=family[0].source, below=str(home / FOLDER)))
    for row in rows:
        if f"{row.source}/{row.session}" in keys:
            Path(row.path).unlink(missing_ok=True)


def have_forgotten(archive: Archive, keys: Set[str], patience: float) -> None:
    """Wait until the requested sessions are forgotten; without another writer, this process becomes the writer.

    Raises ArchiveBusy after `patience` seconds. The requests stay.
    """
    until = time.monotonic() + patience
    while keys & set(archive.sync_state().forgetting):
        try:
            writer = archive.writer()
        except ArchiveBusy:
            if time.monotonic() > until:
                raise ArchiveBusy(
                    "another Backstory process is writing the archive; it forgets the session when it is done"
                ) from None
            time.sleep(_POLL_SECONDS)
            continue
        try:
            writer.recover()
        finally:
            writer.close()
