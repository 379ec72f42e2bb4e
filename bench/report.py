"""One table: what was measured, what was wanted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass
class _Row:
    name: str
    measured: str
    target: str
    met: bool | None


@dataclass
class Report:
    title: str
    rows: list[_Row] = field(default_factory=list)

    def note(self, name: str, measured: str) -> None:
        """Worth knowing, nothing to reach."""
        self._add(_Row(name, measured, "", None))

    def at_most(self, name: str, value: float, limit: float, unit: str = "ms") -> None:
        self._add(_Row(name, f"{value:.3g} {unit}", f"<= {limit:g} {unit}", value <= limit))

    def at_least(self, name: str, value: float, limit: float, unit: str) -> None:
        self._add(_Row(name, f"{value:.3g} {unit}", f">= {limit:g} {unit}", value >= limit))

    def _add(self, row: _Row) -> None:
        self.rows.append(row)
        print(f"  {row.name}: {row.measured}", file=sys.stderr, flush=True)

    @property
    def met(self) -> bool:
        return all(row.met is not False for row in self.rows)

    def show(self, seconds: float) -> None:
        widths = [max(len(getattr(row, name)) for row in self.rows) for name in ("name", "measured", "target")]
        print(f"\n{self.title}; measured in {seconds:.0f} s\n")
        print(f"| {'what':{widths[0]}} | {'measured':{widths[1]}} | {'wanted':{widths[2]}} | |")
        print(f"|{'-' * (widths[0] + 2)}|{'-' * (widths[1] + 2)}|{'-' * (widths[2] + 2)}|---|")
        for row in self.rows:
            mark = {True: "yes", False: "NO", None: ""}[row.met]
            print(f"| {row.name:{widths[0]}} | {row.measured:{widths[1]}} | {row.target:{widths[2]}} | {mark} |")
