"""The owner of a turn that several transcripts share, independent of the order of reading.

Transcripts copy one another: forks, resumes, copies of a file, subagents that the transcript of their session repeats.
What they share belongs to the one that comes first in their order (`Transcript.after`, then `rank`), and within one
sync they are read in that order. Across syncs a copy may come before its original, or before its original has grown to
where it was copied. Reading notices that here, and names the sessions that have to be read again, in order: the archive
depends on what the files hold, not on when they came.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from ..archive.base import ALL_FILES, FileRow, FilesRequest, SessionRow
from ..model import session_mark
from ..sources.base import Event, Item, Transcript, Usage
from .scan import STORED, Changed
from .turns import Added
from .walk import stored_path

_STANDING = "standing"
# For so few changes the transcripts that they concern are looked up, one by one; there may be tens of thousands.
_FEW = 16
Order = tuple[tuple[int, str], str]
_K = TypeVar("_K")


class Standing(Struct, omit_defaults=True):
    """A transcript as it was when it was last read; kept with the state of its parser."""

    family: str = ""
    rank: tuple[int, str] = (0, "")
    after: tuple[str, ...] = ()
    feeds: bool = False
    turn: int | None = None
    """The turn of its session in which reading stopped, 0 for none of them; None is the latest one."""
    upto: int | None = None
    """It has no events, only usage up to this time."""
    again: tuple[str, ...] = ()
    """Sessions that were read too early, as this transcript has shown, and are not read again yet."""
    repeats: tuple[bytes, ...] = ()
    """Digests of what it has parts of beside its own session: other sessions, and an event that was forgotten."""
    had: tuple[int, bytes] | None = None
    """It was cut or rewritten after it was read to this offset, and had this prefix (`FileRow.prefix`): the archive may
    have more of its session than it."""

    @classmethod
    def of(cls, transcript: Transcript) -> Standing:
        return cls(transcript.family or transcript.session, transcript.rank, transcript.after, transcript.feeds)

    def join(self, state: Mapping[str, Any] | None) -> dict[str, Any]:
        return {**(state or {}), _STANDING: msgspec.to_builtins(self)}

    @staticmethod
    def split(state: Mapping[str, Any] | None) -> tuple[Standing | None, dict[str, Any] | None]:
        """The standing of a file, where it was noted, and the state of its parser."""
        if state is None or _STANDING not in state:
            return None, None if state is None else dict(state)
        rest = {name: value for name, value in state.items() if name != _STANDING}
        try:
            return msgspec.convert(state[_STANDING], Standing), rest
        except msgspec.ValidationError:
            return None, rest


def settled(row: FileRow, size: int) -> FileRow:
    """The row of a transcript after the sessions in `Standing.again` were read again."""
    standing, state = Standing.split(row.state)
    if standing is None:
        return row
    return msgspec.structs.replace(row, size=size, state=msgspec.structs.replace(standing, again=()).join(state))


def repeated(row: FileRow) -> set[bytes]:
    """Digests of the sessions, and of forgotten events, that a transcript has parts of beside its own session."""
    standing, state = Standing.split(row.state)
    named = {*(standing.after if standing else ()), *_ancestors(state)} - {row.session}
    return {*(session_mark(f"{row.source}/{name}") for name in named), *(standing.repeats if standing else ())}


class _Kept(Struct, frozen=True):
    """The part of the state of a transcript that others need."""

    standing: Standing | None
    ancestors: tuple[str, ...]


class Families:
    """The transcripts that were read, by session, by family and by the sessions they copy from.

    `rows` are without their states, which `load` reads: all of them when much has changed, else those of the sessions
    and families that are asked for.
    """

    def __init__(self, rows: Mapping[str, FileRow], load: Callable[[FilesRequest], Iterable[FileRow]]) -> None:
        self._rows = rows
        self._load = load
        self._is_complete = False
        self._looked_up: set[tuple[str, str]] = set()
        self._kept: dict[str, _Kept] = {}
        # Nearly all have one member: tuples take a quarter of the memory of sets.
        self._by_session: dict[str, tuple[str, ...]] = {}
        self._by_family: dict[tuple[str, str], tuple[str, ...]] = {}
        self._copies: dict[str, set[str]] = defaultdict(set)
        self.read_whole: set[str] = set()
        """The transcripts that this sync has read from their start."""

    def open(self, changes: int) -> None:
        """To be called before so many transcripts are read."""
        self.read_whole.clear()
        if changes > _FEW and not self._is_complete:
            self._is_complete = True
            self._add(self._load(ALL_FILES))

    def _look_up(self, source: str, name: str) -> None:
        """Load the transcripts that have a name, unless that was done."""
        if not self._is_complete and (source, name) not in self._looked_up:
            self._looked_up.add((source, name))
            self._add(self._load(FilesRequest(source=source, naming=name)))

    def _add(self, rows: Iterable[FileRow]) -> None:
        for row in rows:
            if row.path not in self._kept:  # else it was noted since, and may not be committed yet
                self.note(row)

    def note(self, row: FileRow) -> None:
        """A transcript was read, as far as its row says, which gets its names."""
        if not row.session:
            return
        key = f"{row.source}/{row.session}"
        _include(self._by_session, key, row.path)
        standing, state = Standing.split(row.state)
        kept = self._kept[row.path] = _Kept(standing, _ancestors(state))
        origins = {*(standing.after if standing else ()), *kept.ancestors} - {row.session}
        row.names = (row.session, *origins)
        if standing is not None:
            row.names += (standing.family,)
            _include(self._by_family, (row.source, standing.family), row.path)
        for origin in origins:
            self._copies[f"{row.source}/{origin}"].add(key)

    def drop(self, row: FileRow) -> None:
        """A transcript is as if it had never been read."""
        _exclude(self._by_session, f"{row.source}/{row.session}", row.path)
        for family in [family for family, paths in self._by_family.items() if row.path in paths]:
            _exclude(self._by_family, family, row.path)
        self._kept.pop(row.path, None)

    def files(self, key: str) -> list[FileRow]:
        """The transcripts of a session that were read, those that are gone among them."""
        source, _, session = key.partition("/")
        self._look_up(source, session)
        return [row for path in self._by_session.get(key, ()) if (row := self._rows[path]).state is not None]

    def relatives(self, source: str, family: str) -> list[FileRow]:
        self._look_up(source, family)
        paths = self._by_family.get((source, family), ())
        return [row for path in paths if (row := self._rows[path]).state is not None and not row.missing]

    def copies(self, key: str) -> set[str]:
        """The sessions that may have copied from a session."""
        source, _, session = key.partition("/")
        self._look_up(source, session)
        return self._copies.get(key, set())

    def standing(self, row: FileRow) -> Standing | None:
        """Noted when it was read."""
        self._look_up(row.source, row.session)
        kept = self._kept.get(row.path)
        return kept.standing if kept else None

    def has_events(self, row: FileRow) -> bool:
        """True unless all that was read of a transcript was usage."""
        standing = self.standing(row)
        return standing is None or standing.upto is None

    def has_all(self, row: FileRow) -> bool:
        """True if a transcript can be read, and has all that was ever read of it. Of a session in a store, that is only
        known in the sync that read it from its start."""
        if self.is_stored(row):
            return not row.missing and row.path in self.read_whole
        kept = self._kept.get(row.path)
        is_rewritten = kept is not None and kept.standing is not None and kept.standing.had is not None
        return not row.missing and not is_rewritten and os.access(row.path, os.R_OK)

    def is_stored(self, row: FileRow) -> bool:
        """True for a session of a store."""
        standing = self.standing(row)
        return standing is not None and standing.rank == STORED

    def precedes(self, transcript: Transcript, row: FileRow) -> bool:
        """True if a transcript comes before another one that was read: it owns the turns that they share."""
        standing = self.standing(row)
        if standing is None or row.session in transcript.after:
            return False
        kept = self._kept.get(row.path)
        if transcript.session in (*standing.after, *(kept.ancestors if kept else ())):
            return True
        if row.session != transcript.session and standing.rank == transcript.rank:
            return False  # the original cannot be determined
        return _order(transcript) < (standing.rank, row.path)


def _include(groups: dict[_K, tuple[str, ...]], key: _K, path: str) -> None:
    members = groups.get(key, ())
    if path not in members:
        groups[key] = (*members, path)


def _exclude(groups: dict[_K, tuple[str, ...]], key: _K, path: str) -> None:
    groups[key] = tuple(member for member in groups.get(key, ()) if member != path)


def _ancestors(state: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The sessions whose turns a parser leaves out, from its state (`Parser.state`)."""
    named = (state or {}).get("ancestors", ())
    return tuple(name for name in named if isinstance(name, str)) if isinstance(named, list | tuple) else ()


