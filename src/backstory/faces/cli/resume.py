"""`backstory resume` and `restore`.

Continue a session in its agent, or in another one with a handoff; write back one that its agent has deleted.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import Struct

from ...files import replacing
from ..words import find_session, home_path, megabytes, resume_command
from .app import json_option
from .output import hint, print_json, tell
from .sync import family_of, up_to_date

if TYPE_CHECKING:
    from ...archive.rows import SessionRow
    from ...library import Library, Location
    from ...raw import RawFile

_TURNS_OF_HANDOFF = 12
# The command of each agent that begins an interactive session with a prompt, which is appended.
_START: dict[str, tuple[str, ...]] = {
    "claude-code": ("claude",),
    "codex": ("codex",),
    "gemini-cli": ("gemini", "--prompt-interactive"),
    "qwen-code": ("qwen", "--prompt-interactive"),
    "opencode": ("opencode", "--prompt"),
    "copilot-cli": ("copilot", "--interactive"),
    "goose": ("goose", "run", "--interactive", "--text"),
    "cursor": ("cursor-agent",),
}
# One argument of a command may have 128 KiB on Linux and all of them 32 on Windows; a prompt should be read.
_MOST_CHARS = 6_000
_MOST_PROMPT, _MOST_ANSWER, _MOST_FILES, _MOST_DECISIONS = 1_200, 1_500, 15, 8
_DECISION = re.compile(
    r"^\W*(?:decision|decided|we (?:decided|chose|keep|use)\b)[^\n]{5,}", re.IGNORECASE | re.MULTILINE
)
_PATH_KEYS = ("file_path", "filePath", "path", "notebook_path", "absolute_path", "filename")
_LATEST = 50
_EVER = 1 << 53


class Start(Struct, frozen=True, kw_only=True):
    """A command, and the folder that it runs in."""

    id: str
    agent: str
    command: tuple[str, ...]
    folder: str | None
    moved_from: str | None = None
    """The folder of the session, where the project has moved to `folder`."""

    @property
    def shell(self) -> str:
        command = shlex.join(self.command)
        return f"cd {shlex.quote(self.folder)} && {command}" if self.folder else command


@click.command()
@click.argument("words", nargs=-1, metavar="[WORDS or ID]")
@click.option(
    "--in", "agent", metavar="AGENT", help="Continue in another agent, with a handoff: codex, claude-code, ..."
)
@click.option("--print", "only_print", is_flag=True, help="Only show the command.")
@json_option
def resume(words: tuple[str, ...], agent: str | None, only_print: bool, as_json: bool) -> int:
    """Continue a session in its agent: by its id, by words that find it, or the last one in this folder.

    Goes to the session's folder first; if that has moved, to where the same git repository is checked out now. A
    session that its agent has deleted is restored. With --json the command is only shown.
    """
    library = up_to_date(as_json=as_json)
    session = _choose(library, words, agent)
    start = _start(library, session, agent)
    if as_json:
        print_json({**_fields(start), "shell": start.shell})
        return 0
    if only_print:
        click.echo(start.shell)
        return 0
    if start.folder is None or not Path(start.folder).is_dir():
        raise click.ClickException(f"its folder is gone: {start.folder or 'unknown'}; to see the command: --print")
    program = shutil.which(start.command[0])
    if program is None:
        raise click.ClickException(f"{start.command[0]} is not installed; to see the command: --print")
    if agent is None:
        restore_purged(library, session, moved_to=Path(start.folder) if start.moved_from else None)
    tell(start.shell if agent is None else f"cd {shlex.quote(start.folder)} && {start.command[0]} ... (with a handoff)")
    library.close()
    return _become(program, start)


def _become(program: str, start: Start) -> int:
    """Replace this process by the agent, in its folder. On Windows, where the shell would not wait for a process that
    is replaced, run the agent."""
    assert start.folder is not None
    os.chdir(start.folder)
    sys.stdout.flush()
    if sys.platform != "win32":
        os.execv(program, start.command)
    return subprocess.run([program, *start.command[1:]], check=False).returncode


def _fields(start: Start) -> dict[str, object]:
    import msgspec

    fields: dict[str, object] = msgspec.to_builtins(start)
    return fields


def _choose(library: Library, words: tuple[str, ...], agent: str | None) -> str:
    """The id of the session that is asked for."""
    # An id is never taken for words: they would find another session.
    if len(words) == 1 and _is_id(found := find_session(library.archive, words[0])):
        return found
    if words:
        return _search(library, " ".join(words), agent)
    here = Path.cwd()
    latest = _latest(library)
    for is_near in (lambda folder: folder == here, lambda folder: here in folder.parents or folder in here.parents):
        for id_, folder in latest:
            if folder is not None and is_near(Path(folder)) and _can_start(library, id_, agent):
                return id_
    raise click.ClickException("no session of this folder can be resumed; name one by words or by its id")


def _is_id(text: str) -> bool:
    from ...model import InvalidId, parse_id

    try:
        parse_id(text)
    except InvalidId:
        return False
    return True


def _latest(library: Library) -> list[tuple[str, str | None]]:
    from ...archive.base import SessionsRequest
    from ...model import session_id

    rows = library.archive.sessions(SessionsRequest(start=0, end=_EVER, limit=_LATEST))
    return [(session_id(row.key), row.last_cwd or row.cwd) for row in rows if not row.parent]


def _search(library: Library, query: str, agent: str | None) -> str:
    answer = library.search(query, n_hits=20)
    for hit in answer.get("data", {}).get("results", []):
        id_ = hit["session"]["id"]
        if _can_start(library, id_, agent):
            return str(id_)
    raise click.ClickException(f"no session that can be resumed matches {query!r}")


def _can_start(library: Library, id_: str, agent: str | None) -> bool:
    location = library.locate(id_)
    return location is not None and (agent is not None or location.resume is not None)


def _start(library: Library, id_: str, agent: str | None) -> Start:
    location = library.locate(id_)
    if location is None:
        raise click.ClickException(f"no session {id_} is in the archive")
    if agent is not None and agent not in _START:
        names = ", ".join(_START)
        raise click.UsageError(f"no agent {agent!r}; there are {names}")
    command = location.resume if agent is None else (*_START[agent], _handoff(library, id_, location))
    if command is None:
        raise click.ClickException(f"{location.source} has no command that resumes a session; --in AGENT hands it over")
    folder = location.project
    moved = None
    if folder is not None and not Path(folder).is_dir():
        moved = library.checkouts.find(Path(folder), location.branch)
        if moved is not None:
            tell(f"{home_path(folder)} has moved to {home_path(str(moved))}")
    return Start(
        id=id_,
        agent=agent or location.source,
        command=command,
        folder=str(moved) if moved is not None else folder,
        moved_from=folder if moved is not None else None,
    )


class _Step(Struct, frozen=True):
    """A turn of the session that is handed over."""

    prompt: str
    answer: str
    arguments: tuple[Any, ...]
    """Those of its tool calls."""


def _handoff(library: Library, id_: str, location: Location) -> str:
    """The first prompt for another agent: task, latest prompt, decisions, files, last state."""
    from ...egress import egress

    session, steps = _last_steps(library, id_)
    first, last = steps[0], steps[-1]
    title = egress(session.title, library.settings.redact)
    branch = f", on branch {location.branch}" if location.branch else ""
    opening = (
        f'Continue the work of an earlier session of {location.source}: "{title}"{branch}. What follows is a '
        "record of it, to be checked against the files. The whole of it is in Backstory: open it with the MCP server, "
        f"or run `backstory open {id_}`."
    )
    parts = [opening, f"## Task\n{_cut(first.prompt, _MOST_PROMPT)}"]
    if len(steps) > 1:
        parts.append(f"## Latest prompt\n{_cut(last.prompt, _MOST_PROMPT)}")
    if decisions := list(dict.fromkeys(_decisions(steps)))[-_MOST_DECISIONS:]:
        parts.append("## Decisions\n" + "\n".join(f"- {_cut(line, 300)}" for line in decisions))
    if files := list(dict.fromkeys(_files(steps)))[-_MOST_FILES:]:
        parts.append("## Files\n" + "\n".join(f"- {_cut(file, 200)}" for file in files))
    answer = next((step.answer for step in reversed(steps) if step.answer), "")
    state = "finished" if session.completed else "not finished"
    parts.append(f"## Last state ({state})\n{_cut(answer, _MOST_ANSWER) or 'The agent gave no answer.'}")
    parts.append("First say in two sentences where the work stands and what you do next.")
    return _cut("\n\n".join(parts), _MOST_CHARS)


def _last_steps(library: Library, id_: str) -> tuple[SessionRow, list[_Step]]:
    """The session, its first turn and its last ones."""
    from ...archive.base import Part
    from ...model import parse_id, turn_id
    from ...toolsets.history.types import CallContent

    key = parse_id(id_).key  # type: ignore[union-attr] # the id is that of a session
    row = library.archive.session(key)
    turns = library.archive.turns(key, Part(above=row.turn_count - _TURNS_OF_HANDOFF)) if row is not None else []
    if row is None or not turns:
        raise click.ClickException("the session has no turns")
    if turns[0].ordinal > 1:
        turns = [*library.archive.turns(key, Part(limit=1)), *turns]
    steps = []
    for turn in turns:
        events = library.read_turn(turn_id(key, turn.ordinal))
        prompt = next((e.content.text for e in events if e.event.type == "user_input"), "")
        answers = [e.content.text for e in events if e.event.type == "assistant_response"]
        calls = tuple(e.content.arguments for e in events if isinstance(e.content, CallContent))
        steps.append(_Step(prompt, answers[-1] if answers else "", calls))
    return row, steps


def _decisions(steps: Sequence[_Step]) -> Iterator[str]:
    for step in steps:
        yield from (found[0].strip(" -*#\t") for found in _DECISION.finditer(step.answer))


def _files(steps: Sequence[_Step]) -> Iterator[str]:
    for step in steps:
        for arguments in step.arguments:
            if isinstance(arguments, dict):
                yield from (arguments[key] for key in _PATH_KEYS if isinstance(arguments.get(key), str))


def _cut(text: str, chars: int) -> str:
    text = text.strip()
    return text if len(text) <= chars else f"{text[: chars - 1]}…"


# Writing back a session that its agent has deleted


State = Literal["written", "there already", "differs"]


@click.command()
@click.argument("id_", metavar="ID")
@click.option("--to", "folder", type=click.Path(path_type=Path), help="Write below this folder instead.")
@click.option("--dry-run", is_flag=True, help="Only show what would be written.")
@json_option
def restore(id_: str, folder: Path | None, dry_run: bool, as_json: bool) -> int:
    """Write a session that its agent has deleted back into the agent's folder.

    Byte for byte as it was read, with the sessions of its subagents, so that the agent itself can resume it. A file
    that is there is never overwritten. Sessions that an agent keeps in a database cannot be written back. ID is as
    for open.
    """
    from ... import open_archive

    library = open_archive()
    full_id = find_session(library.archive, id_)
    files = _kept_files(library, full_id, id_)
    rows = []
    top = os.path.commonpath([file.path.parent for file in files])
    for file in files:
        target = folder / file.path.relative_to(top) if folder is not None else file.path
        state = _state(library, file, target)
        if state == "written" and not dry_run:
            _write(library, file, target)
        rows.append({"path": library.egress(str(target)), "bytes": file.size, "state": state})
    if as_json:
        print_json({"id": full_id, "files": rows, "restored": not dry_run})
    else:
        for row in rows:
            verb = "Would write" if dry_run and row["state"] == "written" else str(row["state"]).capitalize()
            click.echo(f"{verb}: {home_path(str(row['path']))} ({megabytes(int(str(row['bytes'])))})")
        location = library.locate(full_id)
        if location is not None and (command := resume_command(location)):
            hint(f"continue it: {command}")
    return int(any(row["state"] == "differs" for row in rows))


def restore_purged(library: Library, full_id: str, *, moved_to: Path | None) -> None:
    """Write back what is missing of a session before its agent resumes it.

    Claude Code looks for a session in a folder that is named by the project's path: for a project that has moved, the
    transcript is written to the folder of its new place, too.
    """
    family = library.family(full_id)
    for file in library.raw.files(family[0].source, [row.key.partition("/")[2] for row in family]):
        target = file.path
        if moved_to is not None and file.source == "claude-code":
            slug = re.sub(r"[^A-Za-z0-9-]", "-", str(moved_to))
            projects = next((parent for parent in target.parents if parent.name == "projects"), None)
            if projects is not None:
                target = projects / slug / Path(*target.relative_to(projects).parts[1:])
        if not target.exists():
            tell(f"Writing {home_path(library.egress(str(target)))}")
            _write(library, file, target)


def _kept_files(library: Library, full_id: str, id_: str) -> list[RawFile]:
    """The files of a session and of those it started."""
    family = family_of(library, full_id, id_)
    files = library.raw.files(family[0].source, [row.key.partition("/")[2] for row in family])
    if not files:
        raise click.ClickException(_why_not(library, family[0]))
    return files


def _why_not(library: Library, session: SessionRow) -> str:
    """The reason why a session cannot be written back."""
    from ...archive.base import FilesRequest
    from ...ingest.families import repeated
    from ...ingest.scan import store_of
    from ...sources import title_of

    native_id = session.key.partition("/")[2]
    files = [row for row in library.archive.files(FilesRequest(source=session.source)) if row.session == native_id]
    if store := next(filter(None, (store_of(row.path) for row in files)), None):
        return (
            f"{title_of(session.source)} keeps many sessions in {home_path(library.egress(store))}, into which nothing "
            "is written back. All that was read is in the archive: backstory open shows it, export writes it as a "
            "file, and resume --in AGENT continues it in another agent"
        )
    if any(Path(row.path).is_relative_to(library.home) for row in files):
        return "no agent has a file of this session: it is kept by Backstory alone. backstory export writes one"
    reason = "they were not kept when it was read"
    if library.archive.forgotten([mark for row in files for mark in repeated(row)]):
        reason = "they repeat a session that was forgotten"
    elif not library.settings.keep_raw:
        reason = "the setting keep_raw is off"
    elif library.settings.redact == "ingest":
        reason = "secrets are redacted when they are read (redact = ingest)"
    return f"the raw records of this session are not kept: {reason}"


def _state(library: Library, file: RawFile, target: Path) -> State:
    if not target.exists():
        return "written"
    if target.stat().st_size != file.size:
        return "differs"
    with target.open("rb") as stream:
        same = all(stream.read(len(piece)) == piece for piece in library.raw.read(file.path))
    return "there already" if same else "differs"


def _write(library: Library, file: RawFile, target: Path) -> None:
    """Write a file atomically. Its modification time is now: agents delete old files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as stream:
        stream.writelines(library.raw.read(file.path))
