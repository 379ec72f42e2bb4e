"""The answers of the history tools as a person reads them."""

from __future__ import annotations

from typing import Any

from .handles import handle
from .output import hint, warn
from .render import Console, Part, facts, headline, highlight, moment, put, speaker, stdout_console
from .words import plural

__all__ = ["show_hits", "show_opened", "show_sessions"]

_TOOLS_SHOWN = 6


def show_hits(answer: dict[str, Any]) -> None:
    data, query = answer["data"], answer["request"]["query"]
    console = stdout_console()
    for result in data["results"]:
        session, event = result["session"], result["event"]
        headline(console, session["title"], number=result["rank"])
        when, turn = moment(event["timestamp"]), handle(result["turn"]["id"])
        put(console, facts(session["source"], when, turn, event["id"]), indent=4)
        put(console, speaker(event["type"]), "  ", *highlight(result["snippet"]["text"], query), indent=4)
        console.print()
    warn(answer["warnings"])
    if not data["results"]:
        hint("No matches. Try fewer or other words, or --type tool_call to look into commands.")
        return
    more = f" · more: -n {min(50, data['limit'] * 2)}" if data["truncated"] and data["limit"] < 50 else ""
    hint(f"{answer['performance']['elapsed_ms']} ms{more} · read one: backstory open {data['results'][0]['id']}")
    if answer["warnings"]:
        hint("to wait for the rest: backstory sync")


def show_sessions(answer: dict[str, Any]) -> None:
    data = answer["data"]
    console = stdout_console()
    for entry in data["sessions"]:
        session = entry["session"]
        headline(console, session["title"])
        put(console, _session_facts(session, handle(session["id"]), when="updated_at"), indent=2)
    warn(answer["warnings"])
    if not data["sessions"]:
        hint("No sessions in that time. Look further back: --since 1y")
        return
    more = f"more: --limit {data['limit'] * 2} · " if data["next_cursor"] is not None else ""
    hint(f"{more}read one: backstory open {handle(data['sessions'][0]['id'])}")


def show_opened(answer: dict[str, Any]) -> None:
    data = answer["data"]
    show = {"session": _show_session, "turn": _show_turn, "event": _show_event}[data["kind"]]
    show(stdout_console(), data)
    warn(answer["warnings"])


def _show_session(console: Console, data: dict[str, Any]) -> None:
    session = data["session"]
    headline(console, session["title"])
    put(console, _session_facts(session, when="started_at"))
    put(console, facts(session["id"]))
    for turn in data["turns"]:
        asked, answered = turn["user_input"], turn["final_response"]
        console.print()
        events = plural(turn["event_count"], "event")
        put(console, facts(handle(turn["id"]), moment(turn["started_at"]), events, _tools(turn)))
        put(console, *_said("user_input", asked), indent=2)
        if answered is not None:
            put(console, *_said("assistant_response", answered), indent=2)
    if data["turns"]:
        hint(f"read a turn: backstory open {handle(data['turns'][0]['id'])}")


def _show_turn(console: Console, data: dict[str, Any]) -> None:
    turn, session, around = data["turn"], data["session"], data["traversal"]
    headline(console, session["title"])
    unfinished = None if turn["completed"] else "unfinished"
    put(console, facts(session["source"], f"turn {turn['ordinal']}", moment(turn["started_at"]), unfinished))
    put(console, facts(turn["id"]))
    for event in data["events"]:
        console.print()
        put(console, facts(f"{event['ordinal']:>3} "), *_heading(event), "  ", facts(event["id"]))
        put(console, event["summary"], indent=4)
    for name in ("previous", "next"):
        if around[f"{name}_turn_id"]:
            hint(f"{name} turn: backstory open {handle(around[f'{name}_turn_id'])}")


def _show_event(console: Console, data: dict[str, Any]) -> None:
    event, content, around = data["event"], data["content"], data["traversal"]
    turn = f"turn {data['turn']['ordinal']}"
    headline(console, data["session"]["title"])
    put(console, facts(data["session"]["source"], turn, moment(event["timestamp"]), handle(event["turn_id"])))
    put(console, facts(event["id"]))
    console.print()
    status = content.get("exit_code")
    ended = f"  exit code {status}" if status is not None else "", "red" if status else "dim"
    model = f"  {event['model']}" if event["model"] else "", "dim"
    put(console, *_heading(event), ended, model)
    put(console, content["text"])
    for name in ("previous", "next"):
        if around[f"{name}_event_id"]:
            hint(f"{name} event: backstory open {around[f'{name}_event_id']}")
    hint(f"the whole turn: backstory open {handle(event['turn_id'])}")


def _session_facts(session: dict[str, Any], *first: str, when: str) -> Part:
    return facts(
        *first,
        session["source"],
        moment(session[when]),
        plural(session["turn_count"], "turn"),
        plural(session["event_count"], "event"),
        None if session["completed"] else "unfinished",
    )


def _heading(event: dict[str, Any]) -> tuple[Part, Part]:
    return speaker(event["type"]), (f" {event['tool_name']}" if event["tool_name"] else "", "bold")


def _said(event_type: str, said: dict[str, Any] | None) -> tuple[Part, Part]:
    return speaker(event_type), "  " + (" ".join(said["text"].split()) if said is not None else "(nothing)")


def _tools(turn: dict[str, Any]) -> str:
    names = turn["tools_called"]
    more = f" and {len(names) - _TOOLS_SHOWN} more" if len(names) > _TOOLS_SHOWN else ""
    return ", ".join(names[:_TOOLS_SHOWN]) + more
