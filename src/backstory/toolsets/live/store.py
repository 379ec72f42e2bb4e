"""The store on disk: one file per session, a journal, an index, one writer.

All of it runs on one event loop, and a mutation has no `await` between its decision and its writes, so mutations need
no locks. Slow work (replacing a large file) runs in a thread and holds the session until it is done (`ready`).
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw

from .events import DELETED
from .files import Content, NewFile, Torn, Transform, changed, copy_file, disk_errors
from .index import Index, Session
from .journal import Cause, Change, now
from .records import Branch, EntryLine, Place, chain_data
from .recovery import Folder
from .repair import read_file
from .types import FsSettings, LiveError, SessionMeta
from .upkeep import GroupSync, Upkeep

_log = logging.getLogger("backstory.live")
_decode = msgspec.json.Decoder().decode
_COMPACT_FROM = 1 << 20
_SLICE = 2000


class FsStore:
    """Runs on the event loop that made it, until it is closed."""

    def __init__(self, folder: Folder, settings: FsSettings, publish: Callable[[Change], None]) -> None:
        """`publish` gets every change once it is durable."""
        self.folder = folder
        self.settings = settings
        self.files = folder.files
        self.journal = folder.journal
        self.index = folder.index
        self.upkeep = Upkeep(self.files, self.journal, self.index, lambda: self.settings)
        self._publish = publish
        self._syncs = GroupSync(self.journal.sync, self._synced)
        self._failed: str | None = None
        self._closed = False
        self._held: dict[str, asyncio.Event] = {}
        self._compacted: dict[str, int] = {}
        """The size of files at the last attempt to compact them."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._work: set[asyncio.Task[None]] = set()
        self._spawn(self.upkeep.run(self._rotate), self._tasks)
        self._spawn(self._sync_at_intervals(), self._tasks)

    async def close(self) -> None:
        """Finish running work and make everything durable."""
        await asyncio.gather(*self._work, return_exceptions=True)
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._syncs.request()
        await self._syncs.wait()
        try:
            await self.upkeep.save()
            self.index.set_state("closed", "synced" if self.settings.fsync != "off" else "written")
            self.index.database.close()
            self.journal.close()
        except (OSError, sqlite3.Error) as error:
            _log.warning("%s was not closed cleanly: %s", self.folder.path, error)
        finally:
            self.files.close()
            self._syncs.close()
            self.folder.lock.release()

    # --- reading

    def session(self, session_id: str) -> Session | None:
        """The session, or None. A file with entries but without a session record is none."""
        session = self.index.session(session_id)
        return session if session and session.meta else None

    def read(self, session: Session, places: Iterable[Place]) -> list[dict[str, Any]]:
        """Entries as JSON objects."""
        with disk_errors(f"read session {session.id}"):
            return [self._entry(self.files.read(session.id, place.offset, place.length), place) for place in places]

    @staticmethod
    def _entry(data: bytes, place: Place) -> dict[str, Any]:
        try:
            entry = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise changed() from None
        if not isinstance(entry, dict) or entry.get("id") != place.id:
            raise changed()
        entry.setdefault("parent_id", None)
        entry.setdefault("revision", 0)
        return entry

    # --- writing

    def write(self, change: Change, lines: Sequence[EntryLine], meta: SessionMeta | None) -> None:
        """Apply a change to journal, file and index: all of it or, with a LiveError, nothing."""
        session = self.index.session(change.session_id)
        change.at = at = session.size if session else 0
        data, starts = change.lines()
        self._log_and(change, lambda: self.files.append(change.session_id, data, at))
        for line, start in zip(lines, starts, strict=True):
            line.offset = at + start
        self.upkeep.dirty.add(change.session_id)
        with self._indexing():
            session = session or self.index.add_session(change.session_id)
            self._apply(session, change, lines, meta, data)
        self._written(change)

    def delete(self, change: Change, metadata: dict[str, Any] | None = None) -> None:
        """Remove a session and its file. The metadata is for filters of live bindings; the log does not keep it."""
        self._log_and(change, lambda: self.files.remove(change.session_id), self.journal.append_at_last)
        with self._indexing():
            if session := self.index.session(change.session_id):
                self.index.remove(session)
            self.index.note_deleted(change.session_id, change.head)
        change.metadata = metadata or {}
        self._written(change)

    def note(self, change: Change) -> None:
        """Log events that come without a change of a file."""
        envelopes = change.envelopes
        if is_deletion := change.trigger_type == DELETED:
            change.envelopes = [{"trigger_type": DELETED, "payload": envelope["payload"]} for envelope in envelopes]
        self._log_and(change, lambda: None)
        if is_deletion and self.index.session(change.session_id) is None:
            with self._indexing():
                self.index.note_deleted(change.session_id, change.head)
        change.envelopes = envelopes
        self._written(change)

    def _log_and(self, change: Change, act: Callable[[], None], log: Callable[[Change], None] | None = None) -> None:
        """Write the journal, then the file. When that fails, the journal is taken back."""
        if self._failed or self._closed:
            raise LiveError("storage", self._failed or f"{self.folder.path} is closed")
        try:
            (log or self.journal.append)(change)
            try:
                act()
            except OSError:
                self.journal.take_back()
                raise
        except Torn as error:
            self._failed = f"{self.folder.path}: {error.strerror}; restart to repair it"
            raise LiveError("storage", self._failed) from None
        except FileExistsError:
            path = self.files.path(change.session_id)
            raise LiveError("storage", f"{path} exists and holds no session; move it away") from None
        except OSError as error:
            raise LiveError("storage", f"cannot write session {change.session_id}: {error.strerror}") from None

    def _apply(
        self, session: Session, change: Change, lines: Sequence[EntryLine], meta: SessionMeta | None, data: bytes
    ) -> None:
        astray = False
        for line in lines:
            place = self.index.find(session, line.id) if change.cause in ("updated", "stored") else None
            if place is None:
                self.index.place(session, line)
                astray |= bool(session.orphans)
            else:
                astray |= place.parent != line.parent
                self.index.move(session, place, line)
        if change.leaf is not UNSET:
            session.leaf = change.leaf
        session.size += len(data)
        session.digest, session.stamp = chain_data(session.digest, data), self.files.stamp(session.id)
        self.index.save(session, meta)
        if astray and change.cause == "stored":
            read_file(self.index, self.files, session.id, session, from_start=True)
        self._compact_if_due(session)

    @contextmanager
    def _indexing(self) -> Iterator[None]:
        """Refuse everything after a failure: some calls would see a change that is on disk, others would not."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            self._failed = f"the index of {self.folder.path} failed ({error}); restart to rebuild it"
            raise LiveError("storage", self._failed) from None

    def _written(self, change: Change) -> None:
        if self.settings.fsync == "always":
            self._syncs.request(change)
        else:
            self._publish(change)

    async def durable(self) -> None:
        """Wait until everything written so far is as durable as `fsync` asks for."""
        if self.settings.fsync == "always":
            await self._syncs.wait()
        if self._failed:
            raise LiveError("storage", self._failed)

    async def synced(self) -> None:
        """Wait until everything written so far survives a power failure, unless `fsync` is off."""
        if self.settings.fsync != "off":
            self._syncs.request()
            await self._syncs.wait()

    def _synced(self, changes: list[Change], failure: OSError | None) -> None:
        """Publish the changes that a sync covered, in order. After a failed one every change is refused."""
        if failure is not None:
            self._failed = f"{self.folder.path} could not be synced to disk ({failure.strerror}); restart to go on"
            return
        for change in changes:
            self._publish(change)
        self._rotate()

    def _rotate(self) -> None:
        """Only while no sync is running: it uses the descriptor of the old segment."""
        try:
            self.journal.rotate()
        except OSError as error:
            self._failed = f"{self.folder.path} could not be synced to disk ({error.strerror}); restart to go on"

    # --- replacing whole files

    async def ready(self, session_id: str) -> None:
        """Wait until the session is not held."""
        while done := self._held.get(session_id):
            await done.wait()

    def _compact_if_due(self, session: Session) -> None:
        """Compact a file of which two thirds are superseded; after a failure, once it has grown by a megabyte."""
        if session.current * 3 < session.size and session.size - self._compacted.get(session.id, 0) >= _COMPACT_FROM:
            self._compacted[session.id] = session.size
            self._spawn(self.compact(session.id), self._work)

    async def compact(self, session_id: str) -> None:
        """Drop superseded records."""
        await self.ready(session_id)
        if session := self.index.session(session_id):
            places = self.index.all_places(session)
            await self.rewrite(session, places, session.leaf, session.meta, cause="compacted")
            self._compacted.pop(session_id, None)

    async def rewrite(
        self,
        session: Session,
        places: Sequence[Place],
        leaf: str | None,
        meta: SessionMeta | None,
        cause: Literal["rewritten", "compacted"] = "rewritten",
    ) -> None:
        """Replace a session's file by one that holds these entries (all or none), this leaf and this meta.

        The session is held from the call on: changes wait until the new file is in place. A file that another program
        changed is left as it is, because its new lines are not in the index.
        """
        self._held[session.id] = asyncio.Event()
        await self._to_the_end(self._rewrite(session, places, leaf, meta, cause))

    async def _rewrite(
        self, session: Session, places: Sequence[Place], leaf: str | None, meta: SessionMeta | None, cause: Cause
    ) -> None:
        try:
            with disk_errors(f"rewrite session {session.id}"):
                await self._replace(session, places, leaf, meta, cause)
        finally:
            self._held.pop(session.id).set()

    async def _replace(
        self, session: Session, places: Sequence[Place], leaf: str | None, meta: SessionMeta | None, cause: Cause
    ) -> None:
        branches = self.index.branches(session) if places else []
        new = await self._copy(session, places, Content(lambda entries: entries, leaf, meta), whole=True)
        key = self.index.new_key()
        for place, (offset, length) in zip(places, new.spans, strict=True):
            place.offset, place.length = offset, length
        await _index_slices(self.index, key, places, branches)
        self.journal.append(Change(cause=cause, session_id=session.id, time=now(), file=new.path.name))
        self._syncs.request()
        await self._syncs.wait()
        try:
            self.files.replace(session.id, new.path)
        except OSError:
            new.path.unlink()
            raise
        with self._indexing():
            self.index.rekey(session, key)
            session.size, session.leaf, session.branches = new.size, leaf, len(branches)
            session.digest, session.stamp, session.bad_lines = new.digest, self.files.stamp(session.id), 0
            session.current = sum(place.length for place in places)
            self.index.save(session, meta)

    async def fork(
        self, source: Session, places: Sequence[Place], ids: Sequence[str], transform: Transform, meta: SessionMeta
    ) -> None:
        """Create a session with copies of a path of another, under new ids. It is not visible until it is complete."""
        await self._to_the_end(self._fork(source, places, ids, transform, meta))

    async def _fork(
        self, source: Session, places: Sequence[Place], ids: Sequence[str], transform: Transform, meta: SessionMeta
    ) -> None:
        session = self.index.add_session(meta.session_id)
        try:
            with disk_errors(f"fork session {source.id}"):
                new = await self._copy(source, places, Content(transform, ids[-1], meta))
            copies = [
                Place(ids[depth], ids[depth - 1] if depth else None, place.role, 0, *new.spans[depth], 0, depth)
                for depth, place in enumerate(places)
            ]
            await _index_slices(self.index, session.key, copies, [Branch(0, None, None)])
            raw = Raw(msgspec.json.encode(meta))
            change = Change(
                cause="created", events=1, session_id=session.id, time=meta.created_at, file=new.path.name, meta=raw
            )
            self._log_and(change, lambda: self.files.replace(session.id, new.path))
        except BaseException:
            self.index.remove(session)
            raise
        with self._indexing():
            session.size, session.leaf, session.branches = new.size, ids[-1], 1
            session.digest, session.stamp = new.digest, self.files.stamp(session.id)
            session.current = sum(place.length for place in copies)
            self.index.save(session, meta)
        self._written(change)

    async def _copy(
        self, source: Session, places: Sequence[Place], content: Content, *, whole: bool = False
    ) -> NewFile:
        """A new file with entries of another. `whole`: it will replace that file, which must be unchanged."""
        path = self.folder.scratch / uuid.uuid4().hex
        fd = self.files.duplicate(source.id)
        return await asyncio.to_thread(
            copy_file, fd, path, places, content, (source.size, source.digest) if whole else None
        )

    # --- in the background

    async def _to_the_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for work that runs to its end even if its caller is cancelled."""
        await asyncio.shield(self._spawn(work, self._work))

    def _spawn(self, work: Coroutine[Any, Any, None], among: set[asyncio.Task[None]]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(among.discard)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()):
            _log.warning("%s: %s", self.folder.path, error)

    async def _sync_at_intervals(self) -> None:
        synced = self.journal.position
        while True:
            await asyncio.sleep(self.settings.fsync_interval_ms / 1000)
            if self.settings.fsync == "interval" and synced != self.journal.position:
                synced = self.journal.position
                self._syncs.request()


async def _index_slices(index: Index, key: int, places: Sequence[Place], branches: Iterable[Branch]) -> None:
    """Index entries under a key that no session has yet, a slice at a time, so that other calls run in between."""
    for start in range(0, len(places), _SLICE):
        index.add_entries(key, places[start : start + _SLICE])
        await asyncio.sleep(0)
    index.add_branches(key, branches)
