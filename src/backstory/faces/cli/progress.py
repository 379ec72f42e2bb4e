"""A progress bar on stderr, where there is a terminal to draw it on."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import TaskID

    from ...archive.base import SyncState
    from ...ingest.pipeline import SyncProgress

__all__ = ["Progress"]


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
