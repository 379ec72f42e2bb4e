"""Bringing the archive up to date for a command, with a progress bar where stderr is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

    from ...archive.base import SyncState
    from ...ingest.pipeline import SyncProgress
    from ...library import Library

__all__ = ["Progress", "up_to_date", "where_agents_are"]

_ROOTS_SHOWN = 5


def up_to_date(*, as_json: bool = False) -> Library:
    """The archive, with what is new. The first time a person asks, everything is read, however long it takes."""
    from ... import open_archive
    from ...archive.base import SessionsRequest

    library = open_archive()
    state = library.archive.sync_state()
    first = state.first_finished_at is None and not state.read_only and library.settings.catch_up_seconds > 0
    if first and sys.stderr.isatty():
        _first_sync(library)
    else:
        library.catch_up()
    if not as_json and not library.archive.sessions(SessionsRequest(start=0, end=1 << 53, limit=1)):
        from .output import warn

        warn([where_agents_are(library)])
    return library


def _first_sync(library: Library) -> None:
    from ...archive.base import ArchiveBusy
    from .output import tell

    tell("Reading your agents' sessions for the first time. Ctrl-C answers with what was read so far.")
    try:
        with Progress() as progress:
            library.sync(progress=progress.of_sync)
    except ArchiveBusy:
        library.catch_up()
    except KeyboardInterrupt:
        tell("Stopped. backstory sync reads the rest.")


def where_agents_are(library: Library) -> str:
    """The message for a machine without any session: where was looked, and what to do."""
    from .words import home_path

    roots = library.expected_roots()
    folders = ", ".join(home_path(root) for root in roots[:_ROOTS_SHOWN])
    more = (
        f" and {len(roots) - _ROOTS_SHOWN} other places (backstory sources --all)" if len(roots) > _ROOTS_SHOWN else ""
    )
    return (
        f"No sessions of coding agents were found. Looked in: {folders}{more}.\n"
        "Use an agent once and try again; if its folder is elsewhere, name it under extra_roots in "
        f"{home_path(str(library.home / 'config.toml'))}."
    )


class Progress:
    def __init__(self, label: str = "Reading") -> None:
        self._bar = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TextColumn("{task.fields[detail]}", style="dim"),
                TimeElapsedColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task: TaskID = self._bar.add_task(label, total=None, detail="")

    def update(self, done: int, total: int, detail: str = "") -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total or None, detail=detail)

    def of_sync(self, progress: SyncProgress) -> None:
        detail = f"{progress.files_done:,}/{progress.files_total:,} files, {progress.events:,} events"
        self.update(progress.bytes_done, progress.bytes_total, detail)

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
