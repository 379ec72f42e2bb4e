"""Tokens and money over a time, by what people ask for: day, project, model, agent or tool."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

from ...archive.spans import Spans, ToolUse, UsageTotal, Window

__all__ = ["GROUPS", "Group", "Line", "Report", "usage_report"]

Group = Literal["day", "project", "model", "agent", "tool"]
GROUPS: tuple[Group, ...] = ("day", "project", "model", "agent", "tool")


class Line(Struct, kw_only=True):
    """One line of a report. `cost` is None when nothing in it has a price; `unpriced` calls are not in it."""

    name: str | None
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost: float | None = None
    unpriced: int = 0

    def add(self, total: UsageTotal) -> None:
        self.calls += total.calls
        self.input_tokens += total.input_tokens
        self.output_tokens += total.output_tokens
        self.cache_read_tokens += total.cache_read_tokens
        self.cache_write_tokens += total.cache_write_tokens
        self.reasoning_tokens += total.reasoning_tokens
        self.unpriced += total.unpriced
        if total.cost is not None:
            self.cost = round((self.cost or 0.0) + total.cost, 6)


class Report(Struct, kw_only=True):
    by: Group
    lines: list[Line] = []
    tools: list[ToolUse] = []
    """Instead of lines, when the report is by tool."""
    total: Line


def usage_report(spans: Spans, window: Window, by: Group) -> Report:
    totals = spans.usage(window)
    total = Line(name="total")
    for entry in totals:
        total.add(entry)
    if by == "tool":
        return Report(by=by, tools=spans.tools(window), total=total)
    return Report(by=by, lines=_lines(totals, by), total=total)


def _lines(totals: Iterable[UsageTotal], by: Group) -> list[Line]:
    """Days in their order, the latest first; everything else by what it cost."""
    field = "source" if by == "agent" else by
    lines: dict[str | None, Line] = {}
    for entry in totals:
        name = getattr(entry, field)
        lines.setdefault(name, Line(name=name)).add(entry)
    if by == "day":
        return sorted(lines.values(), key=lambda line: line.name or "", reverse=True)
    return sorted(lines.values(), key=lambda line: (line.cost or 0.0, line.input_tokens), reverse=True)
