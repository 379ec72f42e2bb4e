"""Sharing: the rules by which sessions may leave this machine, without which none may, and the parcels that leave.

A parcel has rows on their way to the archive of a team, without secrets, in pieces of bounded size.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from ..archive.base import Archive, Batch, EventRow, ExchangeRow, ExchangesRequest, Part, SessionRow, TurnRow, UsageRow
from ..archive.changes import Journal
from ..config import ConfigError, TeamSettings, expand_home, user_home
from ..egress import egress
from ..egress.rules import RULES
from ..model import EventType, digest, parse_time
from .outbox import EVERYTHING, STATE_BYTES

_WILDCARD = re.compile(r"[*?]|\[[^]]*\]")
# Received spans are no sessions of an agent; live sessions have other participants.
_NEVER = frozenset({"otel", "live"})
# All fields with text that stands in a transcript, except for the keys of sessions.
TEXTS: dict[type[Struct], tuple[str, ...]] = {
    SessionRow: (
        *("title", "summary", "slug", "folder", "cwd", "last_cwd", "project", "branch", "version", "parent_call"),
    ),
    TurnRow: ("tools", "turn_key"),
    EventRow: ("text", "tool", "model", "originating_model", "arguments", "cwd", "extra", "call_id"),
    ExchangeRow: ("user_text",),
    UsageRow: ("model", "stop_reason", "request"),
}
FORMAT = digest("parcel 1", *sorted(RULES))
"""Another value means that the same rows make other parcels: other rules redact them."""
# Of a parcel: a server writes few large parts faster than many small ones, and memory stays small.
MOST_EVENTS = 2_000
MOST_CHARS = 4_000_000
# The state of an event is half its uid, half its fingerprint.
_HALF = STATE_BYTES // 2
_ROW_CHARS = 500


class Projects:
    """Patterns of projects. One matches a project by the identity of its repository (`github.com/acme/*`) or by its
    folder (`~/work/shop`), and then also what is below it; `*` matches everything, `/` included."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        expanded = (str(expand_home(each, user_home())) if each.startswith("~") else each for each in patterns if each)
        self._match = _pattern(tuple(each.rstrip("/") for each in expanded))

    @property
    def everything(self) -> bool:
        return "*" in self.patterns

    @property
    def literals(self) -> list[str]:
        """For each pattern its longest part without wildcards, which every match contains; none if one has no such
        part."""
        longest = [max(_WILDCARD.split(pattern), key=len) for pattern in self.patterns]
        return longest if all(longest) else []

    def match(self, row: SessionRow) -> bool:
        return self.everything or any(self.match_name(name) for name in (row.project, row.cwd) if name)

    def match_name(self, name: str) -> bool:
        """True for the identity or the folder of a project that matches."""
        return self._match.match(name.casefold()) is not None


@lru_cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    forms = [translate(form) for each in patterns for form in (each.casefold() or "/", f"{each.casefold()}/*")]
    return re.compile("|".join(forms) or r"(?!)")


class Sharing:
    """The rules of `[team]`. Raises ConfigError for a `since` that is no time."""

    def __init__(self, settings: TeamSettings) -> None:
        self._projects = Projects(settings.projects)
        self._agents = frozenset(settings.agents)
        self._since = 0
        if settings.since:
            since = parse_time(settings.since)
            if since is None:
                raise ConfigError(f"team.since: {settings.since!r} is not a date (2026-01-31) or an RFC 3339 time")
            self._since = since

    def covered(self, sessions: Mapping[str, SessionRow], withheld: Collection[str]) -> set[str]:
        """The keys of the sessions that are to be shared, of all sessions of the archive."""
        return {key for key in sessions if self._covers(key, sessions, withheld) and is_clean_key(key)}

    def _covers(self, key: str, sessions: Mapping[str, SessionRow], withheld: Collection[str]) -> bool:
        """A session is covered if it matches and all those that led to it do; a subagent without a project takes that
        of the session that started it."""
        row = sessions[key]
        seen = set()
        has_project = False
        while True:
            if row.key in withheld or row.key in seen or row.source in _NEVER:
                return False
            seen.add(row.key)
            if row.cwd or row.project:
                has_project = True
                if not self._projects.match(row):
                    return False
            if (self._agents and row.source not in self._agents) or row.started_at < self._since:
                return False
            if row.parent is None or row.parent not in sessions:
                # One without a project is covered by `*` alone.
                return has_project or self._projects.everything
            row = sessions[row.parent]


# Parcels


class Parcel(Struct, kw_only=True):
    """Rows of sessions that one machine shares."""

    machine: str
    batch: Batch
    known: list[str] = []
    """Keys of the sessions in it whose other rows were accepted before."""
    asked: list[str] = []
    """Keys of sessions that were accepted before: the receipt names those that are no longer there."""


class Refusal(Struct, frozen=True):
    """The reason why a session was not accepted."""

    code: str
    """`project`, `owner`, `forgotten`, or `conflict`: the server has other rows of it, so all of them are needed."""
    message: str


class Receipt(Struct, kw_only=True):
    """The answer to a parcel: what it has of all other sessions is durable."""

    refused: dict[str, Refusal] = {}
    gone: list[str] = []
    """Of the sessions that were asked for, those that the server does not have of this member."""


def seal(batch: Batch) -> Batch:
    """Redact the rows of a batch, in place, as with `redact = "ingest"`. Nothing leaves this machine otherwise."""
    for event in batch.events:
        if event.type is EventType.TOOL_CALL:
            event.text = ""  # it is made from the arguments
    places = list(_places(batch))
    values: list[Any] = [getattr(row, name) for row, name in places]
    for (row, name), value in zip(places, egress(values, "ingest"), strict=True):
        setattr(row, name, tuple(value) if name == "tools" else value)
    return batch


