"""`backstory usage`: tokens and cost, added up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from .options import json_option, project_option, since_option, source_option, until_option
from .output import hint, print_json
from .sync import up_to_date
from .table import Column, count, dollars, show_table
from .words import duration, home_path

if TYPE_CHECKING:
    from ...library import Library
    from ...toolsets.traces.usage import Report

_DEFAULT_WINDOW_MS = 30 * 86_400_000
_GROUPS = ("day", "week", "month", "block", "project", "branch", "session", "model", "agent", "tool")


@click.command()
@click.option("--by", type=click.Choice(_GROUPS), default="day", show_default=True, help="Group by.")
@since_option
@until_option
@project_option
@source_option
@json_option
def usage(by: Any, since: int | None, until: int | None, project: str | None, source: str | None, as_json: bool) -> int:
    """Add up tokens and cost: the last 30 days, or from --since to --until.

    Cost is as the agent reported it, else computed from public prices; "*" marks calls of models without a known
    price. "saved" is the extra cost of the cached tokens at the price of plain input. A block is five hours from the
    first call on, the unit of some subscriptions. With --by tool, a model call counts for the tools it called.
    """
    from ...archive.spans import Window
    from ...toolsets.traces.usage import folders_of, usage_report

    if since is None and until is None:
        since = int(time.time() * 1000) - _DEFAULT_WINDOW_MS
    library = up_to_date(as_json=as_json)
    folders = folders_of(library.archive, project)
    window = Window(since=since, until=until, project=project, folders=folders, source=source)
    report = library.egress(usage_report(library.archive.spans, window, by, library.archive.session))
    if as_json:
        print_json(report)
    else:
        _show(library, report)
    return 0


def _show(library: Library, report: Report) -> None:
    if not report.total.calls and not report.tools:
        hint("Nothing was used in that time. Look further back: --since 1y")
        return
    if report.by == "tool":
        _show_tools(report)
        return
    lines = [*report.lines, report.total]
    names = [_name(library, line.name, report.by) for line in report.lines]
    columns = [
        Column("calls", [f"{line.calls:,}" for line in lines]),
        Column("input", [count(line.input_tokens) for line in lines]),
        Column("cached", [count(line.cache_read_tokens) for line in lines], rank=1),
        Column("written", [count(line.cache_write_tokens) for line in lines], rank=3),
        Column("output", [count(line.output_tokens) for line in lines]),
        Column("reasoning", [count(line.reasoning_tokens) for line in lines], rank=4),
        Column("cost", [dollars(line.cost) + ("*" if line.unpriced else " ") for line in lines]),
        Column("saved", [dollars(line.saved) for line in lines], rank=2),
    ]
    bars = [line.cost or 0.0 for line in report.lines]
    show_table(report.by, [*names, "total"], columns, bars=bars, total=True, keep_end=report.by == "project")
    if report.total.unpriced:
        hint(f"* {report.total.unpriced:,} of {report.total.calls:,} calls are of models without a known price")


def _name(library: Library, name: str | None, by: str) -> str:
    if name is None:
        return "(unknown)"
    if by == "session":
        session = library.archive.session(name)
        return " ".join(library.egress(session.title if session else "").split()) or name
    return home_path(name) if by == "project" else name


def _show_tools(report: Report) -> None:
    tools = report.tools
    columns = [
        Column("calls", [f"{tool.calls:,}" for tool in tools]),
        Column("errors", [f"{tool.errors:,}" for tool in tools]),
        Column("time", [duration(tool.milliseconds / 1000) for tool in tools], rank=2),
        Column("tokens", [count(tool.tokens) for tool in tools], rank=1),
        Column("cost", [dollars(tool.cost) for tool in tools]),
    ]
    show_table("tool", [tool.tool for tool in tools], columns, bars=[float(tool.calls) for tool in tools])
