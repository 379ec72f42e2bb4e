"""The Codex sessions in an archive after a sync, for the tests beside this file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from backstory.archive.base import EventRow, SearchRequest, SessionRow, TurnRow
from backstory.library import Library
from backstory.model import DEFAULT_TYPES, EventType


class Shelf:
    """The Codex sessions of a home, as an archive has them."""

    def __init__(self, library: Library) -> None:
        self.archive = library.archive

    def session(self, name: str) -> SessionRow:
        session = self.archive.session(f"codex/{name}")
        assert session is not None
        return session

    def turns(self, name: str) -> list[TurnRow]:
        return self.archive.turns(f"codex/{name}")

    def events(self, name: str, *types: EventType) -> list[EventRow]:
        rows = [row for turn in self.turns(name) for row in self.archive.events(turn.session, turn.ordinal)]
        return [row for row in rows if not types or row.type in types]

    def find(self, query: str, *types: EventType) -> list[EventRow]:
        found = self.archive.search(SearchRequest(query=query, types=types or DEFAULT_TYPES, limit=50))
        return [hit.event for hit in found.hits]


def shelve(tmp_path: Path, home: Path) -> Iterator[Shelf]:
    library = Library(tmp_path / "backstory", agents_home=home, environ={})
    report = library.sync()
    assert report.errors == 0
    yield Shelf(library)
    library.close()


def of_tool(rows: list[EventRow], tool: str) -> list[EventRow]:
    return [row for row in rows if row.tool == tool]
