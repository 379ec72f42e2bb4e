"""The state of a parser between two records of a rollout, and the events it makes from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import Any, Final

from msgspec import Struct, field

from ...model import EventType, digest
from ..base import About, Event, Lookup

# The forms in which Codex writes the same message. Each message appears at most once in each form, in any order:
# a message is new unless the same text, so far without this form, is already there in another one.
ITEM: Final = 1  # response_item: what the model was sent and what it answered
EVENT: Final = 2  # event_msg: what the user interface received
TURN_ITEM: Final = 4  # event_msg item_completed: the superset that newer versions write
CLOSING: Final = 8  # task_complete repeats the last answer
_HELD: Final = 16  # not yet an event: counts only if another form of it follows

# The forms of a message, and the records of a call, stand a few records apart; more than that is never looked for.
_RECENT_MESSAGES = 32
_RECENT_CALLS = 128
_RECENT_TURNS = 8
_MAX_SHOWN = 4_096
SCRIPT: Final = "exec"  # code mode: the tool whose input is a script that calls the other tools

_TIMED = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_UNNAMED: Final = "prompts:"  # begins the key of a turn that Codex gave no id
_COPY_MS = 10_000  # writing the copy at the head of a fork takes less, typing a prompt takes more
_WORK = frozenset(
    (
        EventType.USER_INPUT,
        EventType.ASSISTANT_RESPONSE,
        EventType.REASONING,
        EventType.TOOL_CALL,
        EventType.TOOL_RESPONSE,
    )
)


class Call(Struct, omit_defaults=True):
    """A tool call whose response, or whose report of how it went, may follow."""

    tool: str
    model: str | None = None
    usage_key: bytes | None = None
    shown: list[str] = []
    """Scripts: fingerprints of what the calls inside it returned, which its own output repeats."""
    exit_code: int | None = None
    failed: bool | None = None
    extra: dict[str, Any] | None = None
    answered: bool = False


class Seen(Struct, array_like=True):
    """A message that was seen, and in which forms."""

    key: str
    forms: int


class State(Struct, omit_defaults=True):
    """All of it, JSON-ready: a parser goes on from here as if it had never stopped."""

    ts: int | None = None
    started: int | None = None
    stamp: str = ""
    """The timestamp as written. Equal things within one timestamp are distinguished by their count."""
    counts: dict[str, int] = field(default_factory=dict)
    model: str | None = None
    about: dict[str, str] = field(default_factory=dict)
    """The values of the `About` items so far: only changes are yielded again."""

    turn: str | None = None
    over: bool = True
    """The turn has ended: a prompt that names no turn opens a new one."""
    chain: str = ""
    """Stands in for the turn id where Codex wrote none: a digest of all prompts so far, the same in every copy."""
    alias: str | None = None
    """The id Codex gave the turn after its prompt had already named it."""
    just_prompted: bool = False
    working: bool = False
    worked_at: int | None = None
    """The time of the last event."""
    answered: bool = False
    final: bool = False
    """The last event was an answer that ended the turn."""
    ended: list[str] = field(default_factory=list)
    """The latest turns that are over: what is still recorded of them comes late."""
    model_calls: int = 0
    usage_total: tuple[int, ...] | None = None
    usage_recorded: tuple[int, ...] | None = None
    """The latest `token_usage_record`, which the next `token_count` repeats."""

    seen: dict[str, list[Seen]] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    script: str | None = None
    """The latest call of the turn that ran a script."""
    ordinal: int | None = None
    """The number of the latest record, where records are numbered."""
    marks_prompts: bool = False
    """Messages say of each of their blocks where it comes from."""
    has_user_events: bool = False
    last_prompt: str = ""
    aborted_prompt: str = ""
    goal: str = ""

    has_header: bool = False
    agent_path: str | None = None
    ancestors: list[str] = field(default_factory=list)
    forked: bool = False
    replaying: bool = True
    """Still in the leading part of the file, which may be a copy of an ancestor's."""


