"""The failures of sharing and asking."""

from __future__ import annotations

from ..archive.errors import ArchiveError


class TeamError(ArchiveError):
    """The archive of the team cannot do this; the message says why and what to do."""


class Unreachable(TeamError):
    """The server does not answer: the same request may succeed later."""
