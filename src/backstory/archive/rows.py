"""The rows an archive keeps. Times are milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from ..model import EventType

Mode = Literal["web_search", "mcp_internal", "tool_calling", "chat"]


class SessionRow(Struct, kw_only=True):
    """One session."""

    key: str
    source: str
    title: str = ""
    title_rank: int = 0
    summary: str | None = None
    slug: str | None = None
    folder: str | None = None
    """The agent's name for the project: the folder it keeps the project's transcripts in."""
    cwd: str | None = None
    """The first working directory, which is the project of the session; `last_cwd` is the latest."""
    last_cwd: str | None = None
    project: str | None = None
    """The identity of the repository that it is about, the same for clones and worktrees; None if there is none."""
    branch: str | None = None
    version: str | None = None
    parent: str | None = None
    """Key of the session that started this one; `parent_call` is the tool call there."""
    parent_call: str | None = None
    forked_from: str | None = None
    started_at: int = 0
    updated_at: int = 0
    turn_count: int = 0
    event_count: int = 0
    completed: bool = False
    mode: Mode = "chat"
    first_at: int = 0
    """The time of the first record in its transcript that the user or the assistant wrote, copies from another session
    included; likewise `last_at`."""
    last_at: int = 0
    exchange_count: int = 0
    provisional: bool = False
    """Its exchanges were made from its turns by a migration; the next reading of its transcript replaces them."""
    user: str | None = None
    """In the archive of a team: the member that shared it, and the machine that it was shared from."""
    machine: str | None = None


class UsageRow(Struct, kw_only=True):
    """Tokens of one model call; written again under the same key, the larger numbers win."""

    key: bytes
    session: str
    turn: int
    ts: int
    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    stop_reason: str | None = None
    request: str | None = None
    """The provider's id of the call. Telemetry names the same call by it."""


class Head(Struct, frozen=True):
    """The beginning of a text; `more` if it is not all of it."""

    text: str
    more: bool


class TurnRow(Struct, kw_only=True):
    """One turn. `terminal` and `prompt` are uids of events in it."""

    session: str
    ordinal: int
    turn_key: str | None = None
    started_at: int = 0
    updated_at: int = 0
    event_count: int = 0
    prompt: bytes | None = None
    terminal: bytes | None = None
    terminal_type: EventType | None = None
    candidate: bytes | None = None
    """The answer that ends the turn if a prompt comes next."""
    last_answer: bytes | None = None
    tools: tuple[str, ...] = ()
    """Tools called, in the order they were first called; likewise the event types."""
    types: tuple[EventType, ...] = ()
    started_work: bool = False
    """The agent has done something: from here on another prompt is another turn."""
    prompt_head: Head | None = None
    """The beginnings of prompt and response, on reading where `Part.heads` asks for them. They are not written."""
    response_head: Head | None = None
    usage: list[UsageRow] = []
    """The usage of its model calls, on reading where `Part.usage` asks for it; the first turn has what came before
    any. It is not written with the turn."""

    @property
    def completed(self) -> bool:
        return self.terminal is not None

    @property
    def response(self) -> bytes | None:
        """The uid of the answer that it ended with; other endings have none."""
        return self.terminal if self.terminal_type is EventType.ASSISTANT_RESPONSE else None


class EventRow(Struct, kw_only=True):
    """One event. `ordinal` is one-based within its turn."""

    uid: bytes
    session: str
    turn: int
    ordinal: int
    type: EventType
    ts: int
    text: str = ""
    tool: str | None = None
    call_id: str | None = None
    model: str | None = None
    originating_model: str | None = None
    arguments: Any = None
    exit_code: int | None = None
    failed: bool | None = None
    cwd: str | None = None
    usage_key: bytes | None = None
    extra: dict[str, Any] | None = None


class Outcome(Protocol):
    """The success of a tool call, as its response has it."""

    exit_code: int | None
    failed: bool | None


def has_failed(response: Outcome) -> bool:
    """To some agents, a tool has succeeded that ran a command which ended with another code than zero."""
    return bool(response.failed or response.exit_code)


