"""Results on a terminal: in colour, wrapped to its width, in a pager."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import Markdown, MarkdownElement, TableElement
from rich.table import Table
from rich.text import Text

from .output import Part

# The line about hidden lines takes as much room as one or two of them.
_LEAST_HIDDEN = 3
# Markdown and combining characters take more characters than cells.
_CHARS_PER_CELL = 4
# The minimum width of a table column, with the space beside it.
_LEAST_CELL = 6


class Terminal(Console):
    """A rich console that prints text as it is: no markup, no emoji names, no highlighting."""

    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def wrap(self, *parts: Part, indent: int) -> None:
        # The terminal wraps an id or path that is longer than a line, and copies it as one word.
        for line in Text.assemble(*parts, overflow="ignore").wrap(self, self._room(indent)):
            line.rstrip()
            self.print_line(line, indent=indent if line else 0)

    def print_line(self, *parts: Part | Text, indent: int) -> None:
        self.print(Text.assemble(" " * indent, *parts), soft_wrap=True)

    def crop(self, *parts: Part) -> None:
        line = Text.assemble(*parts)
        line.truncate(self.width, overflow="ellipsis")
        self.print(line, soft_wrap=True)

    def passage(self, text: str, *, indent: int, lines: int | None, markdown: bool) -> int:
        """Print the first `lines` lines of a text and return the number of lines that are hidden."""
        room = self._room(indent)
        # Only as much of a long text is laid out as fills the lines.
        enough = len(text) if lines is None else (lines + _LEAST_HIDDEN) * (room + 1) * _CHARS_PER_CELL
        text, unread = text[:enough], text[enough:]
        rows = self.render_lines(
            _markdown(text, room) if markdown else Text(text, overflow="fold"),
            self.options.update(width=room),
            pad=False,
        )
        is_cut = lines is not None and (len(rows) >= lines + _LEAST_HIDDEN or bool(unread))
        shown = rows[:lines] if is_cut else rows
        for segments in shown:
            row = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
            row.rstrip()
            self.print_line(row, indent=indent if row else 0)
        return len(rows) - len(shown) + (unread.count("\n") or 1 if unread else 0)

    @contextmanager
    def pages(self) -> Iterator[None]:
        """Show what is printed in a pager, from the first line on; without one, print it.

        Printing waits while the reader looks at a page, and ends when the reader leaves.
        """
        command = _pager() if self.file.isatty() and not self.is_dumb_terminal else None
        if command is None:
            yield
            return
        # -F: end at once when all fits on the screen. -R: keep colours. -X: leave the text on the screen.
        environment = {"LESS": "-FRX", **os.environ}
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True, errors="replace")
        assert pager.stdin is not None
        stdout, self.file = self.file, pager.stdin
        try:
            with suppress(BrokenPipeError, KeyboardInterrupt):
                yield
        finally:
            with self.capture():  # drops what the pager did not take
                self.file = stdout
            with suppress(BrokenPipeError):
                pager.stdin.close()
            _wait(pager)

    def on_broken_pipe(self) -> None:
        """Raise, as for any other broken pipe; rich would end the process with exit code 1."""
        raise BrokenPipeError

    def _room(self, indent: int) -> int:
        return max(20, self.width - indent)


def _pager() -> list[str] | None:
    """The command of the user's pager, by default `less`; None when it is not installed or not a command."""
    try:
        command = shlex.split(os.environ.get("PAGER", "less"))
    except ValueError:
        return None
    return command if command and shutil.which(command[0]) else None


def _wait(pager: subprocess.Popen[str]) -> None:
    """Wait until the reader leaves the pager. Ctrl-C is for the pager until then."""
    while True:
        with suppress(KeyboardInterrupt):
            pager.wait()
            return


class _Table(TableElement):
    """A table that wraps words that are wider than their column; rich cuts them."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            for column in table.columns:
                column.overflow = "fold"
            yield table


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "table_open": _Table}


def _markdown(text: str, room: int) -> Markdown | Text:
    """Markdown for the terminal. HTML tags are text, and links are not clickable.

    Rich leaves out tables with too many columns and deep nesting; these are shown as their source.
    """
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
    tokens = parser.parse(text)
    if any(token.level >= parser.options["maxNesting"] - 1 for token in tokens):
        return Text(text, overflow="fold")
    shown = _Markdown("", hyperlinks=False, code_theme="ansi_dark")
    shown.parsed = list(_fitting(tokens, re.split(r"\r\n?|\n", text), room))
    return shown


def _fitting(tokens: Sequence[Token], lines: Sequence[str], room: int) -> Iterator[Token]:
    """The tokens, with tables that have too many columns for `room` replaced by their source."""
    kept = iter(enumerate(tokens))
    for number, token in kept:
        if token.type == "table_open" and token.map is not None and _columns(tokens, number) * _LEAST_CELL > room:
            source = "\n".join(lines[slice(*token.map)])
            yield Token("fence", "code", 0, map=token.map, content=source, info="text", block=True)
            next(other for _, other in kept if other.type == "table_close")
        else:
            yield token


def _columns(tokens: Sequence[Token], table: int) -> int:
    head = takewhile(lambda token: token.type != "thead_close", tokens[table:])
    return sum(token.type == "th_open" for token in head)
