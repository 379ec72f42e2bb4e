"""Forgetting sessions: what goes with a session, and having it done by whichever process writes."""

from __future__ import annotations

import time
from collections.abc import Set

from ..archive.base import Archive, ArchiveBusy, SessionRow

__all__ = ["family_of", "have_forgotten"]

_POLL_SECONDS = 0.1


def family_of(archive: Archive, session: SessionRow) -> list[SessionRow]:
    """A session and those it started, which are forgotten with it."""
    family = [session]
    for member in family:
        family += archive.children(member.key)
    return family


def have_forgotten(archive: Archive, keys: Set[str], patience: float) -> None:
    """Wait until the writer has forgotten the sessions that it was asked to; where there is no writer, be it.

    Raises ArchiveBusy when it takes longer than so many seconds. The requests stay.
    """
    until = time.monotonic() + patience
    while keys & set(archive.forgetting()):
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
            writer.forget_requested()
        finally:
            writer.close()
