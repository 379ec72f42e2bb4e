"""`backstory sync`, `watch`, `reindex` and `forget`: change the archive and its index, with progress on stderr."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import click

from ..words import duration, find_id, find_session, handle, home_path, megabytes, plural, unknown
from .app import json_option
from .output import hint, print_json, tell, warn

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from ...archive.base import SyncState
    from ...archive.rows import SessionRow
    from ...ingest.progress import SyncProgress, SyncReport
    from ...library import Library

# Another process that keeps the archive live reads a change well within this time.
_GRACE_SECONDS = 1.5
_POLL_SECONDS = 0.2
_SIGNAL_SECONDS = 0.5

_ROOTS_SHOWN = 5


@click.command()
@json_option
def sync(as_json: bool) -> int:
    """Read everything new now."""
    import msgspec

    from ... import open_archive
    from ...archive.base import SessionsRequest

    library = open_archive()
    library.give_way()
    report = read_everything(library)
    if as_json:
        print_json({"by_another_process": report is None, **(msgspec.to_builtins(report) if report else {})})
        return 0
    if report is None:
        click.echo("Up to date: another Backstory process (mcp, watch or serve) reads new transcripts as they come.")
        return 0
    if not report.sessions and not library.archive.sessions(SessionsRequest(limit=1)):
        click.echo(where_agents_are(library))
        return 0
    click.echo(
        f"Read {plural(report.events, 'event')} of {plural(report.sessions, 'session')} "
        f"from {plural(report.files, 'file')}, {megabytes(report.bytes)} in {duration(report.seconds)}."
    )
    if report.errors:
        click.echo(f"{plural(report.errors, 'part')} could not be understood.")
        hint("which ones and why: backstory doctor")
    hint("next: backstory search WORDS")
    return 0


def read_everything(library: Library) -> SyncReport | None:
    """Sync, or wait for the process that does. Return None when that process has read everything."""
    from ...archive.base import ArchiveBusy

    enough = time.monotonic() + _GRACE_SECONDS
    with Progress() as progress:
        while True:
            try:
                return library.sync(progress=progress.of_sync)
            except ArchiveBusy:
                state = library.archive.sync_state()
                # That process may not have noticed the latest changes yet.
                if state.finished_at is not None and time.monotonic() > enough:
                    return None
                progress.of_state(state)
                time.sleep(_POLL_SECONDS)


@click.command()
@click.option("--beside", is_flag=True, help="Give way to other programs, and stop when standard input ends.")
@json_option
def watch(as_json: bool, beside: bool) -> int:
    """Keep the archive live until stopped: what an agent writes is found a moment later.

    `backstory mcp` and `backstory serve` do the same while they run. With --json the totals are printed at the end.
    """
    from ... import open_archive

    library = open_archive()
    totals = {"syncs": 0, "files": 0, "events": 0, "errors": 0}

    def changed(report: SyncReport) -> None:
        totals["syncs"] += 1
        for name in ("files", "events", "errors"):
            totals[name] += getattr(report, name)
        if not as_json and report.events:
            what = f"{plural(report.events, 'event')} from {plural(report.files, 'file')}"
            click.echo(f"{time.strftime('%H:%M:%S')}  {what}")

    hint("Watching. Ctrl-C stops it.")
    started = time.monotonic()
    if beside:
        library.give_way()
    _watch_until_stopped(library, changed, until_input_ends=beside)
    library.close()
    if as_json:
        print_json({**totals, "seconds": round(time.monotonic() - started, 3)})
    return 0


def _watch_until_stopped(library: Library, changed: Callable[[SyncReport], None], *, until_input_ends: bool) -> None:
    """Watch in a thread: only the main thread receives signals, and must not be inside native code then."""
    stop = threading.Event()
    failures: list[Exception] = []

    def work() -> None:
        try:
            library.watch(stop, on_change=changed)
        except Exception as error:
            failures.append(error)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())

    def read_input() -> None:
        while os.read(0, 4096):
            pass
        stop.set()

    if until_input_ends:
        threading.Thread(target=read_input, name="backstory-parent", daemon=True).start()
    thread = threading.Thread(target=work, name="backstory-watch", daemon=True)
    thread.start()
    while thread.is_alive():
        # Not for ever: a signal that another thread receives does not wake this one, which alone handles it.
        thread.join(_SIGNAL_SECONDS)
    if failures:
        raise failures[0]


@click.command()
@json_option
def reindex(as_json: bool) -> int:
    """Rebuild the search index from the archive.

    The index holds nothing that the archive does not: this loses nothing, and searches go on meanwhile.
    """
    from ... import open_archive
    from ...archive.base import ArchiveBusy

    library = open_archive()
    started = time.monotonic()
    try:
        with Progress("Indexing"):
            events = library.reindex()
    except ArchiveBusy:
        raise click.ClickException(
            "another Backstory process (mcp, watch or serve) writes the archive: stop it and try again. It rebuilds a "
            "missing or damaged index by itself"
        ) from None
    seconds = time.monotonic() - started
    if as_json:
        print_json({"events": events, "seconds": round(seconds, 3)})
    else:
        click.echo(f"Indexed {plural(events, 'event')} in {duration(seconds)}.")
    return 0


@click.command()
@click.argument("id_", metavar="ID")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@json_option
def forget(id_: str, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete a session everywhere, for good.

    Deletes the session and those of its subagents from the archive, the index and the traces; they are not read
    again. The agent's own files stay as they are. ID is as for open.
    """
    library = up_to_date(as_json=as_json)
    full_id = find_session(library.archive, id_)
    if full_id not in (id_, find_id(library.archive, id_)):
        raise click.ClickException(f"{id_} is a part of the session {handle(full_id)}; only whole sessions are deleted")
    rows = library.egress([_deleted_row(session) for session in family_of(library, full_id, id_)])
    if not as_json:
        _show_deletion(rows, "Would delete" if dry_run else "Delete")
    if not dry_run:
        if not yes:
            _confirm(as_json)
        with Progress("Forgetting"):
            library.forget(full_id)
    if as_json:
        print_json({"sessions": rows, "forgotten": not dry_run})
    elif not dry_run:
        click.echo("Deleted. Its transcript is not read again.")
    return 0


