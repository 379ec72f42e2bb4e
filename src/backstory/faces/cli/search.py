from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import json_option, project_option, since_option, source_option, until_option

if TYPE_CHECKING:
    from ...library import Library

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
# Not an event but a handoff note: the same as `--source capsules`.
CAPSULE, CAPSULES = "capsule", "capsules"


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option("-n", "n_hits", type=click.IntRange(1, 50), default=10, show_default=True, help="How many hits.")
@click.option("--within", metavar="ID", help="Only in this session or turn.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice((*TYPES, CAPSULE)),
    metavar="T",
    help=f"Only this type: {', '.join((*TYPES, CAPSULE))}. Repeatable.  [default: {', '.join(DEFAULT_TYPES)}]",
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
    """Find what was said or done, in any session of any agent, and in capsules.

    All words count, rare ones most. A quoted argument ("connection refused") is an exact phrase; if nothing has
    it, its words are searched instead. Names and paths are found whole and by part.
    """
    from ... import open_archive
    from ...model import rfc3339
    from .handles import find_id, unknown
    from .output import exit_code, print_json
    from .progress import up_to_date

    if CAPSULE in types and len(set(types)) > 1:
        raise click.UsageError("--type capsule stands alone: capsules are not events of a session")
    if CAPSULE in types:
        types, source = (), CAPSULES
    library = open_archive() if source == CAPSULES else up_to_date(as_json=as_json)
    options = {
        "n_hits": n_hits,
        "within_id": find_id(library.archive, within) if within else None,
        "event_types": list(types) or None,
        "project": project,
        "source": source,
        "since": rfc3339(since) if since is not None else None,
        "until": rfc3339(until) if until is not None else None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    phrases, plain = " ".join(map(_as_phrase, words)), " ".join(words)
    answer = library.search(phrases, **given)
    if phrases != plain and _is_empty(answer):
        answer = library.search(plain, **given)
        if not _is_empty(answer):
            answer["warnings"].append("Nothing has the exact phrase; these results have its words.")
    if as_json:
        print_json(answer)
    elif "error" in answer and answer["error"]["code"] == "invalid_id":
        raise click.ClickException(unknown(str(within)))
    elif "error" not in answer:
        _show(library, answer, only_capsules=source == CAPSULES)
    return exit_code(answer)


def _is_empty(answer: dict[str, Any]) -> bool:
    return "error" not in answer and not answer["data"]["results"] and not answer["capsules"]


def _show(library: Library, answer: dict[str, Any], *, only_capsules: bool) -> None:
    from .output import warn

    if answer["data"]["results"] or not answer["capsules"]:
        from .show import show_hits

        show_hits(library, answer)
    else:
        warn(answer["warnings"])
    if answer["capsules"]:
        from .capsule_view import show_matches

        show_matches(answer["capsules"], answer["request"]["query"], whole=only_capsules)


def _as_phrase(argument: str) -> str:
    """An argument with a space in it was quoted for the shell, which ate the quotes."""
    words = argument.split()
    return f'"{" ".join(words)}"' if len(words) > 1 and '"' not in argument else argument
