"""A session as one file: HTML that needs nothing else, Markdown, or JSON Lines. All of it has passed egress."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..archive.base import OpenedSession
from ..model import EVENT_TYPES, EventType, SessionRef, parse_id, turn_id
from ..toolcalls import main_argument

if TYPE_CHECKING:
    from ..library import Library
    from ..toolsets.history.types import ReadEvent

_SPOKEN = (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE, EventType.TOOL_CALL)
_HEADINGS = {EventType.USER_INPUT: "You", EventType.ASSISTANT_RESPONSE: "Agent", EventType.REASONING: "Reasoning"}
_FENCES = re.compile(r"`{3,}")
Format = Literal["html", "md", "jsonl"]
MEDIA_TYPES: dict[Format, str] = {"html": "text/html", "md": "text/markdown", "jsonl": "application/x-ndjson"}
_STYLESHEET = Path(__file__).parent / "web" / "static" / "backstory.css"


def export(library: Library, id: str, format: Format) -> Iterator[str]:
    """The file in pieces. Raises LookupError for an id that is not that of a session in the archive."""
    ref = parse_id(id)
    opened = library.archive.open(ref) if isinstance(ref, SessionRef) else None
    if opened is None:
        raise LookupError(f"no session {id} is in the archive")
    if format == "md":
        return iter([to_markdown(library, library.open(id), full=True)])
    return _html(library, opened) if format == "html" else _json_lines(library, opened)


def _html(library: Library, opened: OpenedSession) -> Iterator[str]:
    from .web import make_environment
    from .web.conversation import IN_FILE, Conversation
    from .web.lists import session_lines

    (session,) = session_lines(library, [opened.session])
    template = make_environment(asset=str).get_template("export.html")
    return template.generate(
        session=session,
        turns=Conversation(library, opened, IN_FILE).whole(),
        stylesheet=_STYLESHEET.read_text("utf-8"),
        version=version("backstory"),
    )


def _json_lines(library: Library, opened: OpenedSession) -> Iterator[str]:
    """The session on the first line, then its events in order."""
    from .web.lists import session_lines

    (session,) = session_lines(library, [opened.session])
    yield _line({"kind": "session", **msgspec.to_builtins(session)})
    for turn in opened.turns:
        for event in library.read_turn(turn_id(turn.session, turn.ordinal)):
            yield _line({"kind": "event", **msgspec.to_builtins(event)})


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"


# Markdown


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
