"""A session to read: its events as items (a tool call with its output is one), and its turns in parts, page by page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from ...archive.base import EventRow, OpenedSession, Part, SessionRow, SessionsRequest
from ...archive.rows import has_failed
from ...model import EventType, event_id, rfc3339, session_id, turn_id
from ...toolcalls import main_argument, shell_command, without_preamble
from ...toolsets.history.views import Views
from .edits import Diff, find_diffs
from .lists import SessionLine, session_lines

if TYPE_CHECKING:
    from ...library import Library

ItemKind = Literal["user", "agent", "reasoning", "tool", "compaction", "interrupt", "error", "system", "runtime"]
_KINDS: dict[EventType, ItemKind] = {
    EventType.USER_INPUT: "user",
    EventType.ASSISTANT_RESPONSE: "agent",
    EventType.REASONING: "reasoning",
    EventType.TOOL_CALL: "tool",
    EventType.TOOL_RESPONSE: "tool",
    EventType.COMPACTION: "compaction",
    EventType.SYSTEM: "system",
    EventType.RUNTIME: "runtime",
    EventType.UNKNOWN: "runtime",
}
_ARGUMENT_CHARS = 240
_IMAGE_MARK = "[image]"
# Agents begin commands with the folder of the project, which says nothing about the command.
_CHANGES_FOLDER = re.compile(r"^cd (?:'[^']*'|\"[^\"]*\"|\S+) && (?=\S)")
# The marks are a text, which may have any number of them.
_MOST_IMAGES = 20
# A text is cut here, between words, before it passes egress, and again to the limit for its kind afterwards.
_READ_CHARS = 400_000

# A part has so many events, or texts of so many characters, and ends where no tool call waits for its output.
PART_EVENTS = 40
_PART_CHARS = 60_000
_FOLDED_CHARS = 4_000
_WAITING_EVENTS = 40
HEAD_CHARS = 400
"""The number of characters that the beginnings of prompts and answers are made from."""


class Limits(Struct, frozen=True):
    """The number of characters, and of lines of diffs, that an item shows, and if it shows images."""

    text: int
    output: int
    argument: int
    lines: int
    images: bool


ON_PAGE = Limits(text=20_000, output=4_000, argument=2_000, lines=400, images=True)
IN_FILE = Limits(text=_READ_CHARS, output=_READ_CHARS, argument=_READ_CHARS, lines=20_000, images=False)


class Argument(Struct, frozen=True):
    name: str
    value: str


class Child(Struct, frozen=True):
    """A session that a tool call started, with the beginnings of its prompt and its answer."""

    session: SessionLine
    prompt: str
    answer: str


class Passage(Struct, frozen=True):
    """A part of a text that is left out, with the places of what was looked for in it."""

    text: str
    marks: list[tuple[int, int]]


class ToolUse(Struct, frozen=True, kw_only=True):
    """A tool call and its response, if both are there."""

    name: str
    argument: str
    """The argument that matters, on one line."""
    arguments: list[Argument]
    shell: str | None
    """The command, of a tool that runs one."""
    diffs: list[Diff]
    input_cut: bool
    """A part of the arguments is left out."""
    output: str | None
    output_cut: bool
    output_id: str | None
    """The id of the response."""
    exit_code: int | None
    failed: bool
    duration_ms: int | None
    children: list[Child] = []
    """The sessions that the call started."""
    passage: Passage | None = None
    """Of the output."""


class Item(Struct, frozen=True, kw_only=True):
    id: str
    """Of its event."""
    kind: ItemKind
    timestamp: str
    text: str = ""
    cut: bool = False
    model: str | None = None
    images: int = 0
    """Images that the transcript has at this place; the archive keeps texts only."""
    image_urls: list[str] = []
    """Their addresses, where the transcript is still there to read them from."""
    tool: ToolUse | None = None
    passage: Passage | None = None


class _Shown(Struct, frozen=True):
    """The texts of an event, after egress."""

    row: EventRow
    text: str
    tool: str
    model: str
    arguments: Any


def read_items(
    library: Library, rows: Sequence[EventRow], limits: Limits, children: Mapping[str, Sequence[Child]] = {}
) -> list[Item]:
    """The items of events of one turn, in order. `children` are the sessions that calls started, by call id."""
    values = [[_readable(row), row.tool or "", row.model or "", row.arguments] for row in rows]
    shown = [_Shown(row, *texts) for row, texts in zip(rows, library.egress(values), strict=True)]
    calls = {each.row.call_id for each in shown if each.row.type is EventType.TOOL_CALL and each.row.call_id}
    responses: dict[str | None, _Shown] = {}
    for each in shown:
        if each.row.type is EventType.TOOL_RESPONSE and each.row.call_id in calls:
            responses.setdefault(each.row.call_id, each)
    joined = {id(response) for response in responses.values()}
    items = [_item(each, responses.get(each.row.call_id), limits, children) for each in shown if id(each) not in joined]
    if limits.images and any(item.images for item in items) and library.has_transcript(rows[0].session):
        return [_with_addresses(item, rows[0].session) for item in items]
    return items


def _readable(row: EventRow) -> str:
    if row.type is EventType.TOOL_CALL:
        return ""
    text = without_preamble(row.text) if row.type is EventType.TOOL_RESPONSE else row.text
    # Half a word at the end could be half a secret.
    return text if len(text) <= _READ_CHARS else text[:_READ_CHARS].rsplit(None, 1)[0]


def _item(shown: _Shown, response: _Shown | None, limits: Limits, children: Mapping[str, Sequence[Child]]) -> Item:
    row = shown.row
    kind = _kind(row)
    tool = None
    if row.type is EventType.TOOL_CALL:
        tool = _tool_use(shown, response, limits, children.get(row.call_id or "", ()))
    elif row.type is EventType.TOOL_RESPONSE:
        tool = _tool_use(None, shown, limits, children.get(row.call_id or "", ()))
    text = "" if tool is not None else shown.text
    return Item(
        id=event_id(row.uid),
        kind=kind,
        timestamp=rfc3339(row.ts),
        text=text[: limits.text],
        cut=len(text) > limits.text or (tool is None and len(row.text) > _READ_CHARS),
        model=shown.model or None,
        images=_images(response.row if response is not None else row),
        tool=tool,
    )


def _images(row: EventRow) -> int:
    """The number of images of a prompt or an output. Some agents' parsers leave only a mark in the text."""
    counted = (row.extra or {}).get("images")
    if isinstance(counted, int):
        return counted
    return row.text.splitlines().count(_IMAGE_MARK) if row.type is EventType.TOOL_RESPONSE else 0


