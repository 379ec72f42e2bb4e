"""Tables of names and amounts that fit the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .output import Plain, put, stdout_console
from .words import fit, width

_GAP = 2
_LEAST_NAME = 12
_COMFORTABLE_NAME = 28
_BAR = 20
_LEAST_BAR = 6


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
