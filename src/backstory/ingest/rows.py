"""Rows from items, and a session that is being written: its row, its exchanges, and the turn that new events go to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

from msgspec import Struct

from ..archive.base import EventRow, ExchangeRow, ExchangesRequest, Mode, Reader, SessionRow, TurnRow, UsageRow
from ..archive.exchanges import uids_of
from ..model import MAX_TURNS, EventType
from ..sources.base import About, Event, Transcript, TurnEnd, Usage

# In Python 3.11 `EventType.NAME` takes ten times as long as a name of the module, and some are asked for every event.
_INPUT, _ANSWER, _CALL = EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE, EventType.TOOL_CALL
_ACTIVITY = frozenset((_ANSWER, EventType.REASONING, _CALL, EventType.TOOL_RESPONSE))
_FIELDS = EventRow.__struct_fields__
_TITLE_CHARS = 120
_BARE_COMMAND = re.compile(r"/[\w:.-]+")
# No model call has more tokens than this; a transcript may say anything.
_MOST_TOKENS = 1 << 40
_TOKENS = tuple(name for name in UsageRow.__struct_fields__ if name.endswith("_tokens"))
_tokens = attrgetter(*_TOKENS)
# From the least to the most that a session does.
_MODES: tuple[Mode, ...] = ("chat", "tool_calling", "mcp_internal", "web_search")
# The names of tools that search or read the web have one of these, without separators: `brave_web_search`, `FetchURL`.
_WEB_WORDS = ("websearch", "searchweb", "webfetch", "fetchwebpage", "fetchurl", "readurl", "readwebpage")
_OWN_TOOLS = frozenset(
    """
    search_sessions list_sessions search_conversations list_conversations read_turn read_conversation
    list_traces search_traces get_trace search_spans
    """.split()
)
_OWN_PREFIXES = ("moss.", "moss_", "capsule.", "capsule_")


# Events and turns


def event_row(event: Event, session: SessionRow, turn: int, ordinal: int, ts: int) -> EventRow:
    return EventRow(
        uid=event.uid,
        session=session.key,
        turn=turn,
        ordinal=ordinal,
        type=event.type,
        ts=ts,
        text=event.text,
        tool=event.tool,
        call_id=event.call_id,
        model=event.model,
        originating_model=event.originating_model,
        arguments=event.arguments,
        exit_code=None if event.exit_code is None else _exit_code(event.exit_code),
        failed=event.failed,
        cwd=event.cwd or session.last_cwd,
        usage_key=event.usage_key,
        extra=event.extra or None,
    )


def differs(before: EventRow, after: EventRow) -> bool:
    """True if an event reads otherwise now. The text of a tool call follows from its tool and arguments."""
    derived = before.type is after.type is _CALL
    ignored = {"cwd", "text"} if derived else {"cwd", "arguments"}
    return any(getattr(before, name) != getattr(after, name) for name in _FIELDS if name not in ignored)


def revise(turn: TurnRow, events: Sequence[EventRow], event: Event) -> None:
    """Bring a turn up to date after one of its events was replaced; `events` are all of them, as they are now."""
    turn.started_at, turn.updated_at = min(row.ts for row in events), max(row.ts for row in events)
    turn.types = tuple(dict.fromkeys(row.type for row in events))
    turn.tools = tuple(dict.fromkeys(row.tool for row in events if row.type is _CALL and row.tool))
    turn.prompt = next((row.uid for row in events if row.type is _INPUT), None)
    answers = [row.uid for row in events if row.type is _ANSWER]
    turn.last_answer = answers[-1] if answers else None
    active = [row.uid for row in events if row.type in _ACTIVITY or row.uid == event.uid]
    turn.started_work = any(row.type in _ACTIVITY for row in events)
    turn.turn_key = turn.turn_key or event.turn_key
    is_last = active[-1] == event.uid
    may_end = event.may_end_turn and event.type in _ACTIVITY
    if event.late:
        return
    if turn.terminal == event.uid and not event.ends_turn:
        # Something else said that the turn ended here. That holds, unless it was this event, which no longer does.
        taken_back = turn.candidate == event.uid and not may_end
        if taken_back or event.type is not turn.terminal_type:
            turn.terminal = turn.terminal_type = None
    if turn.candidate == event.uid or (is_last and event.type in _ACTIVITY):
        turn.candidate = event.uid if may_end and is_last else None
    if event.ends_turn and is_last:
        _end_with(turn, event)


def follow(turn: TurnRow, event: Event) -> None:
    """Bring a turn up to date after an event was added to it."""
    kind = event.type
    if kind not in turn.types:
        turn.types = (*turn.types, kind)
    if kind is _CALL and event.tool and event.tool not in turn.tools:
        turn.tools = (*turn.tools, event.tool)
    if kind is _INPUT and turn.prompt is None:
        turn.prompt = event.uid
    if not turn.turn_key:
        turn.turn_key = event.turn_key
    if kind in _ACTIVITY and not event.late:
        # The agent goes on: the turn had not ended.
        turn.started_work = True
        turn.terminal = turn.terminal_type = None
        turn.candidate = event.uid if event.may_end_turn else None
        if kind is _ANSWER:
            turn.last_answer = event.uid
    if event.ends_turn:
        _end_with(turn, event)


def _end_with(turn: TurnRow, event: Event) -> None:
    """End a turn with an event that says so."""
    # An answer that was cut off is the end, but not what the turn was to end in.
    cut_off = event.extra is not None and event.extra.get("interrupted") is True
    close(turn, event.uid, EventType.RUNTIME if cut_off else event.type)


def close(turn: TurnRow, terminal: bytes, kind: EventType) -> None:
    turn.terminal, turn.terminal_type = terminal, kind


def _exit_code(code: int) -> int | None:
    return code if -(1 << 31) <= code < 1 << 32 else None


# Sessions and model calls


def describe(row: SessionRow, about: About, transcript: Transcript) -> None:
    """Bring a session up to date. Its own transcript has precedence over another one that describes it, whichever is
    read first."""
    source = transcript.source
    is_own = about.session in (None, transcript.session)
    outranks = not row.title or about.title_rank > row.title_rank or (is_own and about.title_rank == row.title_rank)
    if about.title and outranks and (title := one_line(about.title)):
        row.title, row.title_rank = title, about.title_rank
    if about.cwd and about.cwd != row.cwd:  # events say when the agent goes back to the first one
        row.cwd, row.last_cwd = row.cwd or about.cwd, about.cwd
    row.summary = about.summary or row.summary
    row.slug = about.slug or row.slug
    row.project = about.remote or row.project
    row.branch = about.branch or row.branch
    row.version = about.version or row.version
    row.parent_call = (about.parent_call if is_own else None) or row.parent_call or about.parent_call
    if about.parent:
        row.parent = f"{source}/{about.parent}"
    if about.forked_from:
        row.forked_from = f"{source}/{about.forked_from}"


def one_line(text: str) -> str:
    """A title from a text."""
    line = " ".join(text[: 4 * _TITLE_CHARS].split())
    return line if len(line) <= _TITLE_CHARS else line[: _TITLE_CHARS - 1].rstrip() + "…"


def prompt_title(prompt: str) -> tuple[str, int]:
    """A title from a prompt, with its rank. A command without arguments (`/clear`) says little of a session: the title
    of the next prompt outranks it."""
    title = one_line(prompt)
    return title, -1 if _BARE_COMMAND.fullmatch(title) else 0


def usage_row(usage: Usage, session: str, turn: int, ts: int) -> UsageRow:
    """The row of a model call of which nothing is known yet."""
    row = UsageRow(
        key=usage.key,
        session=session,
        turn=turn,
        ts=ts,
        model=usage.model or None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_5m_tokens=usage.cache_write_5m_tokens,
        cache_write_1h_tokens=usage.cache_write_1h_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost=usage.cost,
        stop_reason=usage.stop_reason or None,
        request=usage.request or None,
    )
    for name, tokens in zip(_TOKENS, _tokens(row), strict=True):
        if not 0 <= tokens < _MOST_TOKENS:
            setattr(row, name, 0)
    return row


def add_tokens(row: UsageRow, usage: Usage) -> None:
    """Add the tokens of a record to its model call. Several records of a message have its tokens so far: the larger
    numbers hold."""
    for name, before, tokens in zip(_TOKENS, _tokens(row), _tokens(usage), strict=True):
        if before < tokens < _MOST_TOKENS:
            setattr(row, name, tokens)
    row.model = usage.model or row.model
    row.cost = row.cost if usage.cost is None else usage.cost
    row.stop_reason = usage.stop_reason or row.stop_reason
    row.request = usage.request or row.request


@lru_cache(maxsize=1024)
def wider_mode(mode: Mode, tool: str) -> Mode:
    """The mode of a session that was `mode` until it called this tool."""
    return max(mode, _mode_of(tool), key=_MODES.index)


def _mode_of(tool: str) -> Mode:
    # MCP clients prefix the server: `mcp__backstory__open`, `backstory.open`.
    full = tool.lower()
    called = full.rsplit("__", 1)[-1]
    name = called.rsplit(".", 1)[-1]
    # Our own come first: `moss.fetch` reads no web.
    if name in _OWN_TOOLS or "backstory" in full or called.startswith(_OWN_PREFIXES):
        return "mcp_internal"
    plain = name.replace("-", "").replace("_", "")
    if name == "fetch" or any(word in plain for word in _WEB_WORDS):
        return "web_search"
    return "tool_calling"


# A session that is being written


class Exchanges:
    """The exchanges of a session, from marked events. These may belong to another session: a fork repeats its original.

    An event is in one exchange of a session at most. A transcript that is read from its start once more moves the
    position from one known exchange to the next: what is new belongs where it stands. A record that an agent has
    written twice moves nothing.
    """

    def __init__(self, session: SessionRow, known: Reader) -> None:
        self._session = session
        self._known = known
        self._rows: dict[int, ExchangeRow] = {}
        self._changed: set[int] = set()
        self._numbers: dict[bytes, int] | None = None
        """The exchange of every event of the session; made when an event is read again."""
        if session.provisional:
            session.provisional, session.exchange_count, self._numbers = False, 0, {}
        self._position = self._reached = session.exchange_count - 1
        """The exchange of what comes next, and the last one that was known before and has been met."""

    def restart(self) -> None:
        """The transcript is read from its start."""
        self._position = self._reached = -1

    def add(self, event: Event, ts: int, *, again: bool) -> bool:
        """Take a marked event. `again`: the archive, or this commit, has it already. True if an exchange changed."""
        if again and (number := self._places().get(event.uid)) is not None:
            if number > self._reached:
                self._position = self._reached = number
            return self._revise(event, number)
        session = self._session
        begins = (event.exchange == "user" or not session.exchange_count) and session.exchange_count < MAX_TURNS
        if begins:
            self._position = session.exchange_count
            self._reached += self._reached == self._position - 1
            session.exchange_count += 1
            row = self._rows[self._position] = ExchangeRow(session=session.key, number=self._position, ts=ts)
        else:
            if self._position < 0:  # another file of the session goes on where the one before it ended
                self._position = session.exchange_count - 1
            row = self._row(self._position)
        if begins and event.exchange == "user":
            row.user, row.user_text = event.uid, event.user_text
        else:
            row.said += event.uid
        self._changed.add(self._position)
        if self._numbers is not None:
            self._numbers[event.uid] = self._position
        return True

    def _revise(self, event: Event, number: int) -> bool:
        """An event that is here already, and may read otherwise now."""
        if event.replaces:
            row = self._row(number)
            if row.user == event.uid:
                row.user_text = event.user_text
            self._changed.add(number)
        return event.replaces

    def take(self) -> list[ExchangeRow]:
        """The rows that changed, to be written before anything else is added."""
        changed = [self._rows[number] for number in sorted(self._changed)]
        self._changed.clear()
        self._rows = {number: row for number, row in self._rows.items() if number == self._position}
        return changed

    def _row(self, number: int) -> ExchangeRow:
        row = self._rows.get(number)
        if row is None:
            (row,) = self._stored(number, 1)
            self._rows[number] = row
        return row

    def _stored(self, first: int, limit: int | None) -> list[ExchangeRow]:
        request = ExchangesRequest(session=self._session.key, first=first, limit=limit, texts=False)
        return [exchange.row for exchange in self._known.exchanges(request)]

    def _places(self) -> dict[bytes, int]:
        if self._numbers is None:
            rows = {row.number: row for row in self._stored(0, None)} | self._rows
            self._numbers = {uid: number for number, row in rows.items() for uid in uids_of(row)}
        return self._numbers


class OpenSession(Struct):
    """The row of a session, the turn that new events go to, and the turns that changed."""

    row: SessionRow
    turn: TurnRow | None
    turns: dict[int, TurnRow]
    changed: bool = False
    forgotten: bool = False
    """It was forgotten: neither it nor the sessions that it started are kept."""
    inherits: bool = False
    """So far it has only repeated forgotten events: nothing of it is kept before its first event of its own."""
    entering: bool = False
    """Its transcript is read from the start, and the first event, which shows the turn, has not come yet."""
    changed_turns: set[int] = set()
    exchanges: Exchanges | None = None
    restarted: bool = False
    """Its transcript is read from the start."""
    upgrading: bool = False
    """It was read by an older version, and is read again for its exchanges alone."""

    @property
    def ordinal(self) -> int:
        return self.turn.ordinal if self.turn else 0

    def begin_turn(self) -> TurnRow:
        """Open the next turn. The one before it ends with its last answer, unless something else ended it."""
        before = self.turn
        if before is not None and before.terminal is None and before.candidate is not None:
            close(before, before.candidate, EventType.ASSISTANT_RESPONSE)
            self.changed_turns.add(before.ordinal)
        self.row.turn_count += 1
        self.turn = TurnRow(session=self.row.key, ordinal=self.row.turn_count)
        self.turns[self.turn.ordinal] = self.turn
        return self.turn

    def end_turn(self, end: TurnEnd) -> None:
        turn = self.turn
        if turn is None or turn.terminal is not None:
            return
        answer = turn.candidate if end.provisional else turn.last_answer
        if answer is not None:
            close(turn, answer, EventType.ASSISTANT_RESPONSE)
            self.changed_turns.add(turn.ordinal)
            self.settle()

    def pass_over(self, event: Event) -> None:
        """The event is a copy of one that belongs elsewhere. What follows it does not belong to the turn before it."""
        if event.starts_turn and self.turn is not None and has_begun(self.turn):
            self.turn = None

    def cover(self, ts: int) -> None:
        """Extend the time of the transcript to this moment."""
        row = self.row
        if not row.first_at or ts < row.first_at:
            row.first_at = ts
        if ts > row.last_at:
            row.last_at = ts

    def settle(self) -> None:
        """A session is completed when its latest turn is."""
        latest = self.turns.get(self.row.turn_count)
        if latest is not None:
            self.row.completed = latest.completed

    def rest(self) -> None:
        """Drop the turns that cannot change any more, after everything was written."""
        self.changed, self.changed_turns = False, set()
        at_hand = {self.row.turn_count, self.ordinal}
        self.turns = {ordinal: turn for ordinal, turn in self.turns.items() if ordinal in at_hand}


def has_begun(turn: TurnRow) -> bool:
    """True if the turn has more than the settings and context that may precede its prompt."""
    return turn.prompt is not None or turn.started_work
