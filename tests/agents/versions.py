"""The table of tested versions in `docs/sources.md`, which `make test-agents` writes."""

from __future__ import annotations

import re
from pathlib import Path

from backstory.sources import title_of

DOCS = Path(__file__).parents[2] / "docs/sources.md"
BEGIN, END = "<!-- tested versions: written by make test-agents -->", "<!-- end of tested versions -->"
_HEAD = "| agent | package | version | not recorded by the agent | records not understood |\n|---|---|---|---|---|\n"
_ROW = re.compile(r"^\| (?!agent )([^|]+) \| .*\|$", re.MULTILINE)


def note_version(source: str, package: str, version: str, lacks: str, unknown: str, docs: Path = DOCS) -> None:
    """Put a version that passed into the table, in place of an older one."""
    text = docs.read_text("utf-8")
    before, begin, rest = text.partition(BEGIN)
    table, end, after = rest.partition(END)
    rows = {found[1]: found[0] for found in _ROW.finditer(table)}
    title = title_of(source)
    rows[title] = f"| {title} | `{package}` | {version} | {lacks} | {unknown} |"
    lines = "".join(f"{rows[name]}\n" for name in sorted(rows, key=str.casefold))
    docs.write_text(f"{before}{begin}\n\n{_HEAD}{lines}\n{end}{after}", "utf-8")
