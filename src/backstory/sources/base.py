"""The protocol every agent's source follows: where its transcripts are, and what their records mean.

A source never writes, never opens the archive and keeps nothing global. It finds `Transcript`s, or stores of many
sessions, and gives for each session a `Parser` that turns raw records into items: `Event`, `About`, `Usage`, `TurnEnd`.
Ingest decides the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from msgspec import Struct

from ..model import EventType

__all__ = ["About", "Event", "Item", "Lookup", "Parser", "Source", "Stored", "Transcript", "TurnEnd", "Usage"]


class Transcript(Struct, frozen=True, kw_only=True):
    """One file that holds (a part of) one session.

    `family` and `rank` order files that replay one another (forks, resumes, copies of one session): ingest reads the
    members of a family in the order of their rank, so that the original comes first and owns what it shares.
    """

    source: str
    path: Path
    session: str
    """The agent's own session id; `<source>/<session>` is the session's key."""
    parent: str | None = None
    """The agent's own id of the session that started this one (subagents)."""
    folder: str | None = None
    """The agent's own folder for the project this session is about, by name, where it has such folders."""
    begun: int = 0
    """Milliseconds since the epoch of the first record that has a time; 0 if none has. Events that stand before it and
    have no time of their own are dated by it."""
    family: str = ""
    rank: tuple[int, str] = (0, "")
    after: tuple[str, ...] = ()
    """The agent's own ids of the sessions this one may copy from (forks, spawned agents): ingest reads those first, as
    far as they exist, so that `Lookup` knows what they own."""
    feeds: bool = False
    """The parsers of the session's other transcripts look into this one: those are read again when it comes later."""


class Stored(Struct, frozen=True, kw_only=True):
    """One session of a store, with its state. It is read when `updated` or `version` differs from the last read."""

    session: str
    updated: int
    """Milliseconds since the epoch of its latest change."""
    version: int = 0
    """A number that any other change shows in, such as the count of its rows or a counter of the agent."""
    parent: str | None = None
    """The agent's own id of the session that started this one."""


class Event(Struct, kw_only=True):
    """One thing that happened, in the order of the transcript."""

    uid: bytes
    """16-byte digest (`model.digest`) that identifies the event wherever the record is copied to."""
    replaces: bool = False
    """The agent rewrites its records: where the archive has the event already, in this session, this is how it reads
    now. It keeps its place. Without it, an event that the archive has is not written again. Either way the event shows
    where the transcript stands: what follows belongs to the same turn."""
    type: EventType
    text: str
    """The readable text. For tool calls it is left empty: it is derived from tool and arguments."""
    ts: int | None = None
    """Milliseconds since the epoch; None takes the time of the event before it."""
    session: str | None = None
    """The agent's own session id when the event belongs to another session than the file's (nested subagents)."""
    origin: str | None = None
    """The agent's own id of the session that the record was copied from, where the record names it."""
    starts_turn: bool = False
    """A prompt that opens a new turn."""
    ends_turn: bool = False
    """The agent recorded that the turn ends here: it waits for new input."""
    late: bool = False
    """Recorded after its turn (`turn_key`) was over, such as the result of a command that outlived it: it belongs to
    that turn and leaves its end as it is."""
    may_end_turn: bool = False
    """An answer that asks for nothing more, from an agent that did not say: it ends the turn if the next thing is a
    prompt, or if a provisional `TurnEnd` says that this is all."""
    turn_key: str | None = None
    """The agent's own id of the turn, if it has one: replayed turns of a fork are recognised by it."""
    tool: str | None = None
    call_id: str | None = None
    model: str | None = None
    """The model that wrote this event."""
    originating_model: str | None = None
    """The model whose work this belongs to: for tool calls and responses, the model that called."""
    arguments: Any = None
    """Tool calls: the arguments, a mapping when the agent wrote one, else the value as it is."""
    exit_code: int | None = None
    failed: bool | None = None
    """Tool responses: whether the agent recorded an error."""
    cwd: str | None = None
    usage_key: bytes | None = None
    """The model call (`Usage.key`) this event came from."""
    extra: dict[str, Any] | None = None
    """Small structured facts worth keeping (child session, duration ...); JSON values only. Traces read
    `interrupted` (a person stopped the agent here), and of tool responses `asked` (the agent waited for a person, all
    the time but `duration_ms`)."""
    exchange: Literal["user", "assistant"] | None = None
    """Sessions that are also read exchange by exchange (Claude Code): `user` begins an exchange, `assistant` is an
    answer or a tool call in it. Copied records have it, too: every transcript has all of its exchanges."""
    user_text: str | None = None
    """With `exchange` = `user`: the text of the whole record, where `text` is only a part of it."""
    aside: bool = False
    """Neither the user nor the assistant wrote the record: the time of a conversation does not include it."""


