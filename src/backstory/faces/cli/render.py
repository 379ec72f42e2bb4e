"""How results look: who speaks, when it was, what matched; on a terminal, or as plain text in a pipe."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from ...archive.query import parse_query
from ...model import parse_time
from .words import ago, date_time, home_path, width

if TYPE_CHECKING:
    from ...library import Location
    from .terminal import Terminal

__all__ = [
    "Console",
    "Part",
    "Plain",
    "facts",
    "headline",
    "highlight",
    "moment",
    "paged",
    "put",
    "put_command",
    "put_facts",
    "put_passage",
    "resume_command",
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


def put_facts(console: Console, *parts: Any, indent: int = 0) -> None:
    """Print facts; on a terminal a line breaks only between two of them."""
    room = None if isinstance(console, Plain) else max(20, console.width - indent)
    line = ""
    for part in (str(part) for part in parts if part):
        longer = f"{line} · {part}" if line else part
        if line and room is not None and width(longer) > room - 2:
            put(console, (f"{line} ·", "dim"), indent=indent)
            line = part
        else:
            line = longer
    if line:
        put(console, (line, "dim"), indent=indent)


def put_command(console: Console, command: str, *, indent: int = 0) -> None:
    """Print a shell command; too long for a terminal's line, it breaks after `&&`, so that a copy of it still runs."""
    fits = isinstance(console, Plain) or width(command) + indent <= console.width
    for line in [command] if fits else command.replace(" && ", " &&\n").split("\n"):
        put(console, (line, "dim"), indent=indent)


def put_passage(
    console: Console, text: str, *, indent: int, lines: int | None, rest: str, markdown: bool = False
) -> None:
    """Print a text; on a terminal at most so many lines of it, and `rest` as the command that shows all of it."""
    if isinstance(console, Plain):
        put(console, text, indent=indent)
    elif hidden := console.passage(text.strip("\n"), indent=indent, lines=lines, markdown=markdown):
        put(console, facts(f"… {hidden:,} more lines: {rest}"), indent=indent)


@contextmanager
def paged(console: Console) -> Iterator[None]:
    """On a terminal, show what is printed in a pager."""
    if isinstance(console, Plain):
        yield
    else:
        with console.pages():
            yield


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
    """A tool's RFC 3339 time: date and time, and how long ago that was if it was within the last month."""
    ms = parse_time(timestamp) or 0
    stamp, distance = date_time(ms), since(ms)
    return stamp if stamp.startswith(distance) else f"{stamp}, {distance}"


def since(ms: int) -> str:
    return ago(ms, int(time.time() * 1000))


def resume_command(location: Location) -> str | None:
    """The shell command that continues a session in its own agent."""
    if location.resume is None:
        return None
    command = shlex.join(location.resume)
    if location.project is None:
        return command
    folder = home_path(location.project)
    inner = folder.removeprefix("~/")
    quoted = f"~/{shlex.quote(inner)}" if inner != folder else "~" if folder == "~" else shlex.quote(folder)
    return f"cd {quoted} && {command}"


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
