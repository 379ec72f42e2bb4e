"""The state of a parser between two reads of a growing transcript: everything bounded, all of it JSON."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from ...model import Digest, EventType, digest, parse_time
from ..base import Event, Item, TurnEnd
from ..content import raw_text, readable
from .content import is_notification
from .usage import Costs


class Call(Struct, array_like=True):
    """A tool call that waits for its response."""

    tool: str
    model: str | None = None
    title: str | None = None
    """Calls that start an agent: what it is to do, in a few words."""
    prompt: str | None = None
    """The same calls: the digest of the agent's prompt, which identifies the agent it started in old transcripts."""


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
        """True when the model's next message answers it."""
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
    """The digest of the last answer of a subagent."""
    model: str | None = None
    """The model that answered last."""
    ended: bool = False
    """The turn is over and nothing has taken that back."""
    message: str = ""
    """The API message being written, which is spread over several records."""
    blocks: list[str] = []
    """Digests of its blocks so far."""
    usage: list[int] = []
    """Its tokens as last yielded."""
    counted: list[int] = []
    """Its tokens as far as `Costs` has them."""
    calls: dict[str, Call] = {}
    early: dict[str, Event] = {}
    """Tool responses that were written before their call, as they were yielded without it."""


_LIMIT = 64


class Queued(Struct, array_like=True):
    text: str
    typed: str
    """The time of typing, as the record has it: part of its identity."""
    absorbed: str = ""
    """The time at which the agent got it."""


class PromptQueue(Struct):
    """The prompts a person typed while the agent was busy.

    `queue-operation` records say what happens to them: `enqueue` (with the text), then one of
    - `dequeue`: submitted when the agent was done; the user record that follows carries the text;
    - `remove`: handed to the agent between two tool calls. Since about 2.1.75 a `queued_command` attachment follows and
      carries the text, mostly before the agent goes on. Before, nothing does: the prompt stands nowhere but in its
      `enqueue`, though the agent answers it. A user record with `queueTranscriptOnly` may repeat it;
    - `popAll`: taken back by the person to be edited.
    A prompt that never left the queue was never seen by the agent: it is none.
    """

    waiting: list[Queued] = []
    absorbed: list[Queued] = []
    """Handed to the agent; whether a record of their own follows shows when the agent goes on."""
    yielded: list[str] = []
    """Digests of prompts that were yielded without an attachment of their own, which may come late."""
    attached: list[str] = []
    """Digests of prompts that came as an attachment, which a user record may repeat."""
    submitted: str | None = None

    def apply(self, record: dict[str, Any]) -> None:
        operation = record.get("operation")
        text = readable(record.get("content")).strip()
        stamp = str(record.get("timestamp") or "")
        if operation == "enqueue":
            if text:
                self.waiting = [*self.waiting[1 - _LIMIT :], Queued(text, stamp)]
        elif operation == "remove":
            if item := self._take(text):
                item.absorbed = stamp
                self.absorbed = [*self.absorbed[1 - _LIMIT :], item]
        elif operation == "dequeue":
            item = self._take(text)
            self.submitted = item.text if item else None
        elif operation == "popAll":
            self.waiting = []

    def claim(self, text: str) -> bool:
        """Take the prompt of a record out of the queue; False if it was not in there."""
        text = text.strip()
        if self.submitted == text:
            self.submitted = None
            return True
        for items in (self.absorbed, self.waiting):
            for position, item in enumerate(items):
                if item.text == text:
                    del items[position]
                    return True
        return False

    def drain(self) -> list[Queued]:
        """The prompts the agent got that no record of their own followed."""
        items, self.absorbed = self.absorbed, []
        if items:
            self.yielded = [*self.yielded, *(_mark(item.text) for item in items)][-_LIMIT:]
        return items

    def attach(self, text: str) -> bool:
        """A prompt arrives as an attachment: True if it is new, False if it was yielded already without it."""
        if not self.claim(text) and _cross_off(self.yielded, text):
            return False
        self.attached = [*self.attached, _mark(text)][-_LIMIT:]
        return True

    def repeat(self, text: str) -> bool:
        """True if the prompt of a user record is new; False if it repeats one that went through the queue."""
        if _cross_off(self.attached, text) or _mark(text) in self.yielded:
            return False
        self.claim(text)
        self.yielded = [*self.yielded, _mark(text)][-_LIMIT:]
        return True

    def _take(self, text: str) -> Queued | None:
        """The item with this text. Records mostly do not say which: then people go before background tasks."""
        position = next((n for n, item in enumerate(self.waiting) if item.text == text), None)
        if position is None and not text:
            typed = (n for n, item in enumerate(self.waiting) if not is_notification(item.text))
            position = next(typed, 0 if self.waiting else None)
        return None if position is None else self.waiting.pop(position)


def _mark(text: str) -> str:
    return digest(text.strip()).hex()


def _cross_off(marks: list[str], text: str) -> bool:
    """True if the text is among the marks, which holds once."""
    if (mark := _mark(text)) not in marks:
        return False
    marks.remove(mark)
    return True


class State(Struct, omit_defaults=True):
    main: Thread
    children: dict[str, Thread] = {}
    """Subagents whose records are part of this file."""
    agents: dict[str, str] = {}
    """Agents this session started, yielded once each, with their call."""
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
    """The title last yielded, by rank."""
    summaries: dict[str, str] = {}
    """Summaries whose conversation has not been met, by the last record of it."""
    summarised: bool = False
    """The file has a summary of its own."""
    leaves: list[str] = []
    """The latest record uuids."""
    recovered: list[str] = []
    forked_from: str | None = None
    link: str = ""
    twins: dict[str, int] = {}
    """The count of equal records without uuid, by their digest, within the same instant."""
    instant: str = ""


_uid = Digest("claude-code")


class Entry:
    """One record being read: its thread, its time and the items it gives."""

    __slots__ = ("identity", "items", "record", "thread", "ts")

    def __init__(self, record: dict[str, Any], thread: Thread, identity: str, items: list[Item]) -> None:
        self.record = record
        self.thread = thread
        self.identity = identity
        """The record's uuid, which copies keep, or what stands in for it."""
        self.items = items
        self.ts = parse_time(record.get("timestamp"))

    def add(self, part: str, kind: EventType, text: str, **more: Any) -> Event:
        """An event for a part of the record; the part's name makes it unique and does not depend on other parts."""
        event = Event(
            uid=_uid(self.identity, part),
            type=kind,
            text=text,
            ts=self.ts,
            session=self.thread.session,
            cwd=self.thread.cwd,
            **more,
        )
        self.items.append(event)
        return event

    def add_unknown(self) -> None:
        self.add("raw", EventType.UNKNOWN, raw_text(self.record))

    def add_stop(self, part: str, text: str, **more: Any) -> None:
        """Something other than an answer that stops the agent. After an answer that ended the turn there is nothing
        left to stop, and the answer stays the end."""
        self.add(part, EventType.RUNTIME, text, ends_turn=not self.thread.ended, **more)
        self.thread.ended = True

    def end_turn(self) -> None:
        """The record says that the turn is over; it can only mean one in which the agent did something."""
        if self.thread.answered:
            self.items.append(TurnEnd(session=self.thread.session))
            self.thread.ended = True
