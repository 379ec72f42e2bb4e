"""What goes wrong below an archive, in words: the cause, and what to do about it."""

from __future__ import annotations

import errno
import sqlite3

from .base import ArchiveError

__all__ = ["DAMAGED", "DAMAGED_TRACES", "FULL_DISK", "explain", "is_damage"]

FULL_DISK = "the disk is full: make room, or move the archive to another disk with BACKSTORY_HOME"
DAMAGED = (
    "{} is damaged ({}): move it away and run backstory sync, which reads again every transcript that is still there"
)
DAMAGED_TRACES = (
    "{} is damaged ({}): move it away and run backstory sync, which makes the traces of all transcripts again; what "
    "came over OpenTelemetry is lost with it"
)
_BY_SQLITE_CODE = {
    sqlite3.SQLITE_FULL: FULL_DISK,
    sqlite3.SQLITE_READONLY: "the archive cannot be written to ({}): check the permissions of its folder",
    sqlite3.SQLITE_CANTOPEN: "the archive cannot be opened ({}): check the permissions of its folder",
    sqlite3.SQLITE_PERM: "the archive cannot be opened ({}): check the permissions of its folder",
    sqlite3.SQLITE_BUSY: "another process keeps the archive locked ({}): try again",
    sqlite3.SQLITE_IOERR: "the disk cannot be read or written ({}): see the system's log",
}


def is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    # A header that is nonsense has no code of its own.
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error) == "unsupported file format"


def explain(error: BaseException) -> str | None:
    """The message for whoever asked; None when this is not about the archive."""
    if isinstance(error, ArchiveError):
        return str(error)
    if isinstance(error, sqlite3.Error):
        if is_damage(error):
            return DAMAGED.format("archive.db", error)
        # Errors of the module itself have no code.
        message = _BY_SQLITE_CODE.get(getattr(error, "sqlite_errorcode", 0) & 0xFF)
        return None if message is None else message.format(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FULL_DISK
    return None