def _with_addresses(item: Item, session: str) -> Item:
    event = item.tool.output_id if item.tool is not None else item.id
    shown = min(item.images, _MOST_IMAGES)
    urls = [f"/s/{session_id(session)}/{event}/image/{number}" for number in range(1, shown + 1)]
    # The images stand in the place of their marks.
    text = re.sub(rf"\s*{re.escape(_IMAGE_MARK)}", "", item.text, count=shown)
    return msgspec.structs.replace(item, image_urls=urls, text=text)


def _kind(row: EventRow) -> ItemKind:
    kind = _KINDS[row.type]
    if kind == "runtime" and (row.extra or {}).get("interrupted") is True:
        return "interrupt"
    if kind == "runtime" and (row.failed or row.text[:9].lower() == "api error"):
        return "error"
    return kind


def _tool_use(call: _Shown | None, response: _Shown | None, limits: Limits, children: Sequence[Child]) -> ToolUse:
    arguments = call.arguments if call is not None else None
    output = response.text if response is not None else None
    is_long = response is not None and len(response.row.text) > _READ_CHARS
    named = call or response
    assert named is not None
    texts, diffs = _texts(arguments), find_diffs(arguments, limits.lines)
    command = None if diffs else shell_command(arguments)
    longest = 0 if diffs else max(map(len, texts.values()), default=0)
    return ToolUse(
        name=named.tool or "tool",
        argument=_CHANGES_FOLDER.sub("", main_argument(arguments) or "", count=1)[:_ARGUMENT_CHARS],
        arguments=[Argument(name, _cut(text, limits.argument)) for name, text in texts.items()],
        shell=None if command is None else _cut(command, limits.text),
        diffs=diffs,
        input_cut=longest > limits.argument or any(diff.more for diff in diffs),
        output=None if output is None else output[: limits.output],
        output_cut=output is not None and (len(output) > limits.output or is_long),
        output_id=None if response is None else event_id(response.row.uid),
        exit_code=None if response is None else response.row.exit_code,
        failed=response is not None and has_failed(response.row),
        duration_ms=_duration(call, response),
        children=list(children),
    )


def _duration(call: _Shown | None, response: _Shown | None) -> int | None:
    if response is None:
        return None
    measured = (response.row.extra or {}).get("duration_ms")
    if isinstance(measured, int | float):
        return round(measured)
    return response.row.ts - call.row.ts if call is not None and response.row.ts > call.row.ts else None


def _texts(arguments: Any) -> dict[str, str]:
    """The arguments as texts, by name."""
    if arguments is None:
        return {}
    named = arguments if isinstance(arguments, dict) else {"": arguments}
    return {str(name): _text(value) for name, value in named.items()}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except (RecursionError, msgspec.MsgspecError):
        return "…"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


