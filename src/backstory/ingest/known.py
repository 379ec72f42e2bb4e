"""The rows of the files that were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ..archive.base import FileRow, FilesRequest, Writer

_FEW = 64
_WITHOUT_STATES = FilesRequest(states=False)


class KnownFiles(Mapping[str, FileRow]):
    """The rows by path, without the states of parsers, which take most of the memory: `with_states` reads the few that
    are needed. The first rows are read one by one, when they are asked for; with more, all are read."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._rows: dict[str, FileRow | None] = {}
        self._is_complete = False

    def __getitem__(self, path: str) -> FileRow:
        if path not in self._rows and not self._is_complete:
            if len(self._rows) < _FEW:
                request = FilesRequest(paths=(path,), states=False)
                self._rows[path] = next(iter(self._writer.files(request)), None)
            else:
                self._complete()
        row = self._rows.get(path)
        if row is None:
            raise KeyError(path)
        return row

    def __iter__(self) -> Iterator[str]:
        self._complete()
        return (path for path, row in self._rows.items() if row is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _complete(self) -> None:
        if not self._is_complete:
            self._is_complete = True
            # What was noted since is not in the archive yet.
            self._rows = {**{row.path: row for row in self._writer.files(_WITHOUT_STATES)}, **self._rows}

    def note(self, row: FileRow) -> None:
        """The row of a file as it is about to be written."""
        self._rows[row.path] = msgspec.structs.replace(row, state=None if row.state is None else {})

    def drop(self, row: FileRow) -> None:
        self._rows[row.path] = None

    def with_states(self, rows: Sequence[FileRow]) -> list[FileRow]:
        """Rows as they are to be written."""
        paths = [row.path for row in rows if row.state is not None]
        states = {row.path: row.state for row in self._writer.files(FilesRequest(paths=paths))} if paths else {}
        return [msgspec.structs.replace(row, state=states.get(row.path)) for row in rows]

    def with_state(self, row: FileRow) -> FileRow:
        return self.with_states([row])[0]