def is_clean_key(key: str) -> bool:
    """True for the key of a session that may leave: it cannot be redacted, for it is what the session is known by."""
    return egress(key, "ingest") == key


def _places(batch: Batch) -> Iterator[tuple[Struct, str]]:
    for rows in (batch.sessions, batch.turns, batch.events, batch.exchanges, batch.usage):
        for row in rows:
            for name in TEXTS[type(row)]:
                if getattr(row, name):
                    yield row, name


def fingerprint(row: Struct) -> bytes:
    """A short digest of the content of a row."""
    return blake2b(msgspec.msgpack.encode(row), digest_size=_HALF).digest()


class Rewritten(Exception):
    """The archive has other rows in places whose rows were sent: the session was read anew."""


class Piece(Struct, kw_only=True):
    """Some rows of one session, and the state of the outbox once the server has them."""

    batch: Batch
    size: int
    """Its events, and the characters in it."""
    chars: int
    turn: int | None = None
    states: bytes = b""
    """Of the events of the turn."""
    last: bool = False
    """The last piece of its session; the fields below are only of this one."""
    row: bytes = b""
    exchanges: bytes = b""


class Known(NamedTuple):
    """The rows of a session that the server has."""

    turns: Mapping[int, bytes]
    exchanges: bytes


class Packing:
    """Packs from an archive. Rows are redacted before they are compared or sent."""

    def __init__(self, archive: Archive, journal: Journal) -> None:
        self._archive = archive
        self._journal = journal

    def pack(self, session: SessionRow, due: set[int], known: Known) -> Iterator[Piece]:
        """The pieces of a session, each with its row. Raises Rewritten before the first or between any two."""
        row = seal(Batch(sessions=[session])).sessions[0]
        turns = {turn.ordinal: turn for turn in self._turns(row.key, due)}
        if any(ordinal > session.turn_count for ordinal in known.turns):
            raise Rewritten
        for ordinal, turn in turns.items():
            yield from self._pack_turn(row, turn, known.turns.get(ordinal, b""))
        changed, states = self._exchanges(row, known.exchanges)
        batch = Batch(sessions=[row], exchanges=changed)
        chars = _ROW_CHARS + sum(_ROW_CHARS + len(each.said) + len(each.user_text or "") for each in changed)
        yield Piece(batch=batch, size=0, chars=chars, last=True, row=fingerprint(row), exchanges=states)

    def _turns(self, key: str, due: set[int]) -> list[TurnRow]:
        if EVERYTHING in due:
            return self._archive.turns(key, Part(usage=True))
        found = []
        for ordinal in sorted(due - {0}):
            found += self._archive.turns(key, Part(above=ordinal - 1, below=ordinal + 1, usage=True))
        return found

    def _pack_turn(self, session: SessionRow, turn: TurnRow, known: bytes) -> Iterator[Piece]:
        usage, turn.usage = turn.usage, []
        events = self._events(session, turn.ordinal)
        seal(Batch(turns=[turn], events=events, usage=usage))
        states = [event.uid[:_HALF] + fingerprint(event) for event in events]
        before = [known[start : start + STATE_BYTES] for start in range(0, len(known), STATE_BYTES)]
        if len(before) > len(states) or any(
            old[:_HALF] != new[:_HALF] for old, new in zip(before, states, strict=False)
        ):
            raise Rewritten
        chosen: list[EventRow] = []
        chars = 0
        reached = 0
        for place, (event, state) in enumerate(zip(events, states, strict=True)):
            if place < len(before) and before[place] == state:
                continue
            if chosen and (len(chosen) >= MOST_EVENTS or chars >= MOST_CHARS):
                yield _piece(session, turn, chosen, chars, [*states[:reached], *before[reached:]])
                chosen, chars = [], 0
            chosen.append(event)
            chars += _chars(event)
            reached = place + 1
        piece = _piece(session, turn, chosen, chars, states)
        piece.batch.usage = usage
        piece.chars += _ROW_CHARS * len(usage)
        yield piece

    def _events(self, session: SessionRow, turn: int) -> list[EventRow]:
        folders = self._journal.folders(session.key, turn)
        events = self._archive.events(session.key, turn)
        for event in events:
            event.cwd = folders.get(event.uid)
        return events

    def _exchanges(self, session: SessionRow, known: bytes) -> tuple[list[ExchangeRow], bytes]:
        """The exchanges that changed, and the states of all. There may be more than the row of the session counts,
        which was read before: an archive deletes those."""
        request = ExchangesRequest(session=session.key, limit=session.exchange_count, texts=False)
        rows = [found.row for found in self._archive.exchanges(request)]
        seal(Batch(exchanges=rows))
        states = [fingerprint(row) for row in rows]
        if len(known) > _HALF * len(rows):
            raise Rewritten
        changed = [
            row
            for place, (row, state) in enumerate(zip(rows, states, strict=True))
            if known[place * _HALF : (place + 1) * _HALF] != state
        ]
        return changed, b"".join(states)


def _piece(session: SessionRow, turn: TurnRow, events: list[EventRow], chars: int, states: list[bytes]) -> Piece:
    batch = Batch(sessions=[session], turns=[turn], events=events)
    return Piece(
        batch=batch, size=len(events), chars=chars + 2 * _ROW_CHARS, turn=turn.ordinal, states=b"".join(states)
    )


def _chars(event: EventRow) -> int:
    arguments = 0 if event.arguments is None else len(msgspec.json.encode(event.arguments))
    return _ROW_CHARS + len(event.text) + arguments
