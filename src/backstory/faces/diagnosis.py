"""The diagnosis of `backstory doctor`: agents, archive, broken transcripts, and problems with their fixes."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Literal

from msgspec import Struct

from .. import __version__
from ..archive.base import Counts, FileRow, SearchRequest, SyncState
from ..archive.errors import explain
from ..ingest.scan import UNREADABLE
from ..ingest.walk import stored_path, walk
from ..library import Library
from ..model import DEFAULT_TYPES
from ..setup.agents import claude_days
from ..sources import OWN_SOURCES, title_of
from ..sources.base import Source
from ..sqlite import is_damage

_DAY = 86_400
_DAMAGED = "put a whole copy there, or delete it; each sync tries it again, and what was read of it stays"
_SOON_DAYS = 7
_PARTS = ("archive.db", "index", "traces.db", "capsules.db", "raw.db", "live")
_LITTLE_DISK = 1_000_000_000
# Agents without a source: the name, and the pattern of a file or folder that each session has.
_UNREAD_AGENTS = (
    ("Codebuff", ".config/manicode/projects/*/chats/*/chat-messages.json"),
    ("Devin", ".local/share/devin/cli/sessions.db"),
    ("Junie", ".junie/sessions/session-*/events.jsonl"),
    ("Mux", ".mux/sessions/*/chat.jsonl"),
    ("Rovo Dev", ".rovodev/sessions/*/session_context.json"),
)
_MOST_COUNTED = 10_000


class Agent(Struct, kw_only=True):
    """An agent whose folder exists, and its transcripts."""

    source: str
    roots: list[str]
    files: int = 0
    bytes: int = 0
    unread: int = 0
    """Files that are new or have changed since they were read."""
    sessions: int = 0


class Broken(Struct, frozen=True):
    path: str
    errors: int
    last_error: str | None


class Unread(Struct, frozen=True):
    """Sessions of an agent that has no source."""

    agent: str
    sessions: int
    folder: str


class Purge(Struct, kw_only=True):
    """Transcripts that Claude Code deletes within a week, or when it starts next."""

    after_days: int
    settings_file: str
    files: int = 0
    unread: int = 0
    first_at: float | None = None
    """Seconds since the epoch."""


class Problem(Struct, frozen=True):
    level: Literal["error", "warning", "note"]
    """A note needs no action."""
    message: str
    fix: str


NOT_ALL_READ = Problem("warning", "not everything has been read yet", "run backstory sync")


class Diagnosis(Struct, kw_only=True):
    version: str = __version__
    home: str
    agents: list[Agent] = []
    not_found: list[str] = []
    not_read: list[Unread] = []
    archive: Counts | None = None
    sync: SyncState | None = None
    disk: dict[str, int] = {}
    broken: list[Broken] = []
    missing: list[str] = []
    """Transcripts that were deleted; the archive keeps what was read of them."""
    purge: Purge | None = None
    problems: list[Problem] = []


def diagnose(library: Library) -> Diagnosis:
    found = Diagnosis(home=str(library.home))
    known: dict[str, FileRow] = {}
    try:
        known = {row.path: row for row in library.archive.files()}
        found.archive, found.sync = library.archive.counts(), library.archive.sync_state()
        library.archive.search(SearchRequest(query="anything", types=DEFAULT_TYPES, limit=1))
    except Exception as error:  # the rest of the diagnosis does not need the archive
        found.problems.append(_explained(error))
    found.broken = [Broken(row.path, row.errors, row.last_error) for row in known.values() if row.errors]
    found.problems += [
        Problem(
            "error", f"{row.path} {row.last_error}", _DAMAGED if os.access(row.path, os.R_OK) else _let_read(row.path)
        )
        for row in known.values()
        if row.last_error and row.last_error.startswith(UNREADABLE) and not row.missing
    ]
    found.missing = [row.path for row in known.values() if row.missing and row.session]
    found.disk = {name: _size(library.home / name) for name in _PARTS}
    for source in library.sources:
        _look_at_agent(found, library, source, known)
    found.not_read = list(_not_read(library.agents_home))
    found.problems += [
        *_archive_problems(found),
        *_traces_problems(found, library),
        *_raw_problems(library),
        *_transcript_problems(found),
        *_unknown_problems(found, library),
        *_live_problems(library),
        *_capsule_problems(library),
        *_folder_problems(library),
    ]
    return found


def _look_at_agent(found: Diagnosis, library: Library, source: Source, known: dict[str, FileRow]) -> None:
    roots = library.roots(source)
    if not roots:
        if source.name not in OWN_SOURCES:
            found.not_found.append(source.name)
        return
    unreadable: list[OSError] = []
    agent = Agent(source=source.name, roots=[str(root) for root in roots])
    agent.sessions = found.archive.by_source.get(source.name, 0) if found.archive else 0
    for root in roots:
        purge = _claude_purge(root) if source.name == "claude-code" else None
        for seen in walk(source, root, unreadable.append):
            row = known.get(stored_path(seen.path))
            unread = row is None or (row.size, row.mtime_ns) != (seen.size, seen.mtime_ns)
            agent.files += 1
            agent.bytes += seen.size
            agent.unread += unread
            if purge is not None:
                _count_purge(purge, seen.mtime_ns / 1e9, unread)
        if purge is not None and purge.files:
            found.purge = purge
    if agent.files or source.name not in OWN_SOURCES:
        found.agents.append(agent)
    found.problems += [
        Problem("error", f"{error.filename} cannot be read: {error.strerror}", _let_read(str(error.filename)))
        for error in unreadable
    ]


def _unknown_problems(found: Diagnosis, library: Library) -> Iterator[Problem]:
    """Records and fields that no parser knows: an agent has changed its format."""
    from ..egress import egress
    from ..ingest.unknown import unknown_records

    for kind in unknown_records(library.archive) if found.archive else ():
        version = f" {kind.version}" if kind.version else ""
        what = "fields that are not known" if kind.is_field else "records that are not understood"
        yield Problem(
            "note",
            f"{title_of(kind.source)}{version} writes {what}: {egress(kind.kind)} ({kind.count}),"
            f" such as {egress(kind.sample)}",
            "report it with backstory doctor --report; update Backstory if there is a newer version",
        )


def _let_read(path: str) -> str:
    return f"let this user read it: chmod -R u+rX {shlex.quote(path)} (as its owner)"


def _not_read(home: Path) -> Iterator[Unread]:
    """Agents that have sessions here and no source."""
    for name, pattern in _UNREAD_AGENTS:
        count = sum(1 for _ in islice(home.glob(pattern), _MOST_COUNTED))
        if count:
            yield Unread(name, count, str(home / pattern.split("*", 1)[0]))


def _claude_purge(root: Path) -> Purge | None:
    """The retention period of Claude Code for the transcripts below one of its folders."""
    if root.name != "projects":
        return None
    return Purge(after_days=int(claude_days(root.parent)), settings_file=str(root.parent / "settings.json"))


def _count_purge(purge: Purge, changed: float, unread: bool) -> None:
    at = changed + purge.after_days * _DAY
    if at < time.time() + _SOON_DAYS * _DAY:
        purge.files += 1
        purge.unread += unread
        purge.first_at = at if purge.first_at is None else min(at, purge.first_at)


def _archive_problems(found: Diagnosis) -> Iterator[Problem]:
    if found.sync is None:
        return
    if found.sync.first_finished_at is None:
        yield NOT_ALL_READ
    elif found.sync.index_behind:
        yield Problem("error", "the search index is missing or of another version", "run backstory reindex")


def _traces_problems(found: Diagnosis, library: Library) -> Iterator[Problem]:
    if found.archive is None:  # it cannot be opened, which is reported already
        return
    try:
        library.archive.spans.check()
    except Exception as error:
        yield _explained(error)


def _raw_problems(library: Library) -> Iterator[Problem]:
    try:
        library.raw.paths()
    except OSError:  # a home that can only be read, which is reported already
        return
    except sqlite3.Error as error:
        if is_damage(error):
            path = library.home / "raw.db"
            fix = "move it away and run backstory sync, which keeps the transcripts that are still there"
            yield Problem("error", f"{path} is damaged ({error})", fix)


def _explained(error: Exception) -> Problem:
    message, _, fix = (explain(error) or str(error)).partition(": ")
    return Problem("error", message, fix or "please report this")


def _transcript_problems(found: Diagnosis) -> Iterator[Problem]:
    if not found.agents:
        yield Problem(
            "warning",
            f"no agent found: none of {', '.join(found.not_found)} has a folder here",
            "use an agent once, or name other folders under extra_roots in config.toml",
        )
    if found.broken:
        yield Problem(
            "note",
            f"{_transcripts(len(found.broken), 'has', 'have')} parts that cannot be understood; all else was read",
            "nothing, if an agent or the machine crashed while writing; otherwise please report them",
        )
    if found.purge is not None and found.purge.unread:
        yield Problem(
            "warning",
            f"Claude Code is about to delete {_transcripts(found.purge.unread, 'that was', 'that were')} not read yet",
            "run backstory sync",
        )


def _live_problems(library: Library) -> Iterator[Problem]:
    """Files of live sessions that were damaged when their folder was last opened."""
    from ..toolsets.live.files import configured_problems

    for path, problem in configured_problems(library.settings.live, library.home).items():
        fix = "restore it from a backup if something is missing; all that is readable is served"
        yield Problem("warning", f"live session {path}: {problem}", fix)


def _capsule_problems(library: Library) -> Iterator[Problem]:
    from ..toolsets.capsules.store import check_database

    if trouble := check_database(library.home / "capsules.db"):
        message, _, fix = trouble.partition(": ")
        yield Problem("error", message, fix)


def _folder_problems(library: Library) -> Iterator[Problem]:
    home = library.home
    for path in (home, home / "archive.db", home / "capsules.db", home / "config.toml", home / "exports"):
        if path.exists() and path.stat().st_mode & 0o077:
            yield Problem("warning", f"others on this machine can read {path}", f"chmod -R go-rwx {home}")
            break
    if not os.access(home, os.W_OK):
        yield Problem("error", f"{home} cannot be written to", f"check its permissions: ls -ld {home}")
    if shutil.disk_usage(home).free < _LITTLE_DISK:
        yield Problem("warning", f"less than 1 GB is free where {home} is", "make room, or move it with BACKSTORY_HOME")


def _transcripts(count: int, singular: str, plural: str) -> str:
    return f"1 transcript {singular}" if count == 1 else f"{count:,} transcripts {plural}"


def _size(path: Path) -> int:
    """The bytes of a folder, or of a file with its write-ahead log."""
    if path.is_dir():
        return sum(_size(child) for child in path.iterdir())
    return sum(part.stat().st_size for part in (path, Path(f"{path}-wal")) if part.is_file())
