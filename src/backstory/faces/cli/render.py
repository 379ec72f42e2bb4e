"""How the pieces look: who speaks, when it was, what matched."""

from __future__ import annotations

import re
import time
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from ...archive.query import parse_query
from ...model import parse_time
from .words import ago

__all__ = ["facts", "headline", "highlight", "moment", "put", "since", "speaker"]

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


def put(console: Console, text: Text, *, indent: int = 0) -> None:
    """Print text with every line indented, also the folded ones."""
    if console.soft_wrap:
        for line in text.split("\n", allow_blank=True):
            console.print(Text(" " * indent) + line)
    else:
        console.print(Padding(text, (0, 0, 0, indent), expand=False) if indent else text)


def headline(console: Console, title: str, *, number: int | None = None) -> None:
    """A title, on one line whatever the terminal's width."""
    lead = Text(f"{number:>2}  ", "dim") if number is not None else Text()
    line = lead + Text(" ".join(title.split()), "bold")
    if console.soft_wrap:
        console.print(line)
    else:
        console.print(line, no_wrap=True, overflow="ellipsis")


def speaker(event_type: str) -> Text:
    return Text(*_SPEAKERS.get(event_type, (event_type, "dim")))


def moment(timestamp: str) -> str:
    """A tool's RFC 3339 time, relative to now."""
    return since(parse_time(timestamp) or 0)


def since(ms: int) -> str:
    return ago(ms, int(time.time() * 1000))


def facts(*parts: Any) -> Text:
    """What is said in passing: `codex · 3 days ago · 12 turns`."""
    return Text(" · ".join(str(part) for part in parts if part), style="dim")


def highlight(text: str, query: str) -> Text:
    """The text with the words of the query made visible."""
    result = Text(text)
    terms = sorted(parse_query(query).terms, key=len, reverse=True)
    if terms:
        # Words as the index splits them: `_` separates, and scripts without spaces have no word boundaries.
        words = "|".join(
            rf"(?<![^\W_]){re.escape(term)}(?![^\W_])" if term.isascii() else re.escape(term) for term in terms
        )
        result.highlight_regex(re.compile(words, re.IGNORECASE), "bold yellow")
    return result
