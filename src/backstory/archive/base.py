"""What an archive is: what can be asked of it, and how it is written.

Readers may be many, in many processes. There is one writer at a time, and a batch is written whole or not at all.
`archive/local` is SQLite and tantivy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from ..model import EVENT_TYPES, EventType
from .errors import ArchiveBusy, ArchiveError, DeadlineExceeded
from .query import Query
from .rows import Batch, EventRow, ExchangeRow, FileRow, Mode, Place, SessionRow, Stamp, TurnRow, UsageRow
from .spans import Spans

__all__ = [
    "EVERYTHING",
    "Archive",
    "ArchiveBusy",
    "ArchiveError",
    "Batch",
    "Counts",
    "DeadlineExceeded",
    "EventRow",
    "Exchange",
    "ExchangeHit",
    "ExchangeRow",
    "ExchangesRequest",
    "FileRow",
    "Folders",
    "Found",
    "Hit",
    "Mode",
    "Part",
    "Place",
    "SearchRequest",
    "SessionRow",
    "SessionsRequest",
    "Stamp",
    "SyncState",
    "TurnRow",
    "UsageRow",
    "Writer",
]


class SearchRequest(Struct, frozen=True, kw_only=True):
    query: str
    types: tuple[EventType, ...]
    limit: int = 10
    session: str | None = None
    turn: int | None = None
    """With `session`: only this turn."""
    project: str | None = None
    """Part of a project's path, in any case."""
    source: str | None = None
    since: int | None = None
    until: int | None = None
    deadline: float | None = None
    """`time.monotonic()` at which the answer is of no use any more."""


class Hit(Struct, kw_only=True):
    score: float
    """0 < score <= 1"""
    event: EventRow
    turn: TurnRow
    session: SessionRow


class Found(Struct, kw_only=True):
    query: Query
    """How the question was understood; its terms are what a snippet shows."""
    hits: list[Hit]
    more: bool
    """Whether the query has matches beyond these."""
    documents: int
    """How many events the archive could have found."""


class Part(Struct, frozen=True, kw_only=True):
    """Some of a session's turns or of a turn's events, in their order; by default all."""

    types: tuple[EventType, ...] = EVENT_TYPES
    """Only events of these types; only turns that have such events."""
    above: int = 0
    """Only with an ordinal above this one; likewise below."""
    below: int | None = None
    limit: int | None = None
    last: bool = False
    """Up to the limit the last ones, not the first."""


EVERYTHING = Part()


class SessionsRequest(Struct, frozen=True, kw_only=True):
    start: int
    end: int
    limit: int = 20
    mode: Mode | None = None
    ascending: bool = False
    after: tuple[int, str] | None = None
    """(updated_at, session id) of the last session of the page before."""
    project: str | None = None
    source: str | None = None
    deadline: float | None = None


Folders = Callable[[str], bool]
"""Decides by its name whether a project folder is asked about."""


class ExchangesRequest(Struct, frozen=True, kw_only=True):
    """Looking for whole exchanges by their words."""

    query: str
    limit: int
    folders: Folders | None = None
    """Only exchanges of sessions in these; None: in any."""
    session: str | None = None


class ExchangeHit(Struct, kw_only=True):
    score: float
    """BM25, as the engine computes it."""
    session: SessionRow
    number: int


class Exchange(Struct, kw_only=True):
    """An exchange with what was said in it."""

    number: int
    ts: int
    user_text: str | None
    """The text of the user record; None: what stands before the first one."""
    said: list[EventRow]
    """The answers and tool calls, in order."""


class SyncState(Struct, kw_only=True):
    """How the latest sync went, or how far it is; written by whoever syncs, read by everyone."""

    started_at: int = 0
    finished_at: int | None = None
    files_total: int = 0
    files_done: int = 0
    first_finished_at: int | None = None
    """When the archive was complete for the first time; None: the first sync is still to come or running."""
    index_behind: bool = False
    read_only: bool = False
    """The archive can be read but not written: it stays as it is."""


class Counts(Struct, kw_only=True):
    sessions: int
    turns: int
    events: int
    files: int
    files_with_errors: int
    files_missing: int
    by_source: dict[str, int]
    """Sessions per source."""
    bytes: int