def family_of(library: Library, full_id: str, given: str) -> list[SessionRow]:
    """A session and those of its subagents."""
    try:
        return library.family(full_id)
    except LookupError as error:
        raise click.ClickException(str(error) if full_id != given else unknown(given)) from None


def _deleted_row(session: SessionRow) -> dict[str, object]:
    from ...model import session_id

    return {
        "id": session_id(session.key),
        "session": session.key,
        "title": session.title,
        "turns": session.turn_count,
        "events": session.event_count,
    }


def _show_deletion(rows: list[dict[str, object]], verb: str) -> None:
    for number, row in enumerate(rows):
        size = f"{plural(int(str(row['turns'])), 'turn')}, {plural(int(str(row['events'])), 'event')}"
        click.echo(f"{'  with it' if number else verb} {row['session']}: {row['title'] or '(no title)'} ({size})")


def _confirm(as_json: bool) -> None:
    if as_json or not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to confirm at: give --yes to delete it, or --dry-run to see what would be deleted"
        )
    click.confirm("This cannot be undone. Delete it?", abort=True, err=True)


def up_to_date(*, as_json: bool = False, team: bool = False) -> Library:
    """Open the archive and read what is new: at most for a moment, except the first time at a terminal. That of a team
    is not synced."""
    from ... import open_archive
    from ...archive.base import SessionsRequest

    if team:
        return open_archive(scope="team", name_origins=as_json)  # for people the origin stands with each session
    library = open_archive()
    state = library.archive.sync_state()
    first = state.first_finished_at is None and not state.read_only and library.settings.catch_up_seconds > 0
    if first and sys.stderr.isatty():
        _first_sync(library)
    else:
        library.catch_up()
    if not as_json and not library.archive.sessions(SessionsRequest(start=0, end=1 << 53, limit=1)):
        warn([where_agents_are(library)])
    return library


def _first_sync(library: Library) -> None:
    from ...archive.base import ArchiveBusy

    tell("Reading your agents' sessions for the first time. Ctrl-C answers with what was read so far.")
    try:
        with Progress() as progress:
            library.sync(progress=progress.of_sync)
    except ArchiveBusy:
        library.catch_up()
    except KeyboardInterrupt:
        tell("Stopped. backstory sync reads the rest.")


def where_agents_are(library: Library) -> str:
    """The message for a machine without sessions: the folders that were searched, and the next step."""
    roots = library.expected_roots()
    folders = ", ".join(home_path(root) for root in roots[:_ROOTS_SHOWN])
    if len(roots) > _ROOTS_SHOWN:
        folders += f" and {len(roots) - _ROOTS_SHOWN} other places (backstory sources --all)"
    return (
        f"No sessions of coding agents were found. Looked in: {folders}.\n"
        "Use an agent once and try again; if its folder is elsewhere, name it under extra_roots in "
        f"{home_path(str(library.home / 'config.toml'))}."
    )


class Progress:
    """A progress bar on stderr where it is a terminal; nothing elsewhere."""

    def __init__(self, label: str = "Reading") -> None:
        self._bar = _rich_bar(label) if sys.stderr.isatty() else None

    def update(self, done: int, total: int, detail: str = "") -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total or None, detail=detail)

    def of_sync(self, progress: SyncProgress) -> None:
        events = f"{progress.events:,} events"
        if progress.files_done < progress.files_total:
            detail = f"{progress.files_done:,}/{progress.files_total:,} files, {events}"
            self.update(progress.bytes_done, progress.bytes_total, detail)
        elif self._bar is not None:  # what is left is indexing, which has no measure
            self._bar.remove_task(self._bar.task_ids[0])
            self._bar.add_task("Indexing", total=None, detail=events)

    def of_state(self, state: SyncState) -> None:
        self.update(state.files_done, state.files_total, f"{state.files_done:,}/{state.files_total:,} files, elsewhere")

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def _rich_bar(label: str) -> RichProgress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[detail]}", style="dim"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task(label, total=None, detail="")
    return bar
