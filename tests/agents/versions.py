"""The table of tested versions in `docs/sources.md`, which `make test-agents` writes."""

from __future__ import annotations

import re
from collections.abc import Callable
from fcntl import LOCK_EX, flock
from pathlib import Path

from backstory.sources import title_of

DOCS = Path(__file__).parents[2] / "docs/sources.md"
BEGIN, END = "<!-- tested versions: written by make test-agents -->", "<!-- end of tested versions -->"
_HEAD = (
    "| agent | package | version | session resumed | not recorded by the agent | records not understood |\n"
    "|---|---|---|---|---|---|\n"
)
_ROW = re.compile(r"^\| (?!agent )([^|]+) \| .*\|$", re.MULTILINE)
_RESUMED = 3


def note_version(source: str, package: str, version: str, lacks: str, unknown: str, docs: Path = DOCS) -> None:
    """Put a version that passed into the table, in place of an older one."""

    def row(cells: list[str]) -> list[str]:
        return [title_of(source), f"`{package}`", version, cells[_RESUMED] if cells else "", lacks, unknown]

    _change(source, row, docs)


def note_resumed(source: str, version: str, docs: Path = DOCS) -> None:
    """Note in the row of an agent the version of which a session was resumed."""
    _change(source, lambda cells: [*cells[:_RESUMED], version, *cells[_RESUMED + 1 :]] if cells else [], docs)


def _change(source: str, change: Callable[[list[str]], list[str]], docs: Path) -> None:
    """Replace the cells of an agent's row; a row without cells is left out."""
    with docs.open("r+", encoding="utf-8") as file:
        flock(file, LOCK_EX)  # agents may be tested side by side
        before, begin, rest = file.read().partition(BEGIN)
        table, end, after = rest.partition(END)
        rows = {found[1]: [cell.strip() for cell in found[0].strip("|").split("|")] for found in _ROW.finditer(table)}
        title = title_of(source)
        rows[title] = change(rows.get(title, []))
        lines = "".join(f"| {' | '.join(rows[name])} |\n" for name in sorted(rows, key=str.casefold) if rows[name])
        file.seek(0)
        file.write(f"{before}{begin}\n\n{_HEAD}{lines}\n{end}{after}")
        file.truncate()