class Writer(Protocol):
    """The one process that writes. Close it to let another take over; if it dies, another can at once."""

    def recover(self) -> bool:
        """Finish what a writer that died left half done; to be called before the first write. True if it was needed."""

    def rebuild_index(self) -> int:
        """A new search index from everything in the archive, swapped in when it is complete. Gives its size."""

    def files(self) -> dict[str, FileRow]: ...
    def session(self, key: str) -> SessionRow | None: ...
    def turn(self, key: str, ordinal: int) -> TurnRow | None: ...
    def places(self, uids: Sequence[bytes]) -> dict[bytes, Place]: ...
    def events(self, key: str, turn: int) -> list[EventRow]:
        """The events of a turn, in their order."""

    def exchanges(self, key: str, number: int | None = None) -> list[ExchangeRow]:
        """The exchanges of a session: all, or this one."""

    def turn_keys(self, key: str) -> frozenset[str]:
        """The agent's own ids of the turns of a session, also of one that was forgotten."""

    def forgotten(self, digests: Sequence[bytes]) -> frozenset[bytes]:
        """Those that belong to forgotten sessions: uids of events, keys of usage, `session_mark` of a session."""

    def forget_requested(self) -> bool:
        """Forget the sessions that `Archive.forget` was asked for, in any process; True if there were any.

        Afterwards nothing that was read of files or sessions before is valid any more.
        """

    def children(self, key: str) -> list[str]:
        """The keys of the sessions that a session started."""

    def remove(self, keys: Sequence[str]) -> None:
        """Delete sessions with all that is known of them and of their files, so that they can be read again."""

    def write(self, batch: Batch) -> None:
        """Commit a batch: durable and readable by all when this returns; searchable after `flush`."""

    def flush(self, *, wait: bool = True) -> None:
        """Make everything written so far searchable by all processes; without `wait`, soon."""

    def bulk(self, size: int) -> AbstractContextManager[None]:
        """While so many bytes of transcripts are read, it may take more of the machine than otherwise."""

    def sync_state(self) -> SyncState: ...
    def set_sync_state(self, state: SyncState) -> None: ...
    def close(self) -> None: ...


class Archive(Protocol):
    """Reading. All methods see what is committed now, from any thread."""

    @property
    def spans(self) -> Spans:
        """The traces: of its turns, and of whatever else was received."""

    def writer(self) -> Writer:
        """Raises ArchiveBusy when another process writes."""

    def forget(self, key: str, *, remember: bool = True, wipe: bool = True) -> None:
        """Ask the writer, this process or another, to delete a session and those it started, with all that is known
        of them. The request outlives a crash; `forgetting` tells when it is done.

        `remember`: keep digests of what was there, by which it is recognised and not read again.
        `wipe`: rewrite the files of the archive, so that no byte of it is left in them. That takes as long as building
        the index. Without it, the words may stay in the files for a while, where no search finds them.
        """

    def forgetting(self) -> list[str]:
        """The sessions that are asked for and not forgotten yet."""

    def is_forgotten(self, key: str) -> bool: ...
    def search(self, request: SearchRequest) -> Found: ...
    def session(self, key: str) -> SessionRow | None: ...
    def sessions(self, request: SessionsRequest) -> list[SessionRow]: ...
    def conversations(self, source: str, folders: Folders | None, limit: int) -> list[SessionRow]:
        """The top-level sessions that an agent keeps in project folders, the latest activity first. None: of all
        folders."""

    def exchanges(
        self, key: str, first: int = 0, limit: int | None = None, events: int | None = None
    ) -> list[Exchange]:
        """The exchanges of a session from number `first` on, each with its first `events` events; by default all."""

    def search_exchanges(self, request: ExchangesRequest) -> list[ExchangeHit]: ...
    def neighbours(self, session: SessionRow) -> tuple[str | None, str | None]:
        """Keys of the sessions before and after it by start, in the same project and source."""

    def children(self, key: str) -> list[SessionRow]: ...
    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]: ...
    def count_turns(self, key: str, types: Sequence[EventType]) -> int:
        """How many of its turns have events of these types."""

    def turn(self, key: str, ordinal: int) -> TurnRow | None: ...
    def turn_heads(self, turns: Sequence[TurnRow], chars: int) -> dict[bytes, tuple[str, bool]]:
        """How the prompts and responses of some turns of one session begin, and whether there is more of each."""

    def events(self, key: str, turn: int, part: Part = EVERYTHING) -> list[EventRow]: ...
    def count_events(self, key: str, turn: int, types: Sequence[EventType]) -> int: ...
    def event(self, uid: bytes) -> EventRow | None: ...
    def event_heads(self, uids: Sequence[bytes], chars: int) -> dict[bytes, tuple[str, bool]]:
        """The first characters of events' texts, and whether there is more."""

    def end_events(self, key: str, turn: int) -> tuple[bytes | None, bytes | None]:
        """The first and the last event of a turn."""

    def neighbour_events(self, event: EventRow) -> tuple[bytes | None, bytes | None]:
        """The events before and after it in its turn."""

    def usage(self, key: str) -> list[UsageRow]: ...
    def files(self) -> Iterator[FileRow]: ...
    def stamps(self) -> dict[str, Stamp]:
        """Of every transcript that was read, by its path."""

    def counts(self) -> Counts: ...
    def sync_state(self) -> SyncState: ...
    def is_whole(self) -> bool:
        """Whether there is nothing to recover: everything that was written can be found."""

    def close(self) -> None: ...