class About(Struct, kw_only=True):
    """Facts about the session as a whole. None leaves a fact as it is; a later value replaces an earlier one."""

    session: str | None = None
    title: str | None = None
    title_rank: int = 0
    """explicit title 3 > generated title 2 > summary 1 > first prompt 0 > a stand-in until there is a prompt -1; a
    title replaces one of the same or a lower rank."""
    summary: str | None = None
    slug: str | None = None
    cwd: str | None = None
    branch: str | None = None
    remote: str | None = None
    """The address of the remote of the git repository (`fields.remote_address`)."""
    version: str | None = None
    parent: str | None = None
    parent_call: str | None = None
    """The tool call in the parent that started this session."""
    forked_from: str | None = None


class Usage(Struct, kw_only=True):
    """Tokens of one model call. Seen again under the same key, the larger numbers win: partial records grow.

    `input_tokens` includes what was read from or written to the cache, as traces count it.
    """

    key: bytes
    session: str | None = None
    origin: str | None = None
    """As of an event."""
    by_time: bool = False
    """It is of the turn that began last before its time, wherever the transcript stands: that of a run beside it."""
    model: str | None = None
    ts: int | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_5m_tokens: int = 0
    cache_write_1h_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    """The cost that the agent itself reported, in USD."""
    stop_reason: str | None = None
    request: str | None = None
    """The provider's id of the call. Telemetry names the same call by it."""


class TurnEnd(Struct, kw_only=True):
    """The end of a turn, as the agent recorded it. The last answer is the terminal event. It has no effect on a
    turn without an answer.

    Answers, reasoning and tools that follow in the same turn revoke the end.
    """

    session: str | None = None
    provisional: bool = False
    """At the end of what was read: holds only if the last thing that happened was a `may_end_turn` answer."""


Item = Event | About | Usage | TurnEnd
Lookup = Callable[[str], frozenset[str]]
"""The `turn_key`s the archive already has for the agent's own session id of the same source."""


class Parser(Protocol):
    """Reads the records of one transcript in order. Its state is all it needs to go on later where it stopped."""

    def parse(self, record: Any) -> Iterable[Item]:
        """The items of one record. Raises ValueError for a record that cannot be understood; the rest goes on."""

    def finish(self) -> Iterable[Item]:
        """Items that follow from the end of the records so far; called after each read, more records may follow."""

    def state(self) -> dict[str, Any]:
        """JSON-ready; given back to `Source.parser` when the file has grown.

        `ancestors` in it, if there are any, are the agent's own ids of the sessions whose turns this one leaves out
        (`Lookup`): when one of those is read later, this one is read again.
        """


class Source(Protocol):
    """One agent. A subclass gets the methods below that have a body; the others are its own.

    There are three kinds of places where agents keep sessions. A file with one session is a transcript by itself:
    `accepts` and `describe`. A folder whose files make up one session is a transcript as a whole: `gathers` and
    `describe`. A store holds many sessions in one file or folder: `accepts` or `gathers`, `sessions` and `changes`.
    """

    name: str

    def roots(self, home: Path, environ: Mapping[str, str]) -> list[Path]:
        """Folders that may hold transcripts, and files that are stores, existing or not. They are what gets watched.
        For agents in the table (`agents.py`) they stand there."""
        return []

    def accepts(self, path: Path) -> bool:
        """True if a file below a root is a transcript or a store, by its name alone."""
        return False

    def gathers(self, folder: Path) -> bool:
        """True if a folder below a root is, as a whole, a transcript or a store, by its name alone."""
        return False

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        """The transcript behind a path, from its name and first bytes (up to 64 KiB, none of a folder); None: not one
        of ours, or a store."""
        return None

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        """A parser for the transcript, from the beginning (state None) or from where an earlier one stopped."""

    def skips(self, line: bytes) -> bool:
        """True if the bytes of a JSONL line show that it has no items: it is not decoded then."""
        return False

    def records(self, path: Path) -> Iterator[Any] | None:
        """All records of a transcript that the agent rewrites (`.json`, a folder), or None for JSONL: ingest then reads
        it incrementally, line by line, and decompresses `.zst`. Events of rewritten records have `replaces`. None among
        the records is one that is damaged: it is counted as an error."""
        return None

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        """The sessions in a store, by a query that costs little however large the store is; None: the path is no
        store but one transcript. Called when the store has changed."""
        return None

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        """The records of one session of a store that changed after the state `since`, in their order, each after the
        prompt of its turn; all records if `since` is None. Their events have `replaces`.

        `since.updated` is a little earlier than it was: rows may be committed a moment after the time they bear."""
        raise NotImplementedError(f"{self.name} has no stores")

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        """The paths of those transcripts beside which a file has changed: they are read on, although they have not
        changed themselves. `read` has (path, session, state of the parser) of each transcript that was read."""
        return ()

    def resume(self, session: str) -> tuple[str, ...] | None:
        """The command that continues a session in this agent; None where there is none. For agents in the table it
        stands there."""
        return None
