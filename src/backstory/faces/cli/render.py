"""How the pieces look: who speaks, when it was, what matched."""

from __future__ import annotations

import re
import sys
import time
from typing import Any

from rich.console import Console
from rich.text import Text

from ...archive.query import parse_query
from ...model import parse_time
from .words import ago

__all__ = ["facts", "headline", "highlight", "moment", "put", "since", "speaker", "stdout_console"]

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


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the process with exit code 1 here; the program treats it like any other broken pipe."""
        raise BrokenPipeError


def stdout_console() -> Console:
    """A console for results. Only a terminal has a width: what goes into a pipe or a file is never folded or cut."""
    return _Console(highlight=False, markup=False, emoji=False, soft_wrap=not sys.stdout.isatty())


def put(console: Console, *parts: Text | str | tuple[str, str], indent: int = 0) -> None:
    """Print text (or text with its style) with every line indented, also the folded ones."""
    text = Text.assemble(*parts)
    lines = text.split("\n", allow_blank=True) if console.soft_wrap else text.wrap(console, console.width - indent)
    for line in lines:
        line.rstrip()
        console.print(Text.assemble(" " * indent if line else "", line))


def headline(console: Console, title: str, *, number: int | None = None) -> None:
    """A title, on one line whatever the terminal's width."""
    line = Text.assemble((f"{number:>2}  " if number is not None else "", "dim"), (" ".join(title.split()), "bold"))
    if not console.soft_wrap:
        line.truncate(console.width, overflow="ellipsis")
    console.print(line)


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