# Parts


class Place(Struct, frozen=True):
    """A turn and an event in it, by their ordinals: `3` or `3.12` in addresses."""

    turn: int
    event: int = 1

    def __str__(self) -> str:
        return str(self.turn) if self.event == 1 else f"{self.turn}.{self.event}"


class ShownTurn(Struct, frozen=True):
    id: str
    ordinal: int
    first: int
    """The ordinal of its first event here; above 1 the turn began in an earlier part."""
    started_at: str
    items: list[Item]


class Conversation:
    """The turns of an opened session as items to read."""

    def __init__(self, library: Library, opened: OpenedSession, limits: Limits) -> None:
        self._library = library
        self._key = opened.session.key
        self._turns = opened.turns
        self._limits = limits
        self._started = _started_by_calls(library, opened)

    def whole(self) -> Iterator[ShownTurn]:
        place = Place(self._turns[0].ordinal) if self._turns else None
        while place is not None:
            turns, place = self.part(place)
            yield from turns

    def part(self, start: Place, reach: int = 0) -> tuple[list[ShownTurn], Place | None]:
        """The turns from a place on, as far as a part goes, and the place where the next one begins. The event
        `reach` of the first turn is in it."""
        shown: list[ShownTurn] = []
        events, chars = PART_EVENTS, _PART_CHARS
        for turn in self._turns:
            if turn.ordinal < start.turn:
                continue
            if events <= 0 or chars <= 0:
                return shown, Place(turn.ordinal)
            first, needed = (start.event, reach - start.event + 1) if turn.ordinal == start.turn else (1, 0)
            room = max(events, needed)
            rows = self._library.archive.events(
                self._key, turn.ordinal, Part(above=first - 1, limit=room + _WAITING_EVENTS)
            )
            kept = _until_answered(rows, room, chars, needed)
            if not kept:
                continue
            events -= len(kept)
            chars -= sum(map(_chars, kept))
            shown.append(
                ShownTurn(
                    turn_id(self._key, turn.ordinal), turn.ordinal, first, rfc3339(turn.started_at), self._items(kept)
                )
            )
            if kept[-1].ordinal < turn.event_count:
                return shown, Place(turn.ordinal, kept[-1].ordinal + 1)
        return shown, None

    def _items(self, rows: Sequence[EventRow]) -> list[Item]:
        called = {row.call_id for row in rows if row.call_id in self._started}
        children = {call: self._children(self._started[call]) for call in called if call}
        return read_items(self._library, rows, self._limits, children)

    def _children(self, rows: Sequence[SessionRow]) -> list[Child]:
        views = Views(self._library.settings.redact)
        children = []
        for row, line in zip(rows, session_lines(self._library, rows), strict=True):
            turns = self._library.archive.turns(row.key, Part(heads=HEAD_CHARS, limit=1))
            heads = views.heads(turns)
            prompt, answer = (turns[0].prompt, turns[0].response) if turns else (None, None)
            texts = [heads[uid].text if uid is not None and uid in heads else "" for uid in (prompt, answer)]
            children.append(Child(line, *texts))
        return children


def _chars(row: EventRow) -> int:
    """The characters that a text counts for a part: all of one that is laid out, some of one that is folded."""
    if row.type in (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE):
        return len(row.text)
    return 0 if row.type in (EventType.TOOL_CALL, EventType.TOOL_RESPONSE) else min(len(row.text), _FOLDED_CHARS)


def _until_answered(rows: Sequence[EventRow], room: int, chars: int, needed: int) -> Sequence[EventRow]:
    """The first rows of a turn: as many as are needed, as many as fit, and those up to the output of the last tool call
    among them."""
    waiting: set[str] = set()
    for count, row in enumerate(rows, 1):
        if row.type is EventType.TOOL_CALL and row.call_id:
            waiting.add(row.call_id)
        elif row.type is EventType.TOOL_RESPONSE:
            waiting.discard(row.call_id or "")
        chars -= _chars(row)
        if count >= needed and (count >= room or chars <= 0) and not waiting:
            return rows[:count]
    return rows


def _started_by_calls(library: Library, opened: OpenedSession) -> dict[str, list[SessionRow]]:
    """The sessions that tool calls of this one started, by call id."""
    if not opened.children:
        return {}
    started: dict[str, list[SessionRow]] = {}
    for row in library.archive.sessions(SessionsRequest(parent=opened.session.key, order="started_at", ascending=True)):
        if row.parent_call:
            started.setdefault(row.parent_call, []).append(row)
    return started
