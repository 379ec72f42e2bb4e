"""`backstory open` and `export`: a session, a turn or an event laid out for reading, and a session as a file."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...files import replacing
from ...model import EventType, parse_time
from ...toolcalls import main_argument, without_preamble
from ..words import duration, find_id, find_session, handle, home_path, plural, resume_command, unknown
from .app import json_option, team_option
from .output import (
    Part,
    exit_code,
    facts,
    headline,
    hint,
    moment,
    paged,
    print_json,
    put,
    put_command,
    put_facts,
    put_passage,
    speaker,
    stdout_console,
    warn,
)
from .search import session_facts
from .sync import up_to_date

if TYPE_CHECKING:
    from ...library import Library
    from ...toolsets.history.types import ReadEvent
    from ..export import Format

_LISTED = 6
# Lines of each kind of text that are shown without --full.
_LINES = {EventType.USER_INPUT: 24, EventType.ASSISTANT_RESPONSE: 48, EventType.TOOL_RESPONSE: 8}
_OTHER_LINES = 4
_ARGUMENT_CHARS = 240
_STDOUT = "-"


@click.command("open")
@click.argument("id_", metavar="ID")
@click.option("--full", is_flag=True, help="Show every event and every line.")
@click.option("--md", "as_markdown", is_flag=True, help="Print Markdown; with --full also tool output and reasoning.")
@team_option
@json_option
def open_(id_: str, full: bool, as_markdown: bool, team: bool, as_json: bool) -> int:
    """Read a session, a turn or an event.

    ID is as search and sessions print it: a full id, or the first characters of the agent's own session id, with :N
    for turn N. On a terminal long texts are cut, with the command that shows the rest.
    """
    library = up_to_date(as_json=as_json, team=team)
    answer = library.open(find_id(library.asked, id_))
    if as_json:
        print_json(answer)
    elif "error" in answer and answer["error"]["code"] == "invalid_id":
        raise click.ClickException(unknown(id_))
    elif "error" not in answer and as_markdown:
        from ..export import to_markdown

        click.echo(to_markdown(library, answer, full=full), nl=False)
    elif "error" not in answer:
        _Reader(library, full=full).show(answer)
    return exit_code(answer)


class _Reader:
    """Prints the answer of `open`. `full` shows every event and every line."""

    def __init__(self, library: Library, *, full: bool) -> None:
        self._library = library
        self._full = full
        self._console = stdout_console()

    def show(self, answer: dict[str, Any]) -> None:
        data = answer["data"]
        warn(answer["warnings"])
        with paged(self._console):
            {"session": self._session, "turn": self._turn, "event": self._event}[data["kind"]](data)
        self._hints(data)

    def _session(self, data: dict[str, Any]) -> None:
        console, session = self._console, data["session"]
        headline(console, session["title"])
        put_facts(console, *session_facts(self._library, session, when="started_at"))
        location = self._library.locate(session["id"])
        put_command(console, (location and resume_command(location)) or "")
        put_facts(console, session["id"])
        for line in _links(data.get("links", {})):
            put_facts(console, line)
        for turn in data["turns"]:
            console.print()
            events = plural(turn["event_count"], "event")
            put_facts(console, handle(turn["id"]), moment(turn["started_at"]), events, _tools(turn))
            if self._full:
                self._events(turn["id"])
            else:
                self._exchange(turn)

    def _exchange(self, turn: dict[str, Any]) -> None:
        """Print the prompts of a turn, and its final answer or, without one, its latest."""
        spoken = self._library.read_turn(turn["id"], (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE))
        final = turn["final_response"]["event_id"] if turn["final_response"] else None
        answers = [entry for entry in spoken if entry.event.type is EventType.ASSISTANT_RESPONSE]
        answer = next((entry for entry in answers if entry.event.id == final), answers[-1] if answers else None)
        for entry in spoken:
            if entry.event.type is EventType.USER_INPUT or entry is answer:
                self._passage(entry, rest=f"backstory open {handle(turn['id'])}", indent=2)

    def _turn(self, data: dict[str, Any]) -> None:
        console, turn, session = self._console, data["turn"], data["session"]
        location = self._library.locate(session["id"])
        headline(console, session["title"])
        put_facts(
            console,
            session["source"],
            location.origin if location else None,
            home_path(location.project) if location and location.project else None,
            f"turn {turn['ordinal']}",
            moment(turn["started_at"]),
            plural(turn["event_count"], "event"),
            None if turn["completed"] else "unfinished",
        )
        put_command(console, (location and resume_command(location)) or "")
        put_facts(console, turn["id"])
        self._events(turn["id"])

    def _events(self, turn_id: str) -> None:
        """Print the events of a turn, each response under its call."""
        events = self._library.read_turn(turn_id)
        calls = {entry.call_id for entry in events if entry.event.type is EventType.TOOL_CALL and entry.call_id}
        responses: dict[str | None, ReadEvent] = {
            entry.call_id: entry
            for entry in events
            if entry.event.type is EventType.TOOL_RESPONSE and entry.call_id in calls
        }
        for entry in events:
            if responses.get(entry.call_id) is entry:
                continue
            self._console.print()
            if entry.event.type is EventType.TOOL_CALL:
                self._call(entry, responses.get(entry.call_id))
            else:
                self._passage(entry, rest=f"backstory open {entry.event.id}")

    def _call(self, call: ReadEvent, response: ReadEvent | None) -> None:
        console = self._console
        argument = main_argument(getattr(call.content, "arguments", None)) or ""
        if len(argument) > _ARGUMENT_CHARS and not self._full:
            argument = f"{argument[:_ARGUMENT_CHARS]}…"
        put(console, (call.event.tool_name or "tool", "bold yellow"), f"  {argument}" if argument else "")
        if self._full:
            put_passage(console, call.content.text, indent=4, lines=None, rest="")
        outcome = (_outcome(response), _took(call, response)) if response else ("no response",)
        put(console, facts(call.event.id), *_after(outcome), indent=4)
        if response:
            self._text(response, indent=4, rest=f"backstory open {response.event.id}")

    def _passage(self, entry: ReadEvent, *, rest: str, indent: int = 0) -> None:
        event = entry.event
        tool: Part = (f" {event.tool_name}" if event.tool_name else "", "bold")
        about = facts(moment(event.timestamp).partition(",")[0], event.model, event.id)
        put(self._console, speaker(event.type), tool, "  ", about, *_after((_outcome(entry),)), indent=indent)
        self._text(entry, indent=indent + 2, rest=rest)

    def _text(self, entry: ReadEvent, *, indent: int, rest: str) -> None:
        kind = entry.event.type
        put_passage(
            self._console,
            entry.content.text if self._full else without_preamble(entry.content.text),
            indent=indent,
            lines=None if self._full else _LINES.get(kind, _OTHER_LINES),
            rest=rest,
            markdown=kind is EventType.ASSISTANT_RESPONSE,
        )

    def _event(self, data: dict[str, Any]) -> None:
        console, event, content = self._console, data["event"], data["content"]
        turn = f"turn {data['turn']['ordinal']}"
        headline(console, data["session"]["title"])
        put_facts(console, data["session"]["source"], turn, moment(event["timestamp"]), handle(event["turn_id"]))
        put_facts(console, event["id"])
        console.print()
        tool: Part = (f" {event['tool_name']}" if event["tool_name"] else "", "bold")
        status = content.get("exit_code")
        ended: Part = (f"  exit code {status}" if status is not None else "", "bold red" if status else "dim")
        put(console, speaker(event["type"]), tool, ended, (f"  {event['model'] or ''}", "dim"))
        is_answer = event["type"] == EventType.ASSISTANT_RESPONSE
        put_passage(console, content["text"], indent=0, lines=None, rest="", markdown=is_answer)

    def _hints(self, data: dict[str, Any]) -> None:
        around = data["traversal"]
        if data["kind"] == "session" and data["turns"] and not self._full:
            hint(f"read a turn: backstory open {handle(data['turns'][0]['id'])} · everything: --full, --md")
        for kind in ("turn", "event"):
            for name in ("previous", "next"):
                if data["kind"] == kind and around[f"{name}_{kind}_id"]:
                    hint(f"{name} {kind}: backstory open {handle(around[f'{name}_{kind}_id'])}")
        if data["kind"] == "event":
            hint(f"the whole turn: backstory open {handle(data['event']['turn_id'])}")


def _outcome(response: ReadEvent) -> Part | None:
    """The exit code or failure of a tool, with a mark that shows without colour too."""
    code, failed = getattr(response.content, "exit_code", None), getattr(response.content, "failed", None)
    if code:
        return f"✗ exit code {code}", "bold red"
    if code is None and failed is True:
        return "✗ failed", "bold red"
    return None if code is None else ("exit code 0", "dim")


def _took(call: ReadEvent, response: ReadEvent) -> str | None:
    start, end = parse_time(call.event.timestamp), parse_time(response.event.timestamp)
    return duration((end - start) / 1000) if start and end and end > start else None


def _after(parts: tuple[Part | None, ...]) -> list[Part]:
    """Facts that follow others on the same line."""
    found: list[Part] = []
    for part in parts:
        if part:
            found += [(" · ", "dim"), part if isinstance(part, tuple) else (part, "dim")]
    return found


def _links(links: dict[str, Any]) -> list[str]:
    lines = []
    if parent := links.get("parent_session_id"):
        lines.append(f"started by {handle(parent)}")
    if children := links.get("child_session_ids"):
        more = f" and {len(children) - _LISTED} more" if len(children) > _LISTED else ""
        lines.append(f"subagents: {', '.join(handle(child) for child in children[:_LISTED])}{more}")
    lines += [f"capsule: {note['workspace']}/{note.get('name') or note['id']}" for note in links.get("capsules", ())]
    return lines


def _tools(turn: dict[str, Any]) -> str:
    names = turn["tools_called"]
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


@click.command()
@click.argument("id_", metavar="ID")
@click.option("--html", "format_", flag_value="html", help="A page that needs nothing else (default).")
@click.option("--md", "format_", flag_value="md", help="Markdown.")
@click.option("--jsonl", "format_", flag_value="jsonl", help="JSON Lines: the session, then its events.")
@click.option("--output", "-o", metavar="FILE", help="The file to write; - for stdout.")
@json_option
def export(id_: str, format_: Format | None, output: str | None, as_json: bool) -> int:
    """Write one session as a file, to keep or to share.

    Secrets are redacted. The HTML page needs no scripts and loads nothing. ID is as for open.
    """
    from ...model import InvalidId
    from ..export import export as pieces_of

    format_ = format_ or "html"
    library = up_to_date(as_json=as_json)
    full_id = find_session(library.archive, id_)
    try:
        pieces = pieces_of(library, full_id, format_)
    except (InvalidId, LookupError):
        raise click.ClickException(unknown(id_)) from None
    if output == _STDOUT:
        if as_json:
            print_json({"id": full_id, "format": format_, "content": "".join(pieces)})
        else:
            for piece in pieces:
                sys.stdout.write(piece)
        return 0
    path = Path(output or f"{re.sub(r'[^A-Za-z0-9._-]+', '-', handle(full_id))[:80]}.{format_}")
    size = _write_file(path, pieces)
    if as_json:
        whole = library.egress(str(path.absolute()))
        print_json({"id": full_id, "format": format_, "path": whole, "bytes": size})
    else:
        click.echo(f"Wrote {library.egress(str(path))} ({size:,} bytes)")
    return 0


def _write_file(path: Path, pieces: Iterable[str]) -> int:
    """Write a file that only its owner can read, as the transcripts are; gives its size. A file that is there is
    replaced when all is written; what is no file, such as a pipe, cannot be replaced."""
    is_other = path.exists() and not path.is_file()
    with path.open("wb") if is_other else replacing(path.resolve()) as file:
        return sum(file.write(piece.encode("utf-8", "replace")) for piece in pieces)
