"""The intake of a team's archive: parcels become rows, with the member and the machine that they come from.

A hub receives for all members, in one thread. Without a hub, on a ClickHouse server that all members write to, each
machine is an intake itself.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..archive import open_engine
from ..archive.base import (
    Archive,
    ArchiveBusy,
    Batch,
    EventRow,
    Part,
    SessionRow,
    SessionsRequest,
    SyncState,
    TurnRow,
    Writer,
)
from ..archive.errors import explain
from ..config import HUB_FILE, ClickHouseSettings
from ..files import replacing
from ..model import session_mark
from . import TeamError
from .sharing import Parcel, Projects, Receipt, Refusal

_FORGOTTEN = "it was taken back from the team, and is not accepted again"
_CONFLICT = "the server has other rows of it: all of them are needed"
_ALL = Projects(("*",))
_log = logging.getLogger(__name__)
T = TypeVar("T")
# The longest time until events that were written can be found; it is shorter when nothing else is to be written.
_FLUSH_SECONDS = 2.0
_IDLE_SECONDS = 0.2
_HOUSEKEEPING_SECONDS = 5.0


class Intake:
    """Writes for all members, in one thread. Of a parcel it takes rows of sessions and nothing else. The writer is
    closed with it, and if it cannot begin."""

    def __init__(self, archive: Archive, writer: Writer) -> None:
        self._archive = archive
        self._writer = writer
        try:
            self._begin(writer)
        except BaseException:
            with suppress(Exception):
                writer.close()
            raise

    @staticmethod
    def _begin(writer: Writer) -> None:
        writer.recover()
        if writer.sync_state().first_finished_at is None:
            # No transcripts are read here, so answers are never incomplete because a first sync is missing.
            now = time.time_ns() // 1_000_000
            writer.write(Batch(sync=SyncState(started_at=now, finished_at=now, first_finished_at=now)))

    def push(self, parcel: Parcel, member: str, projects: Projects) -> Receipt:
        """A parcel that comes again, in part or as a whole, changes nothing."""
        refused = self._take(parcel, member, projects) if parcel.batch.sessions else {}
        there = self._sessions(tuple(parcel.asked))
        gone = [key for key in parcel.asked if key not in there or there[key].user != member]
        return Receipt(refused=refused, gone=gone)

    def _take(self, parcel: Parcel, member: str, projects: Projects) -> dict[str, Refusal]:
        """Write the rows of a parcel, and give the sessions that are refused."""
        batch = parcel.batch
        keys = tuple(row.key for row in batch.sessions)
        stored = self._sessions(keys)
        refused = self._refusals(parcel, member, projects, stored)
        accepted = set(keys) - refused.keys()
        removed = [key for key in batch.removed if key in accepted]
        kept = {key: row for key, row in stored.items() if key not in removed}
        # A machine knows the places of what it has sent; another one, or one that has lost its outbox, may not.
        doubtful = {key for key, row in kept.items() if row.machine != parcel.machine or key not in parcel.known}
        events, replaced, conflicts = self._sort_events(
            [row for row in batch.events if row.session in accepted], kept.keys(), doubtful
        )
        refused |= {key: Refusal("conflict", _CONFLICT) for key in conflicts}
        accepted -= conflicts
        ahead = {
            key
            for key in accepted & stored.keys()
            if stored[key].machine != parcel.machine and key not in removed and _is_ahead(stored[key], batch.sessions)
        }
        for row in batch.sessions:
            row.user, row.machine = member, parcel.machine
        self._writer.write(
            Batch(
                removed=removed,
                sessions=[row for row in batch.sessions if row.key in accepted - ahead],
                turns=self._turns([row for row in batch.turns if row.session in accepted], ahead),
                events=[row for row in events if row.session in accepted],
                replaced=[row for row in replaced if row.session in accepted],
                exchanges=[row for row in batch.exchanges if row.session in accepted - ahead],
                usage=[row for row in batch.usage if row.session in accepted],
            )
        )
        return refused

    def forget(self, keys: Sequence[str], member: str | None) -> Receipt:
        """Delete sessions, and what they started, for good. `member` may delete only what it has shared."""
        stored = self._sessions(tuple(keys))
        refused = {
            key: Refusal("owner", f"it was shared by {row.user}, who can take it back")
            for key, row in stored.items()
            if member is not None and row.user != member
        }
        for key in keys:
            if key not in refused:
                self._archive.forget(key)
        self._writer.recover()
        return Receipt(refused=refused)

    def finish_forgetting(self) -> None:
        """Delete what another process has requested to be forgotten."""
        if self._writer.sync_state().forgetting:
            self._writer.recover()

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _sessions(self, keys: tuple[str, ...]) -> dict[str, SessionRow]:
        return {row.key: row for row in self._writer.sessions(SessionsRequest(keys=keys, empty=True))}

    def _refusals(
        self, parcel: Parcel, member: str, projects: Projects, stored: dict[str, SessionRow]
    ) -> dict[str, Refusal]:
        rows = parcel.batch.sessions
        marks = {session_mark(row.key): row.key for row in rows}
        forgotten = {marks[mark] for mark in self._writer.forgotten(list(marks))}
        refused: dict[str, Refusal] = {}
        for row in rows:
            known = stored.get(row.key)
            if row.key in forgotten:
                refused[row.key] = Refusal("forgotten", _FORGOTTEN)
            elif known is not None and known.user != member:
                refused[row.key] = Refusal("owner", f"{known.user or 'another member'} shares a session with this id")
            elif not projects.match(row):
                name = row.project or row.cwd or "no project"
                refused[row.key] = Refusal("project", f"the token does not cover its project ({name})")
            elif known is None and row.key in parcel.known and row.key not in parcel.batch.removed:
                refused[row.key] = Refusal("conflict", _CONFLICT)
        return refused

    def _sort_events(
        self, rows: list[EventRow], known: Collection[str], doubtful: set[str]
    ) -> tuple[list[EventRow], list[EventRow], set[str]]:
        """New events, those that are stored, and the sessions that have another event in the place of one.

        An event that another session has stays there: a fork repeats what it was made from.
        """
        by_uid = {row.uid: row for row in self._writer.events(part=Part(uids=tuple(r.uid for r in rows), texts=False))}
        new, replaced, conflicts = [], [], set()
        for row in rows:
            stored = by_uid.get(row.uid)
            if stored is None or (stored.session == row.session and row.session not in known):
                new.append(row)
            elif stored.session != row.session:
                continue
            elif (stored.turn, stored.ordinal) == (row.turn, row.ordinal):
                replaced.append(row)
            else:
                conflicts.add(row.session)
        for key, turn in sorted({(row.session, row.turn) for row in new if row.session in doubtful}):
            taken = {row.ordinal for row in self._writer.events(key, turn, Part(texts=False))}
            if any(row.ordinal in taken for row in new if (row.session, row.turn) == (key, turn)):
                conflicts.add(key)
        return new, replaced, conflicts

    def _turns(self, rows: Iterable[TurnRow], ahead: set[str]) -> list[TurnRow]:
        """The turns, without those of which another machine has sent more."""
        longer: set[tuple[str, int]] = set()
        rows = list(rows)
        for key in {row.session for row in rows} & ahead:
            counts = {row.ordinal: row.event_count for row in self._writer.turns(key)}
            longer |= {
                (key, row.ordinal)
                for row in rows
                if row.session == key and counts.get(row.ordinal, 0) > row.event_count
            }
        return [row for row in rows if (row.session, row.ordinal) not in longer]


def _is_ahead(stored: SessionRow, rows: Iterable[SessionRow]) -> bool:
    """True if another machine of the member has read more of the session than this one."""
    return any(row.key == stored.key and row.event_count < stored.event_count for row in rows)


def open_database(home: Path, url: str, projection: str | None) -> Archive:
    """The archive of a team on a ClickHouse server. `home` has what belongs to this connection to it."""
    archive = open_engine("clickhouse", home / "team" / "server", projection, ClickHouseSettings(url=url))
    if archive.sync_state().first_finished_at is None:
        with suppress(ArchiveBusy):  # then another process opens its intake
            Intake(archive, archive.writer()).close()
    return archive


class DirectServer:
    """Writes to a database as a member. It is connected to and locked at the first use, until it is closed."""

    def __init__(self, home: Path, url: str, projection: str | None, user: str) -> None:
        self._home = home
        self._url = url
        self._projection = projection
        self._user = user
        self._archive: Archive | None = None
        self._intake: Intake | None = None

    def identity(self) -> str:
        parts = urlsplit(self._url)
        return f"clickhouse {parts.hostname}:{parts.port or 8123}{parts.path}"

    def push(self, parcel: Parcel) -> Receipt:
        return self._opened().push(parcel, self._user, _ALL)

    def forget(self, keys: list[str]) -> Receipt:
        return self._opened().forget(keys, self._user)

    def _opened(self) -> Intake:
        if self._intake is None:
            self._archive = open_database(self._home, self._url, self._projection)
            self._intake = Intake(self._archive, self._archive.writer())
        return self._intake

    def close(self) -> None:
        if self._intake is not None:
            self._intake.flush()
            self._intake.close()
        if self._archive is not None:
            self._archive.close()
        self._archive = self._intake = None


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
        with replacing(path) as file:
            file.write(uuid.uuid4().hex.encode())
    return path.read_text("ascii").strip()
