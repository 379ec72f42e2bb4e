"""The archive of a team for those who read it: transcripts are the members' own, and only sharing writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from ..archive.base import ALL_FILES, Archive, FileRow, FilesRequest, Writer
from .errors import TeamError


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
