"""The answers of `search_sessions` and `list_sessions` as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .handles import handle
from .output import hint, warn
from .render import (
    Console,
    headline,
    highlight,
    moment,
    put,
    put_command,
    put_facts,
    resume_command,
    speaker,
    stdout_console,
)
from .words import home_path, plural

if TYPE_CHECKING:
    from ...library import Library

__all__ = ["session_facts", "show_hits", "show_sessions"]

# More hits of one session are counted, not shown: the next session is worth more.
_HITS_PER_SESSION = 3


def show_hits(library: Library, answer: dict[str, Any]) -> None:
    """Hits grouped by session, in the order of each session's best hit."""
    data, query = answer["data"], answer["request"]["query"]
    warn(answer["warnings"])
    if not data["results"]:
        hint("No matches. Try fewer or other words, or --type tool_call to look into commands.")
        return
    console = stdout_console()
    for number, hits in enumerate(_by_session(_without_repeats(data["results"])), 1):
        session = hits[0]["session"]
        headline(console, session["title"], number=number)
        _put_location(console, library, session, indent=4)
        for hit in hits[:_HITS_PER_SESSION]:
            event = hit["event"]
            put(console, speaker(event["type"]), "  ", *highlight(hit["snippet"]["text"], query), indent=4)
            also = f"the same text in {plural(hit['repeats'], 'more hit')}" if hit["repeats"] else None
            put_facts(console, handle(hit["turn"]["id"]), moment(event["timestamp"]), event["id"], also, indent=4)
        if len(hits) > _HITS_PER_SESSION:
            more = f"{len(hits) - _HITS_PER_SESSION} more in this session: --within {handle(session['id'])}"
            put_facts(console, more, indent=4)
        _put_resume(console, library, session, indent=4)
        console.print()
    more_hits = f" · more: -n {min(50, data['limit'] * 2)}" if data["truncated"] and data["limit"] < 50 else ""
    hint(f"{answer['performance']['elapsed_ms']} ms{more_hits} · read one: backstory open {data['results'][0]['id']}")


def show_sessions(library: Library, answer: dict[str, Any]) -> None:
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
        home_path(location.project) if location and location.project else None,
        moment(session[when]),
        plural(session["turn_count"], "turn"),
        plural(session["event_count"], "event"),
        None if session["completed"] else "unfinished",
    )


def _put_location(console: Console, library: Library, session: dict[str, Any], *, indent: int) -> None:
    location = library.locate(session["id"])
    folder = home_path(location.project) if location and location.project else None
    put_facts(console, session["source"], folder, location.branch if location else None, indent=indent)


def _put_resume(console: Console, library: Library, session: dict[str, Any], *, indent: int) -> None:
    """The command that resumes a session, which names its full id; the id alone where there is no such command."""
    if location := library.locate(session["id"]):
        put_command(console, resume_command(location) or location.native_id, indent=indent)


def _without_repeats(hits: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Hits with one and the same text once, as the best of them, with the number of the others."""
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
