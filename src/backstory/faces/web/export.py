"""A session as one file: HTML that needs nothing else, Markdown, or JSON Lines. All of it has passed the border."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ...archive.base import OpenedSession
from ...model import SessionRef, parse_id, turn_id
from ..markdown import to_markdown
from .conversation import IN_FILE, Conversation
from .lines import session_lines
from .rendering import make_environment

if TYPE_CHECKING:
    from ...library import Library

Format = Literal["html", "md", "jsonl"]
MEDIA_TYPES: dict[Format, str] = {"html": "text/html", "md": "text/markdown", "jsonl": "application/x-ndjson"}
_STYLESHEET = Path(__file__).with_name("static") / "backstory.css"


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
    (session,) = session_lines(library, [opened.session])
    yield _line({"kind": "session", **msgspec.to_builtins(session)})
    for turn in opened.turns:
        for event in library.read_turn(turn_id(turn.session, turn.ordinal)):
            yield _line({"kind": "event", **msgspec.to_builtins(event)})


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"
