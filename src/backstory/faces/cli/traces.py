from __future__ import annotations

from typing import Any

import click

from .options import json_option, project_option, since_option, source_option, until_option

__all__ = ["traces"]

_limit = click.option("--limit", "-n", type=click.IntRange(1, 200), default=20, show_default=True, help="How many.")


@click.group()
def traces() -> None:
    """See what agents did, how long it took and what it cost: every turn is a trace."""


@traces.command("list")
@click.option("--session", metavar="ID", help="Only traces of this session, by its id, handle or the agent's own id.")
@_limit
@json_option
def list_(session: str | None, limit: int, as_json: bool) -> int:
    """List the latest traces."""
    from .handles import find_id
    from .output import print_json
    from .progress import up_to_date

    library = up_to_date(as_json=as_json)
    arguments: dict[str, Any] = {"limit": limit}
    if session is not None:
        arguments["sessionId"] = find_id(library.archive, session)
    answer = library.call("list_traces", arguments)
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        from .trace_text import show_traces

        show_traces(answer, answer["traces"], filtered=session is not None)
    return _exit_code(answer)


@traces.command()
@click.argument("filters", nargs=-1, metavar="[FILTER]...")
@click.option("--spans", is_flag=True, help="Search spans: single model calls, tool calls and markers.")
@click.option("--sort", "sort_by", metavar="FIELD", help="What to sort by; the newest come first otherwise.")
@click.option("--asc", is_flag=True, help="The smallest or oldest first.")
@click.option("--cursor", metavar="TEXT", help="The page after: `cursor` of the JSON before it.")
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
    from .expressions import field_name, parse_expression
    from .output import print_json
    from .progress import up_to_date

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
        from .trace_text import show_spans, show_traces

        if spans:
            show_spans(answer)
        else:
            show_traces(answer, answer["items"], filtered=bool(filters))
    return _exit_code(answer)


@traces.command()
@click.argument("id")
@click.option("--errors", is_flag=True, help="Only the spans that failed, and those above them.")
@json_option
def show(id: str, errors: bool, as_json: bool) -> int:
    """Show a trace as a tree, each span with its time as a bar. ID is a trace's id, or a turn's handle.

    Heavy bars are the critical path. Four and more calls of one tool in a row are shown as one line.
    """
    from .handles import find_id
    from .output import print_json
    from .progress import up_to_date

    library = up_to_date(as_json=as_json)
    answer = library.call("get_trace", {"traceId": find_id(library.archive, id)})
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        from .trace_text import show_trace

        show_trace(answer["trace"], errors_only=errors)
    return _exit_code(answer)


@traces.command()
@click.option(
    "--by", type=click.Choice(("name", "model", "tool")), default="tool", show_default=True, help="What to group by."
)
@since_option
@until_option
@project_option
@source_option
@json_option
def stats(by: Any, since: int | None, until: int | None, project: str | None, source: str | None, as_json: bool) -> int:
    """Show count, error rate, median and 95th percentile of the time, tokens and cost of what agents did."""
    from ...archive.spans import Window
    from .output import hint, print_json
    from .progress import up_to_date

    library = up_to_date(as_json=as_json)
    window = Window(since=since, until=until, project=project, source=source)
    found = [library.egress(line) for line in library.archive.spans.stats(window, by)]
    if as_json:
        print_json({"by": by, "stats": found})
    elif not found:
        hint("No spans in that time.")
    else:
        from .trace_text import show_stats

        show_stats(found, by)
    return 0


def _exit_code(answer: dict[str, Any]) -> int:
    """2 when the question was wrong; what these tools answer then says what would be right."""
    from .output import exit_code, hint

    nearest = answer.get("details", {}).get("nearest")
    code = exit_code(answer)
    if code and nearest:
        hint(f"did you mean {nearest}?")
    return 2 if code and answer.get("code") == "INVALID_QUERY" else code
