"""The archive protocol: an engine keeps rows and finds them. It knows no agent and no rule of a toolset.

Any number of processes and threads read. One process at a time is the writer, and a batch is written whole or not at
all. `archive/local` is SQLite and tantivy; `tests/archive/test_conformance.py` is what every engine must pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, overload

from msgspec import Struct

from ..model import EVENT_TYPES, EventRef, EventType, Ref, SessionRef, TurnRef
from .errors import ArchiveBusy, ArchiveError, DeadlineExceeded
from .query import Query
from .ranking import Evidence
from .rows import Batch, EventRow, ExchangeRow, FileRow, FolderRow, Head, Mode, SessionRow, SyncState, TurnRow, UsageRow
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
    "ExchangeRow",
    "ExchangesRequest",
    "FileRow",
    "FilesRequest",
    "FolderRow",
    "Folders",
    "Found",
    "Head",
    "Hit",
    "Mode",
    "OpenedEvent",
    "OpenedSession",
    "OpenedTurn",
    "Part",
    "Reader",
    "SearchRequest",
    "SessionRow",
    "SessionsRequest",
    "SyncState",
    "Term",
    "Totals",
    "TurnRow",
    "UsageRow",
    "Writer",
    "any_folder",
]


class SearchRequest(Struct, frozen=True, kw_only=True):
    query: str
    types: tuple[EventType, ...]
    limit: int = 10
    session: str | None = None
    turn: int | None = None
    """With `session`: only this turn."""
    project: str | None = None
    """Part of a project's path or identity, in any case."""
    source: str | None = None
    since: int | None = None
    until: int | None = None
    explain: bool = False
    """Fill `Hit.matched`."""
    here: str | None = None
    """The folder that the caller works in: its project is preferred a little."""
    totals: tuple[int, ...] | None = None
    """Fill `Found.totals`; these are the times for `Totals.since`."""
    deadline: float | None = None
    """`time.monotonic()` after which DeadlineExceeded is raised."""


class Term(Struct, frozen=True, kw_only=True):
    """A word of a query, as the index knows it."""

    word: str
    documents: int
    """The number of events with the word."""
    read_as: tuple[str, ...] = ()
    """Similar words that the search takes instead, for a word that no event has."""


class Hit(Struct, kw_only=True):
    score: float
    """0 < score <= 1"""
    event: EventRow
    turn: TurnRow
    session: SessionRow
    evidence: Evidence
    """The parts of the score."""
    matched: Mapping[str, list[str]] = {}
    """The words of the query that it matches, by field: `text`, `stem` or `title`."""


class Totals(Struct, kw_only=True):
    """All matches of a search, not only its best ones: events with any of its words, with all of its quoted phrases.
    Sessions that match by their titles alone are not among them."""

    events: int
    """Matches of the requested types, as in every field but `types`."""
    types: dict[EventType, int]
    """Of all types."""
    sources: dict[str, int]
    projects: dict[str, int]
    """By path."""
    models: dict[str, int]
    branches: dict[str, int]
    """By the branch of their sessions."""
    failed: int
    """Outputs of tool calls that failed."""
    sessions: dict[str, int]
    """By key, for the sessions of the hits alone."""
    since: list[int]
    """For each time of the request, the number of matches from it on."""


class Found(Struct, kw_only=True):
    """Hits in order: by score, then the newest, then by event id."""

    query: Query
    """The query as parsed; snippets show its terms."""
    hits: list[Hit]
    more: bool
    """The query has matches beyond these."""
    documents: int
    """The number of searchable events in the archive."""
    terms: Sequence[Term] = ()
    totals: Totals | None = None
    """None if they were not asked for, or are not known: the words are too common for the engine to count, the request
    is for a part of a team's archive, an older index is being replaced, or no session can match."""
    known: bool = True
    """False if the session or turn that the request names does not exist."""


