"""The rows of the files that were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ..archive.base import FileRow, FilesRequest, Writer

_WITHOUT_STATES = FilesRequest(states=False)


class KnownFiles(Mapping[str, FileRow]):
    """The rows by path, without the states of parsers, which take most of the memory: `with_states` reads the few that
    are needed. They are read when the first one is asked for: a sync that finds nothing new asks for none."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._read: dict[str, FileRow] | None = None

    @property
    def _rows(self) -> dict[str, FileRow]:
        if self._read is None:
            self._read = {row.path: row for row in self._writer.files(_WITHOUT_STATES)}
        return self._read

    def __getitem__(self, path: str) -> FileRow:
        return self._rows[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, row: FileRow) -> None:
        """The row of a file as it is about to be written."""
        self._rows[row.path] = msgspec.structs.replace(row, state=None if row.state is None else {})

    def drop(self, row: FileRow) -> None:
        del self._rows[row.path]

    def with_states(self, rows: Sequence[FileRow]) -> list[FileRow]:
        """Rows as they are to be written."""
        paths = [row.path for row in rows if row.state is not None]
        states = {row.path: row.state for row in self._writer.files(FilesRequest(paths=paths))} if paths else {}
        return [msgspec.structs.replace(row, state=states.get(row.path)) for row in rows]

    def with_state(self, row: FileRow) -> FileRow:
        return self.with_states([row])[0]
