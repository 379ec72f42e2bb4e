"""`backstory search` and `backstory sessions`: find sessions by words or by time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..words import EARLIEST_MS, find_id, handle, home_path, plural, resume_command, unknown
from .app import json_option, project_option, since_option, source_option, team_option, until_option
from .output import (
    Console,
    exit_code,
    headline,
    highlight,
    hint,
    moment,
    print_json,
    put,
    put_command,
    put_facts,
    speaker,
    stdout_console,
    warn,
)
from .sync import up_to_date

if TYPE_CHECKING:
    from ...library import Library

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
MODES = ("web_search", "mcp_internal", "tool_calling", "chat")
_DEFAULT_WINDOW_MS = 30 * 86_400_000
# The most sessions that the tool returns at once.
_PAGE = 50
# More hits of one session are counted, not shown: the next session is worth more.
_HITS_PER_SESSION = 3


@click.command()
@click.argument("words", nargs=-1, required=True)
@click.option(
    "-n", "n_hits", type=click.IntRange(1, 50), default=10, show_default=True, metavar="N", help="Hits to show."
)
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
@click.option("--explain", is_flag=True, help="Show the words and the evidence that made each score.")
@team_option
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
    explain: bool,
    team: bool,
    as_json: bool,
) -> int:
    """Find what was said or done, in any session of any agent, and in capsules.

    All words count, rare ones most. A quoted argument ("connection refused") is an exact phrase; if nothing has
    it, its words are searched instead. Names and paths are found whole and by part.
    """
    from ... import open_archive
    from ...model import rfc3339

    if CAPSULE in types and len(set(types)) > 1:
        raise click.UsageError("--type capsule stands alone: capsules are not events of a session")
    if CAPSULE in types:
        types, source = (), CAPSULES
    library = open_archive() if source == CAPSULES else up_to_date(as_json=as_json, team=team)
    options = {
        "n_hits": n_hits,
        "within_id": find_id(library.asked, within) if within is not None else None,
        "event_types": list(types) or None,
        "project": project,
        "source": source,
        "since": rfc3339(since) if since is not None else None,
        "until": rfc3339(until) if until is not None else None,
    }
    given = {name: value for name, value in options.items() if value is not None}
    phrases, plain = " ".join(map(_as_phrase, words)), " ".join(words)
    answer = library.search(phrases, explain=explain, **given)
    if phrases != plain and _is_empty(answer):
        answer = library.search(plain, explain=explain, **given)
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
    if answer["data"]["results"] or not answer["capsules"]:
        _show_hits(library, answer)
    else:
        warn(answer["warnings"])
    if answer["capsules"]:
        from .capsule_view import show_matches

        show_matches(answer["capsules"], answer["request"]["query"], whole=only_capsules)


def _as_phrase(argument: str) -> str:
    """Quote an argument that contains a space: the shell has removed the user's quotes."""
    words = argument.split()
    return f'"{" ".join(words)}"' if len(words) > 1 and '"' not in argument else argument


@click.command()
@since_option
@until_option
@click.option("--mode", type=click.Choice(MODES), help="Only sessions of this mode.")
@click.option("--sort", type=click.Choice(("desc", "asc")), default="desc", show_default=True, help="By last change.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Sessions to list.")
@project_option
@source_option
@team_option
@json_option
def sessions(
    since: int | None,
    until: int | None,
    mode: str | None,
    sort: str,
    limit: int,
    project: str | None,
    source: str | None,
    team: bool,
    as_json: bool,
) -> int:
    """List sessions by time: the last 30 days, or from --since to --until."""
    from ...model import rfc3339

    # The end is exclusive, and a session may be written right now.
    soon = int(time.time() * 1000) + 60_000
    until = until if until is not None else soon
    since = since if since is not None else max(min(until, soon) - _DEFAULT_WINDOW_MS, EARLIEST_MS)
    if since >= until:
        raise click.UsageError("--since must be before --until")
    arguments = {"start_datetime": rfc3339(since), "end_datetime": rfc3339(until), "sort": sort}
    optional = {"mode": mode, "project": project, "source": source}
    arguments |= {name: value for name, value in optional.items() if value is not None}
    library = up_to_date(as_json=as_json, team=team)
    answer = _pages(library, arguments, limit)
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        _show_sessions(library, answer)
    return exit_code(answer)


def _pages(library: Library, arguments: dict[str, Any], limit: int) -> dict[str, Any]:
    """Call `list_sessions` for as many pages as the limit needs, and join them into one answer."""
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


