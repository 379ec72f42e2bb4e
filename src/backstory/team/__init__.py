"""One memory for many machines: the sessions that are shared, their way to the archive of a team, and asking it.

Here are the failures of asking and sharing, and the base of the archives that only sharing writes to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from ..archive.base import ALL_FILES, Archive, FileRow, FilesRequest, Writer
from ..archive.errors import ArchiveError


class TeamError(ArchiveError):
    """The archive of the team cannot do this; the message says why and what to do."""


class Unreachable(TeamError):
    """The server does not answer: the same request may succeed later."""


class SharedArchive(Archive):
    """The answers that are alike for every reader: there are no transcripts, and nothing is written."""

    def files(self, request: FilesRequest = ALL_FILES) -> Iterator[FileRow]:
        return iter(())

    def forgotten(self, digests: Sequence[bytes]) -> frozenset[bytes]:
        return frozenset()

    def forget(self, key: str, *, remember: bool = True, wipe: bool = True) -> None:
        refuse_writing()

    def writer(self) -> Writer:
        refuse_writing()


def refuse_writing() -> NoReturn:
    raise TeamError("the archive of the team is written by sharing sessions only: backstory team push")
