"""A session as one file: HTML that needs nothing else, Markdown, or JSON Lines. All of it has passed the border."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ...model import SessionRef, parse_id, turn_id
from ..markdown import to_markdown
from .items import IN_FILE
from .lines import session_lines
from .parts import whole_session
from .rendering import make_environment

if TYPE_CHECKING:
    from ...library import Library

Format = Literal["html", "md", "jsonl"]
MEDIA_TYPES: dict[Format, str] = {"html": "text/html", "md": "text/markdown", "jsonl": "application/x-ndjson"}
_STYLESHEET = Path(__file__).with_name("static") / "backstory.css"


def export(library: Library, id: str, format: Format) -> Iterator[str]:
    """The file in pieces. Raises LookupError for an id that is not that of a session in the archive."""
    ref = parse_id(id)
    row = library.archive.session(ref.key) if isinstance(ref, SessionRef) else None
    if row is None:
        raise LookupError(f"no session {id} is in the archive")
    if format == "md":
        return iter([to_markdown(library, library.open(id), full=True)])
    return _html(library, row.key) if format == "html" else _json_lines(library, row.key)


def _html(library: Library, key: str) -> Iterator[str]:
    row = library.archive.session(key)
    assert row is not None
    (session,) = session_lines(library, [row])
    template = make_environment(asset=str).get_template("export.html")
    return template.generate(
        session=session,
        turns=whole_session(library, key, IN_FILE),
        stylesheet=_STYLESHEET.read_text("utf-8"),
        version=version("backstory"),
    )


def _json_lines(library: Library, key: str) -> Iterator[str]:
    """The session on the first line, then its events in order."""
    row = library.archive.session(key)
    assert row is not None
    (session,) = session_lines(library, [row])
    yield _line({"kind": "session", **msgspec.to_builtins(session)})
    for turn in library.archive.turns(key):
        for event in library.read_turn(turn_id(key, turn.ordinal)):
            yield _line({"kind": "event", **msgspec.to_builtins(event)})


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"
