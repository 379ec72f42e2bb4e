"""Results on a terminal: in colour, folded to its width."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from .render import Part

__all__ = ["Terminal"]


class Terminal(Console):
    def __init__(self) -> None:
        super().__init__(highlight=False, markup=False, emoji=False)

    def fold(self, *parts: Part, indent: int) -> None:
        # An id or path that is longer than a line is left to the terminal, which copies it as one word.
        width = max(20, self.width - indent)
        for line in Text.assemble(*parts, overflow="ignore").wrap(self, width):
            line.rstrip()
            self.print(Text.assemble(" " * indent if line else "", line), soft_wrap=True)

    def crop(self, *parts: Part) -> None:
        line = Text.assemble(*parts)
        line.truncate(self.width, overflow="ellipsis")
        self.print(line, soft_wrap=True)

    def on_broken_pipe(self) -> None:
        """Rich would end the process with exit code 1 here; the program treats it like any other broken pipe."""
        raise BrokenPipeError
