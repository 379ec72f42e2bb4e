from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from .options import json_option, project_option, since_option, source_option, until_option

if TYPE_CHECKING:
    from ...library import Library

__all__ = ["sessions"]

MODES = ("web_search", "mcp_internal", "tool_calling", "chat")
_DEFAULT_WINDOW_MS = 30 * 86_400_000
_PAGE = 50


@click.command()
@since_option
@until_option
@click.option("--mode", type=click.Choice(MODES), help="Only sessions of this kind.")
@click.option("--sort", type=click.Choice(("desc", "asc")), default="desc", show_default=True, help="By last change.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many sessions.")
@project_option
@source_option
@json_option
def sessions(
    since: int | None,
    until: int | None,
    mode: str | None,
    sort: str,
    limit: int,
    project: str | None,
    source: str | None,
    as_json: bool,
) -> int:
    """List sessions by time, of the last 30 days unless --since or --until say otherwise."""
    from ...model import rfc3339
    from .output import exit_code, print_json
    from .progress import up_to_date

    # A moment more than now: the end is exclusive, and a session may be being written.
    until = until if until is not None else int(time.time() * 1000) + 60_000
    since = since if since is not None else until - _DEFAULT_WINDOW_MS
    if since >= until:
        raise click.UsageError("--since must be before --until", click.get_current_context())
    arguments = {"start_datetime": rfc3339(since), "end_datetime": rfc3339(until), "sort": sort}
    optional = {"mode": mode, "project": project, "source": source}
    arguments |= {name: value for name, value in optional.items() if value is not None}
    library = up_to_date(as_json=as_json)
    answer = _pages(library, arguments, limit)
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        from .show import show_sessions

        show_sessions(library, answer)
    return exit_code(answer)


def _pages(library: Library, arguments: dict[str, Any], limit: int) -> dict[str, Any]:
    """The tool's answer, with as many of its pages as the limit takes joined into one."""
    answer = library.call("list_sessions", {**arguments, "limit": min(limit, _PAGE)})
    if "error" in answer:
        return answer
    data = answer["data"]
    while (missing := limit - len(data["sessions"])) > 0 and data["next_cursor"] is not None:
        page = {**arguments, "limit": min(missing, _PAGE), "cursor": data["next_cursor"]}
        following = library.call("list_sessions", page)
        if "error" in following:
            return following
        for session in following["data"]["sessions"]:
            data["sessions"].append({**session, "rank": len(data["sessions"]) + 1})
        data["next_cursor"], data["truncated"] = following["data"]["next_cursor"], following["data"]["truncated"]
    return {**answer, "data": {**data, "result_count": len(data["sessions"]), "limit": limit}}
