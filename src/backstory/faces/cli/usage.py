from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from .options import json_option, project_option, since_option, source_option, until_option

if TYPE_CHECKING:
    from ...toolsets.traces.usage import Report

__all__ = ["usage"]

_DEFAULT_WINDOW_MS = 30 * 86_400_000
_GROUPS = ("day", "project", "model", "agent", "tool")


@click.command()
@click.option(
    "--by", type=click.Choice(_GROUPS), default="day", show_default=True, help="What to add tokens and cost up by."
)
@since_option
@until_option
@project_option
@source_option
@json_option
def usage(by: Any, since: int | None, until: int | None, project: str | None, source: str | None, as_json: bool) -> int:
    """Show what agents used and what it cost, of the last 30 days unless --since or --until say otherwise.

    Cost is what agents reported, else computed from public prices; calls of models without a known price are counted
    as unpriced. Tools show the share of the model calls that asked for them.
    """
    from ...archive.spans import Window
    from ...toolsets.traces.usage import usage_report
    from .output import print_json
    from .progress import up_to_date

    if since is None and until is None:
        since = int(time.time() * 1000) - _DEFAULT_WINDOW_MS
    library = up_to_date(as_json=as_json)
    report = usage_report(library.archive.spans, Window(since=since, until=until, project=project, source=source), by)
    if as_json:
        print_json(report)
    else:
        _show(report)
    return 0


def _show(report: Report) -> None:
    from .output import hint
    from .trace_text import show_table

    if not report.total.calls and not report.tools:
        hint("Nothing was used in that time. Look further back: --since 1y")
    elif report.by == "tool":
        show_table(_tool_rows(report))
    else:
        show_table(_rows(report), bold_last=True)
        if report.total.unpriced:
            hint(f"* {report.total.unpriced:,} of {report.total.calls:,} calls are of models without a known price")


def _rows(report: Report) -> list[list[str]]:
    from .trace_text import count, dollars

    rows = [[report.by, "calls", "input", "cached", "output", "cost"]]
    for line in [*report.lines, report.total]:
        tokens = [count(amount) for amount in (line.input_tokens, line.cache_read_tokens, line.output_tokens)]
        mark = "*" if line.unpriced else " "
        rows.append([line.name or "(unknown)", f"{line.calls:,}", *tokens, dollars(line.cost) + mark])
    return rows


def _tool_rows(report: Report) -> list[list[str]]:
    from .trace_text import count, dollars
    from .words import duration

    rows = [["tool", "calls", "errors", "time", "tokens", "cost"]]
    for tool in report.tools:
        took = duration(tool.milliseconds / 1000)
        rows.append([tool.tool, f"{tool.calls:,}", f"{tool.errors:,}", took, count(tool.tokens), dollars(tool.cost)])
    return rows
