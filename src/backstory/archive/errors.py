"""The failures of an archive, and their causes in words."""

from __future__ import annotations

import sqlite3

from ..sqlite import explain as explain_sqlite
from ..sqlite import is_damage

DAMAGED = (
    "{} is damaged ({}): move it away and run backstory sync, which reads again every transcript that is still there"
)
DAMAGED_TRACES = (
    "{} is damaged ({}): move it away and run backstory sync, which makes the traces of all transcripts again; what "
    "came over OpenTelemetry is lost with it"
)


class ArchiveError(Exception):
    """The archive cannot do this; the message says why and what to do."""


class ArchiveBusy(ArchiveError):
    """Another process is the writer."""


class DeadlineExceeded(ArchiveError):
    """The request did not finish before its deadline."""


def explain(error: BaseException) -> str | None:
    """The cause of a failure and its cure, in one line; None for an error that is not about the archive."""
    if isinstance(error, ArchiveError):
        return str(error)
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return DAMAGED.format("archive.db", error)
    return explain_sqlite(error, "the archive")
