"""Results on a terminal: in colour, folded to its width."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from .render import Part

__all__ = ["TerminalPage"]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the process with exit code 1 here; the program treats it like any other broken pipe."""
        raise BrokenPipeError


class TerminalPage:
    def __init__(self) -> None:
        self._console = _Console(highlight=False, markup=False, emoji=False)

    def put(self, *parts: Part, indent: int = 0) -> None:
        # An id or path that is longer than a line is left to the terminal, which copies it as one word.
        width = max(20, self._console.width - indent)
        for line in Text.assemble(*parts, overflow="ignore").wrap(self._console, width):
            line.rstrip()
            self._console.print(Text.assemble(" " * indent if line else "", line), soft_wrap=True)

    def headline(self, title: str, *, number: int | None = None) -> None:
        line = Text.assemble((f"{number:>2}  " if number is not None else "", "dim"), (title, "bold"))
        line.truncate(self._console.width, overflow="ellipsis")
        self._console.print(line, soft_wrap=True)