class Part(Struct, frozen=True, kw_only=True):
    """Some of a session's turns or of a turn's events, in their order; by default all. Conditions are joined by AND."""

    types: tuple[EventType, ...] = EVENT_TYPES
    """Only events of these types; only turns that have such events."""
    uids: tuple[bytes, ...] | None = None
    """Only events with these uids, in no particular order."""
    above: int = 0
    """Only with an ordinal above this one; likewise below."""
    below: int | None = None
    limit: int | None = None
    around: int | bytes | None = None
    """Only the turn or event with this ordinal or uid (for turns: of one of its events), `before` rows before it and
    `after` rows after it. Those are of the given types; the row itself may be of any. Nothing if it does not exist."""
    before: int = 0
    after: int = 0
    heads: int = 0
    """The number of characters in `TurnRow.prompt_head` and `response_head`; 0 leaves them out."""
    usage: bool = False
    """Fill `TurnRow.usage`."""
    texts: bool = True
    """False leaves `EventRow.text` and `arguments` empty."""


EVERYTHING = Part()

Folders = Callable[[str], bool]
"""Selects project folders by name."""


def any_folder(name: str) -> bool:
    """Selects every project folder."""
    return True


class SessionsRequest(Struct, frozen=True, kw_only=True):
    """Conditions on sessions, joined by AND."""

    keys: tuple[str, ...] | None = None
    prefix: str | None = None
    """The beginning of the agent's own session id."""
    parent: str | None = None
    """Key of the session that started them."""
    folders: Folders | None = None
    """Only sessions that an agent keeps in these project folders and that no other session started, also those without
    events of their own. They are ordered by `last_at`; of the other conditions only `source` and `limit` apply."""
    start: int | None = None
    end: int | None = None
    """Only sessions with activity between these times."""
    mode: Mode | None = None
    project: str | None = None
    """Part of the working directory or of the identity of the project, in any case."""
    source: str | None = None
    cwds: tuple[str, ...] | None = None
    placed: bool = False  # only sessions that have a `SessionRow.project`
    empty: bool = False  # also sessions without events
    order: Literal["updated_at", "started_at"] = "updated_at"
    ascending: bool = False
    """Ties are broken by the session id, in the same direction."""
    after: tuple[int, str] | None = None
    """(time, session id) of the last session of the page before."""
    limit: int | None = None
    deadline: float | None = None


class ExchangesRequest(Struct, frozen=True, kw_only=True):
    """The exchanges of a session in order, or with a query the best matches: by score, then the newest."""

    session: str | None = None
    query: str | None = None
    folders: Folders | None = None
    """With a query: only exchanges of sessions in these folders."""
    first: int = 0
    """Without a query: only from this number on."""
    limit: int | None = None
    events: int | None = None
    """The number of events of each exchange in `Exchange.said`; None: all."""
    texts: bool = True
    """False leaves `Exchange.said` and `user_text` empty."""


class Exchange(Struct, kw_only=True):
    """An exchange with the events in it."""

    row: ExchangeRow
    session: SessionRow
    user_text: str | None
    """The text of the user record; None before the first one."""
    said: list[EventRow]
    """The answers and tool calls, in order."""
    score: float = 0.0
    """BM25 of the query."""


class OpenedSession(Struct, kw_only=True):
    """A session and its surroundings."""

    session: SessionRow
    turns: list[TurnRow]
    total: int
    """The number of turns with events of the types asked for."""
    previous: str | None
    """Key of the session that started before it, in the same project and source; likewise after."""
    next: str | None
    parent: str | None
    """Key of the session that started it, if the archive has that."""
    children: list[str]


class OpenedTurn(Struct, kw_only=True):
    """A turn and its surroundings."""

    session: SessionRow
    turn: TurnRow
    events: list[EventRow]
    total: int
    """The number of events of the types asked for."""
    first: bytes | None
    last: bytes | None
    has_previous: bool
    has_next: bool


class OpenedEvent(Struct, kw_only=True):
    """An event and its surroundings."""

    session: SessionRow
    turn: TurnRow
    event: EventRow
    events: list[EventRow]
    """Those around it, if `Part.around` is set."""
    previous: bytes | None
    next: bytes | None
    has_previous_turn: bool
    has_next_turn: bool
    children: list[str]
    """Keys of the sessions that this tool call started."""


Opened = OpenedSession | OpenedTurn | OpenedEvent


class Counts(Struct, kw_only=True):
    sessions: int
    turns: int
    events: int
    documents: int
    """Events in the search index."""
    files: int
    files_with_errors: int
    files_missing: int
    by_source: dict[str, int]
    """Sessions per source."""
    bytes: int


