"""The changes of an archive, and the two that follow them: the projection of turns to spans, and the outbox of a team.

The rules of both stand above the archive. An engine gives the projection the record to read and a writer for the spans,
and calls it whenever the record has changed. The outbox reads the journal whenever it has time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from ..model import EventType, TurnRef
from .rows import SessionRow, TurnRow, UsageRow
from .spans import Origin, SpanRow, Status


class Changes(Struct, frozen=True):
    """Turns that changed; `until` is the number of the last change among them."""

    until: int
    turns: list[TurnRef]


# The projection


class EventOutline(Struct):
    """An event without its text, except for a prompt and for notes of the runtime."""

    uid: bytes
    turn: int
    ordinal: int
    type: EventType
    ts: int
    text: str = ""
    tool: str | None = None
    model: str | None = None
    usage_key: bytes | None = None
    call_id: str | None = None
    exit_code: int | None = None
    failed: bool | None = None
    extra: Mapping[str, Any] = {}


class LooseUsage(NamedTuple):
    """The usage of a session that has no turn."""

    session: str
    calls: int
    tokens: int


class Record(Protocol):
    """The record, as one projection reads it."""

    def snapshot(self) -> AbstractContextManager[None]:
        """All reads inside see one state of the record."""

    def changes(self, after: int, limit: int) -> Changes | None:
        """The turns of the next changes: about `limit` of them, for a change is not divided. None: no turn changed."""

    def session(self, key: str) -> SessionRow | None: ...
    def children(self, key: str) -> list[SessionRow]:
        """The sessions that a tool call of this session started."""

    def turn(self, ref: TurnRef) -> TurnRow | None: ...
    def events(self, turn: TurnRow) -> list[EventOutline]: ...
    def calls(self, key: str, ids: Iterable[str], turns: range | None = None) -> list[EventOutline]:
        """The tool calls and tool responses with these call ids, in their order; with `turns`, only of those."""

    def usage(self, key: str, turns: Sequence[int]) -> list[UsageRow]:
        """The usage of some turns in the order of time; turn 0 has the usage before the first turn."""

    def loose_usage(self) -> list[LooseUsage]: ...


class TurnSpans(Struct, kw_only=True):
    """The spans of one turn. The first one is the turn as a whole; without any, the turn has no trace."""

    turn: TurnRef
    trace: str = ""
    origin: Origin = Origin()
    spans: list[SpanRow] = []


class KnownTurn(NamedTuple):
    """The trace of a turn that is projected, with the parent and the status of its first span."""

    trace: str
    parent: int | None
    status: Status
    spans: int
    """Of the trace; likewise the tokens."""
    tokens: int | None


class Progress(NamedTuple):
    """The last change of the record that is projected, and the version of the rules that did it."""

    version: str
    change: int


class TurnWriter(Protocol):
    """The spans of turns, as one projection writes them."""

    def progress(self) -> Progress | None:
        """The progress that was written last, but not beyond the record: after a power cut the record may have lost
        changes that are projected already. They come again, under the same numbers."""

    def known(self, turn: TurnRef) -> KnownTurn | None: ...
    def replace(self, turns: Sequence[TurnSpans], progress: Progress) -> None:
        """Replace all spans of these turns, in one transaction with the progress.

        A progress of another version deletes the spans of all turns first.
        """


class Projection(Protocol):
    def follow(self, newest: int, deadline: float) -> int:
        """Project the changes of the record up to `newest`, at least one step of them; past the deadline
        (`time.monotonic()`) the rest is left for the next call. Returns the last change that is projected."""


MakeProjection = Callable[[Record, TurnWriter], Projection]


# The journal


class Mark(Struct, frozen=True):
    """The state of an archive at one moment."""

    archive: str
    """The identity of the archive; another archive at the same path has another one."""
    newest: int
    """The number of the last change."""
    commit: int
    """A number that is new after every commit, also without a change of a turn. It compares within one reader only."""


class Journal(Protocol):
    """Used by one thread."""

    def mark(self) -> Mark: ...
    def changes(self, after: int, limit: int) -> Changes | None:
        """The turns of the next changes, about `limit` of them; turn 0 stands for the session without its turns. None:
        nothing changed."""

    def folders(self, key: str, turn: int) -> dict[bytes, str]:
        """The working directories of the events of a turn, by their uids."""

    def close(self) -> None: ...
