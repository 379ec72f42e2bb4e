"""Printing: results to stdout, as JSON, lines or tables for a terminal or a pipe; messages about them to stderr."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click

from ..words import ago, date_time, fit, width

if TYPE_CHECKING:
    from .terminal import Terminal

Part = str | tuple[str, str]
"""Text, or text and its style."""
Console: TypeAlias = "Plain | Terminal"

# Widths in a table, in cells.
_GAP = 2
_LEAST_NAME = 12
_COMFORTABLE_NAME = 28
_BAR = 20
_LEAST_BAR = 6

# Error codes of tools that mean a wrong request; every other code is a failure.
_WRONG_REQUEST = {"invalid_request", "unsupported_event_type", "ambiguous_addressing"}
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


def print_json(data: Any, *, err: bool = False) -> None:
    """Print one JSON document to stdout or stderr: indented on a terminal, on one line elsewhere."""
    import msgspec

    stream = sys.stderr if err else sys.stdout
    encoded = msgspec.json.encode(data)
    if stream.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    # As bytes: JSON is UTF-8 in every locale.
    stream.flush()
    stream.buffer.write(encoded + b"\n")
    stream.buffer.flush()


def exit_code(answer: dict[str, Any]) -> int:
    """Return the exit code for a tool's answer, and print its error to stderr."""
    error = answer.get("error")
    if error is None:
        return 0
    if not isinstance(error, dict):
        error = {"message": str(error)}
    print_error(str(error.get("message") or error.get("code")))
    return 2 if str(error.get("code")).lower() in _WRONG_REQUEST else 1


# Messages on stderr


def tell(message: str) -> None:
    """Print a message that everyone sees, scripts too."""
    click.echo(_wrapped(message), err=True)


def hint(message: str) -> None:
    """Print what to do next, for a person at a terminal only."""
    if sys.stderr.isatty():
        click.secho(_wrapped(message), dim=True, err=True, color=use_color())


def warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        _print_labelled("warning: ", "yellow", warning)


def print_error(message: str) -> None:
    _print_labelled("error: ", "red", message)


def use_color() -> bool | None:
    """No colour with NO_COLOR or on a terminal without escape sequences; None leaves it to click, which looks for a
    terminal."""
    return False if os.environ.get("NO_COLOR") or os.environ.get("TERM") in ("dumb", "unknown") else None


def _print_labelled(label: str, color: str, message: str) -> None:
    click.secho(label, fg=color, nl=False, err=True, color=use_color())
    click.echo(_wrapped(label + message)[len(label) :], err=True)


def _wrapped(text: str) -> str:
    """Wrap text between words where stderr is a terminal; paths and ids stay whole."""
    if not sys.stderr.isatty():
        return text
    import shutil
    import textwrap

    columns = max(20, shutil.get_terminal_size().columns)
    lines = (textwrap.wrap(line, columns, break_long_words=False, break_on_hyphens=False) for line in text.split("\n"))
    return "\n".join("\n".join(line) for line in lines)


# Results on stdout


class Plain:
    """Output to a pipe or file. It has no width: nothing is wrapped or cut."""

    def print(self, *objects: object) -> None:
        sys.stdout.write(" ".join(map(str, objects)) + "\n")


def stdout_console() -> Console:
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        from .terminal import Terminal

        return Terminal()
    return Plain()


@contextmanager
def paged(console: Console) -> Iterator[None]:
    """Show what is printed in a pager, on a terminal."""
    if isinstance(console, Plain):
        yield
    else:
        with console.pages():
            yield


def put(console: Console, *parts: Part, indent: int = 0, wrapped: bool = True) -> None:
    """Print text with every line indented, wrapped lines too. A line that is not wrapped is copied as one."""
    if isinstance(console, Plain):
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        for line in text.split("\n"):
            console.print((" " * indent + line).rstrip())
    elif wrapped:
        console.wrap(*parts, indent=indent)
    else:
        console.print_line(*parts, indent=indent)


def headline(console: Console, title: str, *, number: int | None = None) -> None:
    """Print a title on one line, cut to the width of the terminal."""
    parts: tuple[Part, ...] = ((f"{number:>2}  " if number is not None else "", "dim"), (title, "bold"))
    if isinstance(console, Plain):
        put(console, *parts)
    else:
        console.crop(*parts)


def facts(*parts: Any) -> Part:
    """Facts on one line: `codex · 3 days ago · 12 turns`."""
    return " · ".join(str(part) for part in parts if part), "dim"


def put_facts(console: Console, *parts: Any, indent: int = 0) -> None:
    """Print facts; on a terminal a line breaks only between two of them."""
    room = None if isinstance(console, Plain) else max(20, console.width - indent)
    line = ""
    for part in (str(part) for part in parts if part):
        longer = f"{line} · {part}" if line else part
        if line and room is not None and width(longer) > room - 2:
            put(console, (f"{line} ·", "dim"), indent=indent, wrapped=False)
            line = part
        else:
            line = longer
    if line:
        put(console, (line, "dim"), indent=indent, wrapped=False)


