"""Rows from items: of an event, of the turn that it is added to or replaced in, of a session and of a model call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter

from ..archive.base import EventRow, Mode, SessionRow, TurnRow, UsageRow
from ..model import EventType
from ..sources.base import About, Event, Transcript, Usage

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
