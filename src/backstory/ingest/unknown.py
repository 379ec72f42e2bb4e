"""Records that no parser knows: counted by kind while a transcript is read, kept with its row, added up on demand.

They show that an agent has changed its format. Each is an event of the type `unknown`, whose text is the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from ..archive.base import Archive
from ..model import EventType
from ..sources.base import Event, Item

_STATE = "unknown"
_MOST_KINDS = 20
_SAMPLE_CHARS = 400
_HEAD_CHARS = 4_000
_KIND = re.compile(r'"(?:type|kind|role)"\s*:\s*(?:"([^"\\]{1,80})"|(\d{1,9}))')


class Kind(Struct, omit_defaults=True):
    """The number of records of a kind in a transcript, and the first one of them."""

    count: int = 0
    sample: str = ""


class Unknown(Struct, kw_only=True):
    """A kind of record that no parser knows, as one version of one agent writes it."""

    source: str
    version: str | None
    kind: str
    count: int
    sample: str
    """The beginning of one of them, as it was written: redact it before it is shown."""


class Kinds:
    """The kinds of one transcript."""

    def __init__(self) -> None:
        self._kinds: dict[str, Kind] = {}

    def restore(self, state: dict[str, Any] | None) -> None:
        """Go on with the counts that are kept in the state of a row; they are taken out of it."""
        kept = state.pop(_STATE, None) if state else None
        if kept:
            self._kinds = msgspec.convert(kept, dict[str, Kind])

    def count(self, items: Iterable[Item]) -> None:
        for item in items:
            if isinstance(item, Event) and item.type is EventType.UNKNOWN:
                found = _KIND.search(item.text, 0, _HEAD_CHARS)
                name = found[1] or found[2] if found else "without a type"
                if name in self._kinds or len(self._kinds) < _MOST_KINDS:
                    kind = self._kinds.setdefault(name, Kind(sample=item.text[:_SAMPLE_CHARS]))
                    kind.count += 1

    def keep(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state with the counts in it, if there are any."""
        return {**state, _STATE: msgspec.to_builtins(self._kinds)} if self._kinds else state


def unknown_records(archive: Archive) -> list[Unknown]:
    """Every unknown kind, by agent and version, the most frequent first."""
    found: dict[tuple[str, str | None, str], Unknown] = {}
    for row in archive.files():
        kept = (row.state or {}).get(_STATE)
        if not kept:
            continue
        session = archive.session(f"{row.source}/{row.session}")
        version = session.version if session else None
        for name, kind in msgspec.convert(kept, dict[str, Kind]).items():
            key = (row.source, version, name)
            unknown = found.get(key)
            if unknown is None:
                sample = kind.sample
                unknown = found[key] = Unknown(source=row.source, version=version, kind=name, count=0, sample=sample)
            unknown.count += kind.count
    return sorted(found.values(), key=lambda unknown: (-unknown.count, unknown.source, unknown.kind))