def put_command(console: Console, command: str, *, indent: int = 0) -> None:
    """Print a shell command; too long for a terminal's line, it breaks after `&&`, so that a copy of it still runs."""
    fits = isinstance(console, Plain) or width(command) + indent <= console.width
    for line in [command] if fits else command.replace(" && ", " &&\n").split("\n"):
        put(console, (line, "dim"), indent=indent, wrapped=False)


def put_passage(
    console: Console, text: str, *, indent: int, lines: int | None, rest: str, markdown: bool = False
) -> None:
    """Print a text; on a terminal at most `lines` lines of it, then `rest`, the command that shows all of it."""
    if isinstance(console, Plain):
        put(console, text, indent=indent)
    elif hidden := console.passage(text.strip("\n"), indent=indent, lines=lines, markdown=markdown):
        put(console, facts(f"… {hidden:,} more lines: {rest}"), indent=indent)


# The parts of results


def speaker(event_type: str) -> Part:
    return _SPEAKERS.get(event_type, (event_type, "dim"))


def moment(timestamp: str) -> str:
    """Format a tool's RFC 3339 time as date and time, with the distance from now for the last month."""
    from ...model import parse_time

    ms = parse_time(timestamp) or 0
    stamp, distance = date_time(ms), since(ms)
    return stamp if stamp.startswith(distance) else f"{stamp}, {distance}"


def since(ms: int) -> str:
    """Format a time as its distance from now."""
    return ago(ms, int(time.time() * 1000))


def highlight(text: str, query: str) -> list[Part]:
    """Split a text into parts, with the words of the query in bold."""
    from ...archive.query import parse_query

    terms = sorted(parse_query(query).terms, key=len, reverse=True)
    if not terms:
        return [text]
    # Words as the index splits them: `_` separates, and scripts without spaces have no word boundaries.
    words = (rf"(?<![^\W_]){re.escape(term)}(?![^\W_])" if term.isascii() else re.escape(term) for term in terms)
    pieces = re.split(f"({'|'.join(words)})", text, flags=re.IGNORECASE)
    return [(piece, "bold yellow") if number % 2 else piece for number, piece in enumerate(pieces)]


# Tables


class Column(NamedTuple):
    """Amounts under a title. Where there is not enough room, columns with a high `rank` are left out first."""

    title: str
    cells: list[str]
    rank: int = 0


def show_table(
    title: str,
    names: Sequence[str],
    columns: Sequence[Column],
    *,
    bars: Sequence[float] = (),
    total: bool = False,
    keep_end: bool = False,
) -> None:
    """Print names with their amounts, and a bar for each of `bars`.

    `total`: the last row is a total. `keep_end` cuts long names at their start, which suits paths.
    """
    console = stdout_console()
    room = None if isinstance(console, Plain) else console.width
    columns = [column for column in columns if any(cell.strip(" *—0") for cell in column.cells)]
    longest = max(map(width, (title, *names)))
    if room is not None:
        reserved = min(max(longest, _LEAST_NAME), _COMFORTABLE_NAME) + (_GAP + _LEAST_BAR if any(bars) else 0)
        columns = _fitting(columns, room - reserved)
        left = room - sum(map(_taken, columns)) - (_GAP + _LEAST_BAR if any(bars) else 0)
        longest = max(_LEAST_NAME, min(longest, left))
    left = _BAR if room is None else room - longest - sum(map(_taken, columns)) - _GAP
    bar = min(_BAR, left) if left >= _LEAST_BAR and any(bars) else 0
    largest = max(bars, default=0) or 1
    rows = [(title, [column.title for column in columns], 0.0)]
    for number, name in enumerate(names):
        amount = bars[number] if number < len(bars) else 0.0
        rows.append((name, [column.cells[number] for column in columns], amount))
    for number, (name, cells, amount) in enumerate(rows):
        line = fit(name, longest, keep_end=keep_end and number > 0)
        line += "".join(
            " " * (_taken(column) - width(cell)) + cell for column, cell in zip(columns, cells, strict=True)
        )
        mark = "█" * round(bar * amount / largest) or ("▏" if amount else "")
        bold = number == 0 or (total and number == len(rows) - 1)
        put(console, (line, "bold" if bold else ""), (" " * _GAP + mark if bar and mark else "", "cyan"))


def _fitting(columns: Sequence[Column], room: int) -> list[Column]:
    kept = list(columns)
    while kept and sum(map(_taken, kept)) > room and any(column.rank for column in kept):
        kept.remove(max(kept, key=lambda column: column.rank))
    return kept


def _taken(column: Column) -> int:
    return _GAP + max(map(width, (column.title, *column.cells)))


def count(tokens: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:,.1f}k" if tokens < 999_950 else f"{tokens / 1e6:,.1f}M"


def dollars(amount: float | None) -> str:
    """`$12.34`, `$0.0012`, and a dash for an unknown price."""
    if amount is None:
        return "—"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "—"
