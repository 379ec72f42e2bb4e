"""A session or a turn as a Markdown document, for people to keep and share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..model import EVENT_TYPES, EventType
from ..toolcalls import main_argument

if TYPE_CHECKING:
    from ..library import Library
    from ..toolsets.history.types import ReadEvent

_SPOKEN = (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE, EventType.TOOL_CALL)
_HEADINGS = {EventType.USER_INPUT: "You", EventType.ASSISTANT_RESPONSE: "Agent", EventType.REASONING: "Reasoning"}
_FENCES = re.compile(r"`{3,}")


def to_markdown(library: Library, opened: dict[str, Any], *, full: bool) -> str:
    """The answer of `open` with whole texts. `full` adds reasoning, tool arguments and outputs, and markers."""
    data = opened["data"]
    if data["kind"] == "event":
        return f"{data['content']['text']}\n"
    session = data["session"]
    turns = data["turns"] if data["kind"] == "session" else [data["turn"]]
    lines = [f"# {session['title']}", "", *_head(library, session["id"])]
    for turn in turns:
        lines += ["", f"## Turn {turn['ordinal']} ({turn['started_at']})"]
        for entry in library.read_turn(turn["id"], EVENT_TYPES if full else _SPOKEN):
            lines += _entry(entry, full=full)
    return "\n".join(lines) + "\n"


def _head(library: Library, session_id: str) -> Iterator[str]:
    location = library.locate(session_id)
    if location is not None:
        yield f"- agent: {location.source}"
        yield f"- session: `{location.native_id}`"
        for name, value in (("project", location.project), ("branch", location.branch)):
            if value:
                yield f"- {name}: `{value}`"


def _entry(entry: ReadEvent, *, full: bool) -> Iterator[str]:
    kind, text = entry.event.type, entry.content.text
    yield ""
    if kind is EventType.TOOL_CALL:
        argument = main_argument(getattr(entry.content, "arguments", None))
        yield f"**{entry.event.tool_name or 'tool'}**" + (f" {_code(argument)}" if argument else "")
        if full:
            yield from ("", *_fenced(text))
    elif kind is EventType.TOOL_RESPONSE:
        code = getattr(entry.content, "exit_code", None)
        yield f"Output (exit code {code}):" if code is not None else "Output:"
        yield from ("", *_fenced(text))
    elif kind in _HEADINGS:
        yield from (f"### {_HEADINGS[kind]}", "", text)
    else:
        yield from (f"*{kind}*", "", *_fenced(text))


def _code(text: str) -> str:
    """Inline code that may hold backticks itself."""
    return f"`{text}`" if "`" not in text else f"`` {text} ``"


def _fenced(text: str) -> Iterator[str]:
    fence = "`" * max((len(found) + 1 for found in _FENCES.findall(text)), default=3)
    yield from (fence, text.strip("\n"), fence)
