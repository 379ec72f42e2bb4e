"""Results on a terminal: in colour, folded to its width, a page at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown
from rich.text import Text

from .render import Part

__all__ = ["Terminal"]

# One or two hidden lines would take as much room as the line that says so.
_LEAST_HIDDEN = 3


class Terminal(Console):
    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def fold(self, *parts: Part, indent: int) -> None:
        # An id or path that is longer than a line is left to the terminal, which copies it as one word.
        for line in Text.assemble(*parts, overflow="ignore").wrap(self, self._room(indent)):
            line.rstrip()
            self.print(Text.assemble(" " * indent if line else "", line), soft_wrap=True)

    def crop(self, *parts: Part) -> None:
        line = Text.assemble(*parts)
        line.truncate(self.width, overflow="ellipsis")
        self.print(line, soft_wrap=True)

    def passage(self, text: str, *, indent: int, lines: int | None, markdown: bool) -> int:
        """Print the first `lines` lines of a text and return the number of lines that are hidden."""
        shown = self.render_lines(
            _markdown(text) if markdown else Text(text, overflow="fold"),
            self.options.update(width=self._room(indent)),
            pad=False,
        )
        hidden = 0 if lines is None or len(shown) < lines + _LEAST_HIDDEN else len(shown) - lines
        for line in shown[: len(shown) - hidden]:
            row = Text.assemble(*((segment.text, segment.style or "") for segment in line))
            row.rstrip()
            self.print(Text.assemble(" " * indent if row else "", row), soft_wrap=True)
        return hidden

    @contextmanager
    def pages(self) -> Iterator[None]:
        """Give what is printed to the pager, which ends at once where it all fits on the screen."""
        if not self.is_terminal:
            yield
            return
        os.environ.setdefault("LESS", "-FRX")
        with self.pager(styles=True):
            yield

    def on_broken_pipe(self) -> None:
        """Rich would end the process with exit code 1 here; the program treats it like any other broken pipe."""
        raise BrokenPipeError

    def _room(self, indent: int) -> int:
        return max(20, self.width - indent)


def _markdown(text: str) -> Markdown:
    """Markdown as text: tags are shown as they stand, links are not made clickable."""
    shown = Markdown("", hyperlinks=False, code_theme="ansi_dark")
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
    shown.parsed = parser.parse(text)
    return shown
