"""`backstory traces` and `usage`: what agents did, how long it took, and the tokens and cost of it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import click

from ..words import duration, find_id, find_session, home_path, parse_moment
from .app import json_option, project_option, since_option, source_option, team_option, until_option
from .output import Column, count, dollars, exit_code, hint, print_json, show_table
from .sync import up_to_date

if TYPE_CHECKING:
    from ...library import Library
    from ...toolsets.traces.reports import Report


_EXPRESSION = re.compile(r"\s*([A-Za-z][\w.:/-]*?)\s*(!=|>=|<=|==|=|>|<|~)\s*(.*?)\s*", re.DOTALL)
_OPERATORS = {
    "=": "eq", "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "~": "contains",
}  # fmt: skip
_OF_TRACES = {
    "duration": "latency",
    "cost": "totalCost",
    "tokens": "totalTokens",
    "created": "createdAt",
    "updated": "updatedAt",
}
_OF_SPANS = {"cost": "data.totalCost", "start": "startTime", "end": "endTime", "trace": "traceId", "parent": "parentId"}
_OF_BOTH = {
    "model": "data.model",
    "type": "data.type",
    "input": "data.inputTokens",
    "output": "data.outputTokens",
    "project": "data.metadata.project",
    "source": "data.metadata.source",
    "agent": "data.metadata.source",
    "session": "data.metadata.sessionId",
}
_TIMES = {"createdAt", "updatedAt", "startTime", "endTime"}
_TEXTS = {"id", "name", "status", "traceId", "parentId", "data.model", "data.type"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")

_USAGE_WINDOW_MS = 30 * 86_400_000
_USAGE_GROUPS = ("day", "week", "month", "block", "project", "branch", "session", "model", "agent", "tool")

_limit = click.option(
    "--limit", "-n", type=click.IntRange(1, 200), default=20, show_default=True, metavar="N", help="Results to show."
)


@click.group()
def traces() -> None:
    """See what agents did, how long it took and what it cost: every turn is a trace."""


@traces.command("list")
@click.option("--session", metavar="ID", help="Only traces of this session.")
@_limit
@json_option
def list_(session: str | None, limit: int, as_json: bool) -> int:
    """List the latest traces.

    For those of some time, project or status: backstory traces search 'created>7d' project~api status=error
    """
    library = up_to_date(as_json=as_json)
    arguments: dict[str, Any] = {"limit": limit}
    if session is not None:
        arguments["sessionId"] = find_session(library.archive, session)
    answer = library.call("list_traces", arguments)
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        from .trace_view import show_traces

        show_traces(answer, answer["traces"], filtered=session is not None)
    return _exit_code(answer)


@traces.command()
@click.argument("filters", nargs=-1, metavar="[FILTER]...")
@click.option("--spans", is_flag=True, help="Search spans: single model calls, tool calls and markers.")
@click.option("--sort", "sort_by", metavar="FIELD", help="Sort by this field; the newest come first by default.")
@click.option("--asc", is_flag=True, help="Sort in ascending order.")
@click.option("--cursor", metavar="TEXT", help="The next page: `cursor` of the previous JSON.")
@_limit
@json_option
def search(
    filters: tuple[str, ...],
    spans: bool,
    sort_by: str | None,
    asc: bool,
    cursor: str | None,
    limit: int,
    as_json: bool,
) -> int:
    """Search by filters that must all match.

    \b
    backstory traces search status=error 'latency>5s' model~opus
    backstory traces search 'cost>=0.5' 'created>7d' --sort cost
    backstory traces search --spans name=Bash status=error project~api
    """
    arguments: dict[str, Any] = {
        "filters": [parse_expression(text, of_spans=spans) for text in filters],
        "limit": limit,
        "sortOrder": "asc" if asc else "desc",
    }
    if sort_by is not None:
        arguments["sortBy"] = field_name(sort_by, of_spans=spans)
    if cursor is not None:
        arguments["cursor"] = cursor
    library = up_to_date(as_json=as_json)
    answer = library.call("search_spans" if spans else "search_traces", arguments)
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        from .trace_view import show_spans, show_traces

        if spans:
            show_spans(answer)
        else:
            show_traces(answer, answer["items"], filtered=bool(filters))
    return _exit_code(answer)


@traces.command()
@click.argument("id")
@click.option("--errors", is_flag=True, help="Only failed spans and their parents.")
@json_option
def show(id: str, errors: bool, as_json: bool) -> int:
    """Show a trace as a tree of spans, with a bar for the time of each.

    ID is the id of a trace or turn. Heavy bars are the critical path. Four or more calls of one tool in a row share a
    line.
    """
    library = up_to_date(as_json=as_json)
    answer = library.call("get_trace", {"traceId": find_id(library.archive, id)})
    if answer.get("code") == "NOT_FOUND" and not as_json:
        raise click.ClickException(f"no trace matches {id!r}; backstory traces list shows ids")
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        from .trace_view import show_trace

        show_trace(answer["trace"], errors_only=errors)
    return _exit_code(answer)


@traces.command()
@click.option("--by", type=click.Choice(("name", "model", "tool")), default="tool", show_default=True, help="Group by.")
@since_option
@until_option
@project_option
@source_option
@json_option
def stats(by: Any, since: int | None, until: int | None, project: str | None, source: str | None, as_json: bool) -> int:
    """Show the counts, errors and times of tools or models.

    For each: count, error rate, median and 95th percentile of the time, tokens and cost.
    """
    from ...archive.spans import Window
    from ...toolsets.traces.reports import folders_of

    _check_window(since, until)
    library = up_to_date(as_json=as_json)
    folders = folders_of(library.archive, project)
    window = Window(since=since, until=until, project=project, folders=folders, source=source)
    found = [library.egress(line) for line in library.archive.spans.stats(window, by)]
    if as_json:
        print_json({"by": by, "stats": found})
    elif not found:
        hint("No spans in that time.")
    else:
        from .trace_view import show_stats

        show_stats(found, by)
    return 0


def _check_window(since: int | None, until: int | None) -> None:
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since must be before --until")


def _exit_code(answer: dict[str, Any]) -> int:
    """The exit code for an answer of the trace tools, which name the nearest field for a wrong one."""
    nearest = answer.get("details", {}).get("nearest")
    code = exit_code(answer)
    if code and nearest:
        hint(f"did you mean {nearest}?")
    return 2 if code and answer.get("code") == "INVALID_QUERY" else code


def parse_expression(text: str, *, of_spans: bool) -> dict[str, Any]:
    """Parse a filter: `status=error`, `latency>5s`, `model~opus`, `cost>=0.5`, `created>3d`.

    Raises click.UsageError for anything else.
    """
    match = _EXPRESSION.fullmatch(text)
    if match is None or not match[3]:
        raise click.UsageError(
            f"{text!r} is not a filter: write FIELD OPERATOR VALUE, e.g. status=error, latency>5s, model~opus; "
            "operators are = != > >= < <= and ~ (contains)"
        )
    name, sign, value = match[1], match[2], match[3].strip("\"'")
    field = field_name(name, of_spans=of_spans)
    return {"field": field, "operator": _OPERATORS[sign], "value": _value(field, sign, value)}


def field_name(name: str, *, of_spans: bool) -> str:
    """The path of a field in the contract, for a short name; other names are paths already."""
    return ((_OF_SPANS if of_spans else _OF_TRACES) | _OF_BOTH).get(name, name)


def _value(field: str, sign: str, text: str) -> Any:
    if field in _TEXTS or sign == "~":
        return text
    if field in _TIMES:
        moment = parse_moment(text)
        return text if moment is None else moment
    if field == "latency" and (given := _DURATION.fullmatch(text)):
        return float(given[1]) * _MILLISECONDS[given[2]]
    if field.endswith("otalCost"):
        text = text.removeprefix("$")
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text or "e" in text.lower() else int(text)
    return text


# Usage


@click.command()
@click.option(
    "--by",
    type=click.Choice(_USAGE_GROUPS),
    metavar="GROUP",
    default="day",
    show_default=True,
    help=f"Group by {', '.join(_USAGE_GROUPS[:-1])} or {_USAGE_GROUPS[-1]}.",
)
@since_option
@until_option
@project_option
@source_option
@team_option
@json_option
def usage(
    by: Any, since: int | None, until: int | None, project: str | None, source: str | None, team: bool, as_json: bool
) -> int:
    """Add up tokens and cost: the last 30 days, or from --since to --until.

    Cost is as the agent reported it, else computed from public prices; "*" marks calls of models without a known
    price. "saved" is the extra cost of the cached tokens at the price of plain input. A block is five hours from the
    first call on, the unit of some subscriptions. With --by tool, a model call counts for the tools it called.
    """
    from ...archive.spans import Window
    from ...toolsets.traces.reports import folders_of, usage_report

    _check_window(since, until)
    if since is None and until is None:
        since = int(time.time() * 1000) - _USAGE_WINDOW_MS
    library = up_to_date(as_json=as_json, team=team)
    folders = folders_of(library.asked, project)
    window = Window(since=since, until=until, project=project, folders=folders, source=source)
    report = library.egress(usage_report(library.asked.spans, window, by, library.asked.session))
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
        session = library.asked.session(name)
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
