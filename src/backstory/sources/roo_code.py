"""Roo Code: a folder of rewritten files for each task, as Cline's extension had it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .base import Lookup, Parser, Source, Transcript
from .cline import Task, describe_task, task_records
from .parsing import StatelessParser


class RooCode(Source):
    name = "roo-code"

    def gathers(self, folder: Path) -> bool:
        return folder.parent.name == "tasks"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return describe_task(self.name, path)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return StatelessParser(Task(self.name, transcript.session).items)

    def records(self, path: Path) -> Iterator[Any] | None:
        return task_records(path)