def fingerprint(text: str) -> str:
    """The forms of one message differ in white space at the seams of their blocks, so that does not count."""
    return blake2b("".join(text.split()).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class Session:
    """One rollout being read: its state, and the few operations all record handlers share."""

    def __init__(
        self, session: str, state: State, lookup: Lookup, was_interrupted: Callable[[str, bool], bool]
    ) -> None:
        self.id = session
        self.state = state
        self.late_turn: str | None = None
        """The turn that the current record belongs to, if that turn is over."""
        self.was_interrupted = was_interrupted
        self._lookup = lookup
        self._inherited: frozenset[str] | None = None
        self._usage_key: bytes | None = None

    # Events

    def event(self, kind: EventType, text: str, identity: str | None = None, **fields: Any) -> Event:
        """An event at the time of the current record. What identifies it is its text unless something better does."""
        state = self.state
        late = self.late_turn is not None
        if not late:
            state.just_prompted = kind is EventType.USER_INPUT
            state.final = bool(fields.get("ends_turn"))
            state.worked_at = state.ts
            state.working = state.working or kind in _WORK
        base = digest("codex", self.id, kind, state.stamp, text if identity is None else identity)
        name = base.hex()
        count = state.counts.get(name, 0)
        state.counts[name] = count + 1
        return Event(
            uid=digest(name, str(count)) if count else base,
            type=kind,
            text=text,
            ts=state.ts,
            turn_key=self.late_turn or state.turn,
            late=late,
            cwd=state.about.get("cwd"),
            **fields,
        )

    @property
    def model(self) -> str | None:
        """The model of the turn that the current record belongs to, as far as it is still known."""
        state = self.state
        return state.model if self.late_turn in (None, state.turn, state.alias) else None

    @property
    def usage_key(self) -> bytes:
        """The model call in progress: its token count is the next one of this turn."""
        if self._usage_key is None:
            state = self.state
            self._usage_key = digest("codex", self.id, "usage", state.turn or "", str(state.model_calls))
        return self._usage_key

    def end_model_call(self) -> None:
        self.state.model_calls += 1
        self._usage_key = None

    def about(self, **facts: str | None) -> list[About]:
        """An `About` with the facts that have changed."""
        known = self.state.about
        changed = {name: fact for name, fact in facts.items() if fact and known.get(name) != fact}
        if not changed:
            return []
        known.update(changed)
        rank = 3 if "title" in changed else 0  # a thread's name is only ever set on request
        return [About(title_rank=rank, **changed)]

    # Mirrored messages

    def unseen(self, role: str, form: int, parts: Iterable[str]) -> list[str]:
        """The parts that no other form of the same message has brought yet."""
        recent = self.state.seen.setdefault(role, [])
        earlier = tuple(recent)  # what this message adds is of its own form and never matches
        fresh = []
        for part in parts:
            key = fingerprint(part)
            for seen in earlier:
                if seen.key == key and not seen.forms & form:
                    if seen.forms & _HELD:
                        seen.forms ^= _HELD
                        fresh.append(part)
                    seen.forms |= form
                    break
            else:
                recent.append(Seen(key, form))
                fresh.append(part)
        del recent[:-_RECENT_MESSAGES]
        return fresh

    def hold(self, role: str) -> None:
        """Hold the newest message back: it counts only if it comes in another form, too."""
        self.state.seen[role][-1].forms |= _HELD

    def drop_held(self, role: str) -> None:
        """Drop the messages that were held back, because their other form never came."""
        seen = self.state.seen
        seen[role] = [message for message in seen[role] if not message.forms & _HELD]

    def forget(self, *roles: str) -> None:
        for role in roles:
            self.state.seen.pop(role, None)

    # Turns

    def begin_turn(self, turn: str) -> None:
        state = self.state
        if turn == state.alias:
            return
        if state.just_prompted and state.turn is not None and state.turn.startswith(_UNNAMED):
            state.alias = turn  # said after the prompt: the turn keeps the name under which it began
            return
        self._enter(turn)

    def begin_unnamed_turn(self, prompt: str) -> None:
        """Old versions give turns no id. A copy starts with the same prompts, so their chain names the turn. Asking
        the same again in a fork would too, but a copy is written in one go and the user takes a while."""
        state = self.state
        state.chain = fingerprint(state.chain + prompt)
        if state.ts is not None and state.started is not None and state.ts > state.started + _COPY_MS:
            state.replaying = False
        self._enter(_UNNAMED + state.chain)

    def _enter(self, turn: str) -> None:
        state = self.state
        state.over = False
        if turn in state.ended:
            state.ended.remove(turn)
        if turn != state.turn:
            state.turn, state.alias, state.model_calls, state.script = turn, None, 0, None
            self._usage_key = None

    @property
    def needs_turn(self) -> bool:
        """True when a prompt that names no turn opens one; else it was typed into the one that is running."""
        state = self.state
        return state.over or state.turn is None or (state.turn.startswith(_UNNAMED) and state.alias is None)

    def end_turn(self) -> None:
        state = self.state
        state.over = True
        if state.turn is not None:
            name = state.alias or state.turn
            state.ended = [*(turn for turn in state.ended if turn != name), name][-_RECENT_TURNS:]
        state.working = state.answered = state.just_prompted = False
        state.calls = {call_id: call for call_id, call in state.calls.items() if not call.answered}
        self.forget("answer", "reasoning")

    # Forks

    @property
    def inherited(self) -> frozenset[str]:
        """The turns that ancestors own."""
        if self._inherited is None:
            self._inherited = frozenset[str]().union(*map(self._lookup, self.state.ancestors))
        return self._inherited

    def descend_from(self, *sessions: str | None) -> None:
        for session in sessions:
            if session and session != self.id and session not in self.state.ancestors:
                self.state.ancestors.append(session)
                self._inherited = None

    @property
    def in_copy(self) -> bool:
        """True when the current record is a copy of one that an ancestor owns. Without the ancestor nothing is."""
        state = self.state
        if not state.replaying or not state.ancestors or not self.inherited:
            return False
        return state.forked if state.turn is None else state.turn in self.inherited

    def origin(self, turn: str | None) -> str | None:
        """The ancestor that a turn was copied from, by its id: ids of Codex are UUIDs that begin with their time. None
        for a turn of the session's own, and where ids are of another kind."""
        if turn is None or turn >= self.id or not all(map(_TIMED.fullmatch, (turn, self.id))):
            return None
        return max((name for name in self.state.ancestors if _TIMED.fullmatch(name) and name <= turn), default=None)

    def end_copy(self) -> None:
        """An event of the session's own was met: what follows is its own too.

        Not the mere beginning of a turn that no ancestor has: it may be a copy of one that is about to be read.
        """
        if self.state.turn is not None:
            self.state.replaying = False

    # Tool calls

    def remember(self, call_id: str, tool: str) -> None:
        calls = self.state.calls
        calls[call_id] = Call(tool, self.model, self.usage_key)
        if tool == SCRIPT and self.late_turn is None:
            self.state.script = call_id
        if len(calls) > _RECENT_CALLS:
            del calls[next(iter(calls))]

    def open_script(self) -> str | None:
        """The script that made the call that the current record reports: the first one that still runs, else the last.

        Such records name the call's own id alone; they stand between the script and its output, or after it when the
        call outlived the script.
        """
        state = self.state
        if self.late_turn not in (None, state.turn, state.alias):
            return None
        running = (name for name, call in state.calls.items() if call.tool == SCRIPT and not call.answered)
        return next(running, state.script)

    def show(self, script: str, texts: Iterable[str]) -> None:
        """Remember what a call inside a script returned."""
        call = self.state.calls.get(script)
        if call is not None and not call.answered:
            marks = (fingerprint(text) for text in texts if text.strip())
            call.shown = [*call.shown, *marks][:_MAX_SHOWN]
