"""How results look: who speaks, when it was, what matched; on a terminal, or as plain text in a pipe."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any, Protocol

from ...archive.query import parse_query
from ...model import parse_time
from .words import ago

__all__ = ["Page", "Part", "facts", "highlight", "moment", "open_page", "since", "speaker"]

Part = str | tuple[str, str]
"""Text, or text and its style."""

_SPEAKERS = {
    "user_input": ("you", "bold green"),
    "assistant_response": ("agent", "bold cyan"),
    "reasoning": ("thought", "magenta"),
    "tool_call": ("call", "yellow"),
    "tool_response": ("result", "yellow"),
    "compaction": ("compacted", "blue"),
    "system": ("system", "blue"),
    "runtime": ("runtime", "blue"),
}


class Page(Protocol):
    """Where results are written."""

    def put(self, *parts: Part, indent: int = 0) -> None:
        """Text with every line indented, also the folded ones."""

    def headline(self, title: str, *, number: int | None = None) -> None:
        """A title, on one line."""


class PlainPage:
    """Only a terminal has a width: what goes into a pipe or a file is never folded or cut."""

    def put(self, *parts: Part, indent: int = 0) -> None:
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        sys.stdout.writelines((" " * indent + line).rstrip() + "\n" for line in text.split("\n"))

    def headline(self, title: str, *, number: int | None = None) -> None:
        self.put(f"{number:>2}  " if number is not None else "", title)


def open_page() -> Page:
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        from .terminal import TerminalPage

        return TerminalPage()
    return PlainPage()


def speaker(event_type: str) -> Part:
    return _SPEAKERS.get(event_type, (event_type, "dim"))


def moment(timestamp: str) -> str:
    """A tool's RFC 3339 time, relative to now."""
    return since(parse_time(timestamp) or 0)


def since(ms: int) -> str:
    return ago(ms, int(time.time() * 1000))


def facts(*parts: Any) -> Part:
    """What is said in passing: `codex · 3 days ago · 12 turns`."""
    return " · ".join(str(part) for part in parts if part), "dim"


def highlight(text: str, query: str) -> list[Part]:
    """The text with the words of the query made visible."""
    terms = sorted(parse_query(query).terms, key=len, reverse=True)
    if not terms:
        return [text]
    # Words as the index splits them: `_` separates, and scripts without spaces have no word boundaries.
    words = (rf"(?<![^\W_]){re.escape(term)}(?![^\W_])" if term.isascii() else re.escape(term) for term in terms)
    pieces = re.split(f"({'|'.join(words)})", text, flags=re.IGNORECASE)
    return [(piece, "bold yellow") if number % 2 else piece for number, piece in enumerate(pieces)]
