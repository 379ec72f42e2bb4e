"""The journal of an archive: what was committed since a position, for readers that copy it elsewhere."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from .projection import Changes


class Mark(Struct, frozen=True):
    """The state of an archive at one moment."""

    archive: str
    """Another value means another archive, also at the same path."""
    newest: int
    """The number of the last change."""
    commit: int
    """Another value, at the same reader, means that something was committed, also without a change of a turn."""


class Journal(Protocol):
    """Used by one thread."""

    def mark(self) -> Mark: ...
    def changes(self, after: int, limit: int) -> Changes | None:
        """The turns of the next changes, about `limit` of them; turn 0 stands for the session without its turns. None:
        nothing changed."""

    def folders(self, key: str, turn: int) -> dict[bytes, str]:
        """The working directories of the events of a turn, by their uids."""

    def close(self) -> None: ...