def _order(transcript: Transcript) -> Order:
    return transcript.rank, stored_path(transcript.path)


class Contents(Protocol):
    """The sessions and turns that were read so far, committed or not."""

    def session_row(self, key: str) -> SessionRow | None: ...
    def turn_keys(self, key: str) -> frozenset[str]: ...


class Watch:
    """Notices, while one transcript is read, which sessions were read too early because of it."""

    def __init__(self, families: Families, contents: Contents, change: Changed) -> None:
        self._families = families
        self._contents = contents
        self._transcript = change.transcript
        self._path = stored_path(change.path)
        self._key = f"{change.source.name}/{change.transcript.session}"
        self._owners: set[str] = set()
        self._turn_keys: set[str] = set()
        self._copies: dict[str, frozenset[str]] | None = None
        self._had_turns = bool(contents.turn_keys(self._key))
        self._since: int | None = None
        before = change.before
        self._is_new = before is None or before.state is None
        standing = None if before is None or self._is_new else self._families.standing(before)
        self._upto = standing.upto if standing else None
        self._speaks = standing is not None and standing.upto is None
        self._repeats = set(standing.repeats if standing else ())
        self.again: set[str] = set(standing.again if standing else ())
        """The sessions to read again."""
        self._see_order(change.source.name, standing)

    def standing(self, turn: int | None, had: tuple[int, bytes] | None) -> Standing:
        """The standing to keep with the row of the transcript."""
        standing = Standing.of(self._transcript)
        standing.turn, standing.again = turn, tuple(sorted(self.again))
        standing.upto = None if self._speaks else self._upto or 0
        standing.repeats = tuple(sorted(self._repeats))
        standing.had = had
        return standing

    def _see_order(self, source: str, standing: Standing | None) -> None:
        """Find sessions that were read too early by the order of the files alone."""
        others = self._others()
        fed = standing is not None and standing.feeds
        if self._transcript.feeds and not fed and any(row.path not in self._families.read_whole for row in others):
            self.again.add(self._key)
        if self._is_new:
            if any(self._families.precedes(self._transcript, row) for row in others if self._families.has_events(row)):
                self.again.add(self._key)
            session = self._contents.session_row(self._key)
            if session is not None and session.event_count and session.parent and not self._families.files(self._key):
                # As long as it had no transcript of its own, that of the session that started it had its events.
                self.again |= {self._key, *self._roots(session.parent)}
        elif standing is not None and standing.rank != self._transcript.rank:
            self._see_growth(source, standing)

    def _see_growth(self, source: str, standing: Standing) -> None:
        """Find sessions that were read too early because the rank of this transcript has changed since."""
        then, now = (standing.rank, self._path), _order(self._transcript)
        for row in self._families.relatives(source, standing.family):
            known = self._families.standing(row)
            if known is not None and row.path != self._path:
                other = (known.rank, row.path)
                if (then < other) != (now < other):
                    self.again |= {self._key, f"{source}/{row.session}"}

    @property
    def is_alone(self) -> bool:
        """True if no other transcript of the session is there; one that was moved is not noted as missing yet."""
        return not any(Path(row.path).exists() for row in self._others())

    def _others(self) -> list[FileRow]:
        rows = self._families.files(self._key)
        return [row for row in rows if row.path != self._path and not row.missing]

    def see(self, items: Iterable[Item], added: Added) -> None:
        """Note items that were added to the rows, and what became of them."""
        if added.since is not None:
            self._since = added.since if self._since is None else min(self._since, added.since)
        self._repeats.update(added.forgotten, map(session_mark, added.others))
        for item in items:
            self._speaks = self._speaks or isinstance(item, Event)
            if isinstance(item, Usage) and item.ts:
                self._upto = max(self._upto or 0, item.ts)
        for owner in added.owners:
            if owner not in self._owners:
                self._owners.add(owner)
                self._repeats.add(session_mark(owner))
                self._see_owner(owner)
        keys = {item.turn_key for item in items if isinstance(item, Event) and item.turn_key} - self._turn_keys
        if keys:
            self._turn_keys |= keys
            self._see_turns(keys)

    def _see_owner(self, owner: str) -> None:
        roots = list(self._roots(owner))
        files = [row for root in roots for row in self._families.files(root)]
        if any(self._families.precedes(self._transcript, row) for row in files if row.path != self._path):
            self.again |= {self._key, *roots}

    def _roots(self, key: str | None) -> Iterator[str]:
        """The session, or if it has no transcript of its own, the one whose transcript has its events."""
        for _ in range(8):
            if key is None:
                return
            if self._families.files(key):
                yield key
                return
            row = self._contents.session_row(key)
            key = row.parent if row else None

    def _see_turns(self, keys: set[str]) -> None:
        if self._copies is None:
            copies = self._families.copies(self._key)
            self._copies = {key: self._contents.turn_keys(key) for key in copies if self._families.files(key)}
        for key, taken in self._copies.items():
            if not self._had_turns or taken & keys:
                self.again.add(key)

    def end(self) -> None:
        """The transcript was read to its end."""
        if self._since is None:
            return
        for row in self._others():
            standing = self._families.standing(row)
            upto = standing.upto if standing else None
            if self._families.precedes(self._transcript, row) if upto is None else self._since <= upto:
                self.again.add(self._key)
