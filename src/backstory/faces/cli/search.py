from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import json_option, project_option, since_option, source_option, until_option

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["search"]

# Written out, so that `--help` imports nothing; tests compare with the model.
TYPES = (
    "user_input",
    "assistant_response",
    "reasoning",
    "tool_call",
    "tool_response",
    "compaction",
    "system",
    "runtime",
)
DEFAULT_TYPES = ("user_input", "assistant_response", "tool_response")


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "n_hits", type=click.IntRange(1, 50), default=10, show_default=True, help="How many hits.")
@click.option("--within", metavar="ID", help="Only in this session or turn.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(TYPES),
    metavar="T",
    help=f"Only events of this type: {', '.join(TYPES)}. Repeatable.  [default: {', '.join(DEFAULT_TYPES)}]",
)
@project_option
@source_option
@since_option
@until_option
@json_option
def search(
    words: tuple[str, ...],
    n_hits: int,
    within: str | None,
    types: tuple[str, ...],
    project: str | None,
    source: str | None,
    since: int | None,
    until: int | None,
    as_json: bool,
) -> int:
    """Find what was said or done, in any session of any agent.

    All words count, rare ones most. "Exact phrases" in quotes; names and paths are found whole and by part.
    """
    from ... import open_archive
    from ...model import rfc3339
    from .handles import find_id
    from .output import exit_code, print_json

    library = open_archive()
    library.catch_up()
    arguments = {
        "query": " ".join(words),
        "n_hits": n_hits,
        "within_id": find_id(library.archive, within) if within else None,
        "event_types": list(types) or None,
        "project": project,
        "source": source,
        "since": rfc3339(since) if since is not None else None,
        "until": rfc3339(until) if until is not None else None,
    }
    answer = library.call("search_sessions", {name: value for name, value in arguments.items() if value is not None})
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        _show(answer)
    return exit_code(answer)


def _show(answer: dict[str, Any]) -> None:
    from .output import hint, stdout_console, warn

    data = answer["data"]
    console = stdout_console()
    for result in data["results"]:
        _show_hit(console, result, answer["request"]["query"])
    warn(answer["warnings"])
    if not data["results"]:
        hint("No matches. Try fewer or other words, or --type tool_call to look into commands.")
    else:
        more = f" · more: -n {min(50, data['limit'] * 2)}" if data["truncated"] and data["limit"] < 50 else ""
        first = data["results"][0]["open"]["event_id"]
        hint(f"{answer['performance']['elapsed_ms']} ms{more} · read one: backstory open {first}")


def _show_hit(console: Console, result: dict[str, Any], query: str) -> None:
    from rich.text import Text

    from .handles import handle
    from .render import facts, highlight, moment, put, speaker

    session, turn, event = result["session"], result["turn"], result["event"]
    put(console, Text.assemble((f"{result['rank']:>2}", "dim"), "  ", (session["title"], "bold")))
    put(console, facts(session["source"], moment(event["timestamp"]), handle(turn["id"]), event["id"]), indent=4)
    put(console, speaker(event["type"]) + Text("  ") + highlight(result["snippet"]["text"], query), indent=4)
    console.print()
