"""Where the entries of a session are in its tree: a branch and a depth each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from .records import EntryLine

__all__ = ["Branch", "Layout", "Place", "lay_out", "read_place", "signed"]


class Place(EntryLine):
    """An entry and where in its session it is."""

    branch: int = 0
    depth: int = 0


class Branch(Struct, frozen=True):
    """A line of entries, and the place it starts from: a branch and the depth of an entry there; a root's is None."""

    number: int
    parent: int | None
    depth: int | None


class Layout(Struct):
    places: list[Place]
    branches: list[Branch]
    orphans: int = 0
    """Entries whose parent is not there; they are roots."""


def lay_out(entries: Mapping[str, EntryLine]) -> Layout:
    """Place all entries of a session, whatever order they were written in. A parent comes before its children."""
    layout = Layout([], [])
    placed: dict[str, Place] = {}
    continued: set[str] = set()
    for entry_id in entries:
        for line in reversed(_ancestry(entry_id, entries, placed)):
            parent = placed.get(line.parent) if line.parent is not None else None
            if parent is not None and parent.id not in continued:
                continued.add(parent.id)
                branch, depth = parent.branch, parent.depth + 1
            else:
                branch, depth = len(layout.branches), parent.depth + 1 if parent else 0
                layout.branches.append(Branch(branch, *((parent.branch, parent.depth) if parent else (None, None))))
                layout.orphans += parent is None and line.parent is not None
            place = Place(line.id, line.parent, line.role, line.revision, line.offset, line.length, branch, depth)
            placed[line.id] = place
            layout.places.append(place)
    return layout


def _ancestry(entry_id: str, entries: Mapping[str, EntryLine], placed: Mapping[str, Place]) -> list[EntryLine]:
    """The entry and those of its ancestors that have no place yet; a circle is cut where it closes."""
    chain: dict[str, EntryLine] = {}
    current: str | None = entry_id
    while current is not None and current not in placed and current not in chain and current in entries:
        chain[current] = entries[current]
        current = entries[current].parent
    return list(chain.values())


def read_place(row: Sequence[Any]) -> Place:
    """A place from its row in the index."""
    place = Place(*row)
    place.revision %= 2**64
    return place


def signed(number: int) -> int:
    """An unsigned 64-bit number as SQLite keeps it."""
    return number - 2**64 if number >= 2**63 else number