def _show_hits(library: Library, answer: dict[str, Any]) -> None:
    """Print hits grouped by session, in the order of each session's best hit."""
    data, query = answer["data"], answer["request"]["query"]
    warn(answer["warnings"])
    if not data["results"]:
        hint("No matches. Try fewer or other words, or --type tool_call to look into commands.")
        _explain_words(data.get("explanation"))
        return
    console = stdout_console()
    explained = {hit["id"]: hit for hit in data["explanation"]["hits"]} if "explanation" in data else {}
    for number, hits in enumerate(_by_session(_without_repeats(data["results"])), 1):
        session = hits[0]["session"]
        headline(console, session["title"], number=number)
        _put_location(console, library, session, indent=4)
        for hit in hits[:_HITS_PER_SESSION]:
            event = hit["event"]
            put(console, speaker(event["type"]), "  ", *highlight(hit["snippet"]["text"], query), indent=4)
            also = f"the same text in {plural(hit['repeats'], 'more hit')}" if hit["repeats"] else None
            put_facts(console, handle(hit["turn"]["id"]), moment(event["timestamp"]), event["id"], also, indent=4)
            if explained:
                put_facts(console, *_explain_hit(hit["score"], explained[hit["id"]]), indent=4)
        if len(hits) > _HITS_PER_SESSION:
            more = f"{len(hits) - _HITS_PER_SESSION} more in this session: --within {handle(session['id'])}"
            put_facts(console, more, indent=4)
        _put_resume(console, library, session, indent=4)
        console.print()
    _explain_words(data.get("explanation"))
    more_hits = f" · more: -n {min(50, data['limit'] * 2)}" if data["truncated"] and data["limit"] < 50 else ""
    hint(f"{answer['performance']['elapsed_ms']} ms{more_hits} · read one: backstory open {data['results'][0]['id']}")


def _explain_hit(score: float, hit: dict[str, Any]) -> Iterator[str]:
    """The words and the evidence behind a score."""
    for field, words in hit["matched"].items():
        if words:
            yield f"{field}: {', '.join(words)}"
    parts = " + ".join(f"{name} {hit[name]:.1f}" for name in ("event", "session", "turn", "title") if hit[name])
    factors = "".join(f" × {hit[name]:.2f}" for name in ("factor", "repeated") if hit[name] != 1)
    yield f"score {score:.3f} from ({parts}){factors}"


def _explain_words(explanation: dict[str, Any] | None) -> None:
    if explanation is None:
        return
    console = stdout_console()
    put(console, f"Searched {plural(explanation['searched_events'], 'event')} for:")
    for word in explanation["words"]:
        known = f"in {plural(word['events'], 'event')}" if word["events"] else "in no event"
        instead = f"read as {', '.join(word['read_as'])}" if word["read_as"] else None
        put_facts(console, word["word"], known, instead, indent=2)


def _show_sessions(library: Library, answer: dict[str, Any]) -> None:
    data = answer["data"]
    warn(answer["warnings"])
    if not data["sessions"]:
        hint("No sessions in that time. Look further back: --since 1y")
        return
    console = stdout_console()
    for entry in data["sessions"]:
        session = entry["session"]
        headline(console, session["title"])
        put_facts(console, *session_facts(library, session, when="updated_at"), indent=2)
        _put_resume(console, library, session, indent=2)
    more = f"more: --limit {data['limit'] * 2} · " if data["next_cursor"] is not None else ""
    hint(f"{more}read one: backstory open {handle(data['sessions'][0]['id'])}")


def session_facts(library: Library, session: dict[str, Any], *, when: str) -> tuple[str | None, ...]:
    """`claude-code · ~/shop · 2026-09-14 14:02 · 3 turns · 42 events`"""
    location = library.locate(session["id"])
    return (
        session["source"],
        location.origin if location else None,
        home_path(location.project) if location and location.project else None,
        moment(session[when]),
        plural(session["turn_count"], "turn"),
        plural(session["event_count"], "event"),
        None if session["completed"] else "unfinished",
    )


def _put_location(console: Console, library: Library, session: dict[str, Any], *, indent: int) -> None:
    location = library.locate(session["id"])
    folder = home_path(location.project) if location and location.project else None
    origin, branch = (location.origin, location.branch) if location else (None, None)
    put_facts(console, session["source"], origin, folder, branch, indent=indent)


def _put_resume(console: Console, library: Library, session: dict[str, Any], *, indent: int) -> None:
    """Print the command that resumes a session, or the agent's own id where there is no such command."""
    if location := library.locate(session["id"]):
        put_command(console, resume_command(location) or location.native_id, indent=indent)


def _without_repeats(hits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Keep the best of the hits with the same text, and count the others in `repeats`."""
    first: dict[str, dict[str, Any]] = {}
    for hit in hits:
        text = hit["snippet"]["text"]
        if text in first:
            first[text]["repeats"] += 1
        else:
            first[text] = {**hit, "repeats": 0}
    return list(first.values())


def _by_session(hits: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for hit in hits:
        groups.setdefault(hit["session"]["id"], []).append(hit)
    return list(groups.values())
