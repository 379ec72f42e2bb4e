"""What the parser remembers between two reads of a growing transcript: everything bounded, all of it JSON."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct, field

from ..base import Event
from .costs import Costs
from .queue import PromptQueue

__all__ = ["Call", "State", "Thread", "Waiting", "remember"]

_V = TypeVar("_V")


class Call(Struct, array_like=True):
    """A tool call that waits for its response."""

    tool: str
    model: str | None = None
    title: str | None = None
    """Calls that start an agent: what it is to do, in a few words."""
    prompt: str | None = None
    """The same calls: the digest of the agent's prompt, by which old transcripts tell which agent it started."""


class Waiting(Struct, omit_defaults=True):
    """A command of the client with which the model may go on: then it was a prompt."""

    identity: str
    text: str
    timestamp: str | None = None
    shell: bool = False
    printed: bool = False
    """Its output is there."""
    expanded: bool = False
    """Claude Code added instructions for the model."""
    begun: bool = False
    """The output says that a turn begins with it (since 2.1.300 or so)."""

    @property
    def is_prompt(self) -> bool:
        """Whether the model's next message answers it."""
        return self.shell or self.expanded or self.begun or not self.printed


class Thread(Struct, omit_defaults=True):
    """One session's conversation. A transcript has one, and more when it also holds what its subagents did."""

    session: str | None = None
    """None: the session of the file."""
    child: bool = False
    repeated: bool = False
    """Known from what progress records repeat of it: all but its answers."""
    cwd: str | None = None
    branch: str | None = None
    version: str | None = None
    slug: str | None = None
    started: bool = False
    """The first prompt was seen."""
    prompted: bool = False
    """The agent did nothing yet since the last prompt."""
    compacted: bool = False
    """A compaction just ended: a summary may follow."""
    answered: bool = False
    """The last thing the agent did since the prompt is an answer."""
    said: str = ""
    """The digest of the last answer."""
    model: str | None = None
    """The model that answered last."""
    ended: bool = False
    """The turn is over and nothing has taken that back."""
    message: str = ""
    """The API message being written, which is spread over several records."""
    blocks: list[str] = []
    """Digests of its blocks so far."""
    usage: list[int] = []
    """Its tokens as last told."""
    counted: list[int] = []
    """Its tokens as far as `Costs` has them."""
    calls: dict[str, Call] = {}
    early: dict[str, Event] = {}
    """Tool responses that were written before their call, as they were told without it."""


class State(Struct, omit_defaults=True):
    main: Thread
    children: dict[str, Thread] = {}
    """Subagents whose records are part of this file."""
    agents: dict[str, str] = {}
    """Agents this session started, told once each, with their call."""
    chains: dict[str, str] = {}
    """Record uuids of subagents in old transcripts, which name no agent, with the first record of their chain."""
    plain: bool = False
    """The file has records of its own session: those marked as a subagent's are another's."""
    end_turns: bool = False
    """A record of the file says that a message ended its turn."""
    waiting: Waiting | None = None
    queue: PromptQueue = field(default_factory=PromptQueue)
    costs: Costs = field(default_factory=Costs)
    titles: dict[str, str] = {}
    """The title last told, by rank."""
    summaries: dict[str, str] = {}
    """Summaries whose conversation has not been met, by the last record of it."""
    leaves: list[str] = []
    """The latest record uuids."""
    recovered: list[str] = []
    forked_from: str | None = None
    link: str = ""
    twins: dict[str, int] = {}
    """How often a record without uuid was seen, by its digest, within the same instant."""
    instant: str = ""


def remember(table: dict[str, _V], key: str, value: _V, limit: int) -> None:
    """Put it in as the newest entry; the oldest one goes when there are too many."""
    table.pop(key, None)
    table[key] = value
    if len(table) > limit:
        del table[next(iter(table))]