class ExchangeRow(Struct, kw_only=True):
    """One exchange: a user record, and the answers and tool calls up to the next one. The events may belong to another
    session: a fork has the exchanges that it copied."""

    session: str
    number: int
    """Zero-based within its session."""
    ts: int
    user: bytes | None = None
    """The event of the user record; None for what stands before the first one."""
    user_text: str | None = None
    """The text of the user record, where the event has only a part of it."""
    said: bytearray = msgspec.field(default_factory=bytearray)
    """The uids of the answers and tool calls, in order, `UID_BYTES` each."""


class FileRow(Struct, kw_only=True):
    """The progress of reading a transcript, and the properties of the file at that time."""

    path: str
    source: str
    session: str
    inode: int = 0
    size: int = 0
    mtime_ns: int = 0
    offset: int = 0
    prefix: bytes = b""
    """Digest of the bytes at the start and just before `offset`: an append does not change it."""
    state: dict[str, Any] | None = None
    errors: int = 0
    last_error: str | None = None
    missing: bool = False
    names: tuple[str, ...] = ()
    """The agent's own ids of its session, of its family and of the sessions that it may copy from, by which
    `FilesRequest.naming` finds it. But for the session they are texts in its state, where an engine may look for them.
    Names that were written stay; they are not read back."""


STAMP_COLUMNS = ("path", "source", "inode", "size", "mtime_ns")
"""The fields of a `FileRow` by which a change of the file shows."""


def read_stamp(values: Sequence[Any]) -> FileRow:
    path, source, inode, size, mtime_ns = values
    return FileRow(path=path, source=source, session="", inode=inode, size=size, mtime_ns=mtime_ns)


class FolderRow(Struct, frozen=True):
    """A folder that was searched for transcripts, and its time: names added or removed since change the time."""

    path: str
    source: str
    mtime_ns: int
    """0 if the folder had just changed, so that another change need not have shown in its time."""


class SyncState(Struct, kw_only=True, omit_defaults=True):
    """The progress of the latest sync, and what is pending in the archive."""

    started_at: int = 0
    finished_at: int | None = None
    files_total: int = 0
    files_done: int = 0
    first_finished_at: int | None = None
    """The time at which the archive was complete for the first time; None before that."""
    has_projects: bool = False
    """The folders of sessions that were read before sessions had projects were looked at."""
    index_behind: bool = False
    read_only: bool = False
    """The archive can be read but not written: it stays as it is."""
    recovered: bool = True
    """Everything that was written can be found. The fields from here on, and the two above, are computed on reading."""
    forgetting: tuple[str, ...] = ()
    """Keys of sessions that were requested to be forgotten and are not yet."""
    writing: bool = False
    """A process, this one or another, is the writer now."""
    notice: str | None = None
    """A part of the archive that cannot be asked at the moment."""
    folders: tuple[FolderRow, ...] = ()
    """Those that the last complete sync has searched, by path. Filled on request: there may be thousands."""


class Batch(Struct, kw_only=True):
    """The content of one commit: rows as they are from then on, new events, and how far the files were read."""

    removed: list[str] = []
    """Keys of sessions to delete with all their rows and files first, so that they can be read again."""
    sessions: list[SessionRow] = []
    turns: list[TurnRow] = []
    events: list[EventRow] = []
    replaced: list[EventRow] = []
    """Events that the archive has, as they are from now on. Uid and place stay; the turn is among `turns`."""
    exchanges: list[ExchangeRow] = []
    usage: list[UsageRow] = []
    files: list[FileRow] = []
    folders: list[FolderRow] | None = None
    """All folders that were searched, in place of those that were known."""
    forgotten: list[bytes] = []
    """Digests to be recognised as forgotten from now on."""
    projects: dict[str, str] = {}
    """Folders, each with the identity of its repository. Sessions in them that have none, or one that is not the
    address of a remote, get it."""
    sync: SyncState | None = None
