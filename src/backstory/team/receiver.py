"""The receiver of a hub: one thread that writes the archive, for all members."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeVar

from ..archive.base import Archive, SessionsRequest
from ..archive.errors import explain
from ..config import HUB_FILE
from . import TeamError
from .intake import Intake

_log = logging.getLogger(__name__)
T = TypeVar("T")
# Events can be found so long after they were written at the latest; at once when nothing else is to be written.
_FLUSH_SECONDS = 2.0
_IDLE_SECONDS = 0.2
_HOUSEKEEPING_SECONDS = 5.0


class Receiver:
    """Holds the writer lock of the archive. A job that fails does not end it: the intake is opened anew."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._intake: Intake | None = Intake(archive, archive.writer())
        self._jobs: Queue[tuple[Future[Any], Callable[[Intake], Any]] | None] = Queue()
        self._thread = threading.Thread(target=self._work, name="backstory-receiver", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The jobs that are not done yet."""
        return self._jobs.qsize()

    def submit(self, job: Callable[[Intake], T]) -> Future[T]:
        """Run a job in the thread that writes; its rows are durable when it is done."""
        future: Future[T] = Future()
        self._jobs.put((future, job))
        return future

    def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        unflushed_since: float | None = None
        looked_at = time.monotonic()
        while True:
            try:
                entry = self._jobs.get(timeout=_IDLE_SECONDS if unflushed_since is not None else _HOUSEKEEPING_SECONDS)
            except Empty:
                if unflushed_since is not None:
                    self._attempt(Intake.flush)
                unflushed_since = None
                if time.monotonic() - looked_at > _HOUSEKEEPING_SECONDS:
                    looked_at = time.monotonic()
                    self._attempt(Intake.finish_forgetting)
                continue
            if entry is None:
                self._drop()
                return
            self._run(*entry)
            unflushed_since = unflushed_since or time.monotonic()
            if time.monotonic() - unflushed_since > _FLUSH_SECONDS:
                self._attempt(Intake.flush)
                unflushed_since = None

    def _run(self, future: Future[Any], job: Callable[[Intake], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(job(self._opened()))
        except BaseException as error:
            self._drop()
            future.set_exception(error)

    def _attempt(self, job: Callable[[Intake], None]) -> None:
        try:
            job(self._opened())
        except Exception as error:
            _log.warning("the archive cannot be written at the moment: %s", explain(error) or error)
            self._drop()

    def _opened(self) -> Intake:
        if self._intake is None:
            self._intake = Intake(self._archive, self._archive.writer())
        return self._intake

    def _drop(self) -> None:
        """Close the writer: after a failure, what it knows may not be what is stored."""
        intake, self._intake = self._intake, None
        if intake is None:
            return
        try:
            intake.close()
        except Exception as error:
            _log.warning("the writer could not be closed in order: %s", explain(error) or error)


def hub_identity(home: Path, archive: Archive) -> str:
    """The identity of a hub's archive, made once. Without the file it gets a new one, and members send everything
    again: that is to be done after a backup was restored.

    Raises TeamError for an archive with sessions that nobody has shared: those of this machine's own agents.
    """
    path = home / HUB_FILE
    if not path.exists():
        if any(row.user is None for row in archive.sessions(SessionsRequest(empty=True))):
            raise TeamError(
                f"the archive in {home} has sessions of this machine, which every member could read: set "
                "BACKSTORY_HOME to a folder of its own for the hub, with another database if the engine is clickhouse"
            )
        new = path.with_suffix(".new")
        new.write_text(uuid.uuid4().hex, "ascii")
        new.replace(path)
    return path.read_text("ascii").strip()
