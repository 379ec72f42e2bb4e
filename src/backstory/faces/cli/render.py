"""How results look: who speaks, when it was, what matched; on a terminal, or as plain text in a pipe."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from ...archive.query import parse_query
from ...model import parse_time
from .words import ago

if TYPE_CHECKING:
    from .terminal import Terminal

__all__ = [
    "Console",
    "Part",
    "Plain",
    "facts",
    "headline",
    "highlight",
    "moment",
    "put",
    "since",
    "speaker",
    "stdout_console",
]

Part = str | tuple[str, str]
"""Text, or text and its style."""
Console: TypeAlias = "Plain | Terminal"

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


class Plain:
    """Where there is no terminal: text as it is. Only a terminal has a width; in a pipe nothing is folded or cut."""

    def print(self, *objects: object) -> None:
        sys.stdout.write(" ".join(map(str, objects)) + "\n")


def stdout_console() -> Console:
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        from .terminal import Terminal

        return Terminal()
    return Plain()


def put(console: Console, *parts: Part, indent: int = 0) -> None:
    """Print text with every line indented, also the folded ones."""
    if isinstance(console, Plain):
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        for line in text.split("\n"):
            console.print((" " * indent + line).rstrip())
    else:
        console.fold(*parts, indent=indent)


def headline(console: Console, title: str, *, number: int | None = None) -> None:
    """A title, on one line whatever the terminal's width."""
    parts: tuple[Part, ...] = ((f"{number:>2}  " if number is not None else "", "dim"), (title, "bold"))
    if isinstance(console, Plain):
        put(console, *parts)
    else:
        console.crop(*parts)


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
