from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .options import json_option

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["open_"]


@click.command("open")
@click.argument("id_", metavar="ID")
@json_option
def open_(id_: str, as_json: bool) -> int:
    """Read a session, a turn or an event.

    ID is one that search or sessions showed. The first characters of the agent's own session id will do, and
    with :N that session's turn N.
    """
    from ... import open_archive
    from .handles import find_id
    from .output import exit_code, print_json, stdout_console, warn

    library = open_archive()
    library.catch_up()
    answer = library.call("open", {"id": find_id(library.archive, id_)})
    if as_json:
        print_json(answer)
    elif "error" not in answer:
        data = answer["data"]
        {"session": _show_session, "turn": _show_turn, "event": _show_event}[data["kind"]](stdout_console(), data)
        warn(answer["warnings"])
    return exit_code(answer)


def _show_session(console: Console, data: dict[str, Any]) -> None:
    from rich.text import Text

    from .handles import handle
    from .output import hint
    from .render import facts, moment, plural, put

    session = data["session"]
    put(console, Text(session["title"], "bold"))
    put(
        console,
        facts(
            session["source"],
            moment(session["started_at"]),
            plural(session["turn_count"], "turn"),
            plural(session["event_count"], "event"),
            None if session["completed"] else "unfinished",
        ),
    )
    put(console, facts(session["id"]))
    for turn in data["turns"]:
        console.print()
        _show_exchange(console, turn)
        put(console, facts(handle(turn["id"]), plural(turn["event_count"], "event"), *_tools(turn)), indent=4)
    if data["turns"]:
        hint(f"read a turn: backstory open {handle(data['turns'][0]['id'])}")


def _show_exchange(console: Console, turn: dict[str, Any]) -> None:
    """A turn in two lines: what was asked, what was answered."""
    from rich.text import Text

    from .render import moment, put, speaker

    asked, answered = turn["user_input"], turn["final_response"]
    number = Text(f"{turn['ordinal']:>3} ", "dim")
    when = Text(f"  {moment(turn['started_at'])}", "dim")
    put(console, number + speaker("user_input") + Text("  " + _one_line(asked)) + when)
    if answered is not None:
        put(console, speaker("assistant_response") + Text("  " + _one_line(answered)), indent=4)


def _show_turn(console: Console, data: dict[str, Any]) -> None:
    from rich.text import Text

    from .handles import handle
    from .output import hint
    from .render import facts, moment, plural, put, speaker

    turn, session = data["turn"], data["session"]
    put(console, Text(session["title"], "bold"))
    put(
        console,
        facts(
            session["source"],
            f"turn {turn['ordinal']}",
            moment(turn["started_at"]),
            plural(turn["event_count"], "event"),
            None if turn["completed"] else "unfinished",
        ),
    )
    put(console, facts(turn["id"]))
    for event in data["events"]:
        console.print()
        tool = Text(f" {event['tool_name']}" if event["tool_name"] else "", "bold")
        put(
            console,
            Text(f"{event['ordinal']:>3} ", "dim") + speaker(event["type"]) + tool + Text("  ") + facts(event["id"]),
        )
        put(console, Text(event["summary"]), indent=4)
    around = data["traversal"]
    for name in ("previous", "next"):
        if around[f"{name}_turn_id"]:
            hint(f"{name} turn: backstory open {handle(around[f'{name}_turn_id'])}")


def _show_event(console: Console, data: dict[str, Any]) -> None:
    from rich.text import Text

    from .handles import handle
    from .output import hint
    from .render import facts, moment, put, speaker

    event, content = data["event"], data["content"]
    put(console, Text(data["session"]["title"], "bold"))
    put(
        console,
        facts(
            data["session"]["source"],
            f"turn {data['turn']['ordinal']}",
            moment(event["timestamp"]),
            handle(event["turn_id"]),
        ),
    )
    put(console, facts(event["id"]))
    console.print()
    exit_status = content.get("exit_code")
    put(
        console,
        speaker(event["type"])
        + Text(f" {event['tool_name']}" if event["tool_name"] else "", "bold")
        + Text(f"  exit code {exit_status}" if exit_status is not None else "", "red" if exit_status else "dim")
        + Text(f"  {event['model']}" if event["model"] else "", "dim"),
    )
    put(console, Text(content["text"]))
    around = data["traversal"]
    for name in ("previous", "next"):
        if around[f"{name}_event_id"]:
            hint(f"{name} event: backstory open {around[f'{name}_event_id']}")
    hint(f"the whole turn: backstory open {handle(event['turn_id'])}")


def _one_line(said: dict[str, Any] | None) -> str:
    if said is None:
        return "(nothing)"
    return " ".join(said["text"].split())


def _tools(turn: dict[str, Any]) -> list[str]:
    shown = turn["tools_called"][:6]
    more = len(turn["tools_called"]) - len(shown)
    return [", ".join(shown) + (f" and {more} more" if more else "")]