class FilesRequest(Struct, frozen=True, kw_only=True):
    """None does not filter."""

    states: bool = True
    """Without them, which can be large, `FileRow.state` is an empty mapping where there is a state."""
    stamps: bool = False
    """Only path, source, inode, size and time of the files that are not missing. Without a limit, in any order."""
    paths: Sequence[str] | None = None
    source: str | None = None
    below: str | None = None  # a folder
    newest: int | None = None
    """At most so many: those that changed last, the latest first."""
    after: str | None = None
    limit: int | None = None
    """Only paths beyond this one, and at most so many, in the order of paths."""
    naming: str | None = None
    """Only files with this among their `names`; an engine may add others."""


ALL_FILES = FilesRequest()


class Reader(Protocol):
    """Reads of rows, common to an archive and its writer. They see everything that is committed."""

    def sessions(self, request: SessionsRequest) -> list[SessionRow]: ...
    def turns(self, key: str, part: Part = EVERYTHING) -> list[TurnRow]: ...
    def turn_keys(self, key: str) -> frozenset[str]:
        """The agent's own ids of the turns of a session, also of a forgotten one."""

    def events(self, key: str | None = None, turn: int | None = None, part: Part = EVERYTHING) -> list[EventRow]: ...
    def exchanges(self, request: ExchangesRequest) -> Iterator[Exchange]:
        """Read in portions: a request may match the whole archive."""

    def files(self, request: FilesRequest = ALL_FILES) -> Iterator[FileRow]:
        """The transcripts that were read, by path."""

    def forgotten(self, digests: Sequence[bytes]) -> frozenset[bytes]:
        """Those that belong to forgotten sessions: uids of events, keys of usage, `session_mark` of a session."""

    def sync_state(self, *, folders: bool = False) -> SyncState:
        """`folders`: fill `SyncState.folders`."""

    def close(self) -> None: ...

    def session(self, key: str) -> SessionRow | None:
        """One session by its key, also without events. Defined here, by `sessions`, for every engine."""
        return next(iter(self.sessions(SessionsRequest(keys=(key,), empty=True))), None)


class Archive(Reader, Protocol):
    """Reading, from any thread."""

    @property
    def spans(self) -> Spans:
        """The traces: of its turns, and those that were received."""

    def search(self, request: SearchRequest) -> Found: ...
    @overload
    def open(self, ref: SessionRef, part: Part = EVERYTHING) -> OpenedSession | None: ...
    @overload
    def open(self, ref: TurnRef, part: Part = EVERYTHING) -> OpenedTurn | None: ...
    @overload
    def open(self, ref: EventRef, part: Part = EVERYTHING) -> OpenedEvent | None: ...
    def open(self, ref: Ref, part: Part = EVERYTHING) -> Opened | None:
        """All that is shown of a session, turn or event; `part` selects the turns or events in it."""
        return self._open(ref, part)

    def _open(self, ref: Ref, part: Part) -> Opened | None:
        """`open` as an archive implements it, without its overloads."""

    def counts(self) -> Counts: ...
    def forget(self, key: str, *, remember: bool = True, wipe: bool = True) -> None:
        """Request that the writer, in any process, deletes a session and those it started, with all their rows. The
        request survives a crash; it is in `sync_state().forgetting` until it is done.

        `remember`: keep digests of what was deleted, by which it is recognised and not read again.
        `wipe`: rewrite the files of the archive, so that no byte of it is left in them. That takes as long as building
        the index. Without it, deleted words may stay in the files for a while, where no search finds them.
        """

    def writer(self) -> Writer:
        """Raises ArchiveBusy when another process writes."""


class Writer(Reader, Protocol):
    """The one process that writes. Close it to let another take over; if it dies, another can at once."""

    def recover(self, *, reindex: bool = False) -> None:
        """Complete what is pending: documents that a dead writer left out of the index, requests to forget sessions.
        To be called before the first write, and when `sync_state().forgetting` is not empty; rows of files and
        sessions that were read before are not valid afterwards. `reindex` builds a new search index and swaps it in."""

    def write(self, batch: Batch) -> None:
        """Commit a batch: durable and readable by all when this returns; searchable after `flush`."""

    def flush(self, *, wait: bool = True) -> None:
        """Make everything written so far searchable by all processes; without `wait`, soon."""

    def bulk(self, size: int) -> AbstractContextManager[None]:
        """Around the reading of `size` bytes: batches are committed, in order, by its end or the writer's next read."""
