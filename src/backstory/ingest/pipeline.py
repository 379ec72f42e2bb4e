"""Sync: find what changed, read it, commit it. Events and offsets go into the same commit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..archive.base import Batch, FileRow, FilesRequest, FolderRow, SessionsRequest, SyncState, Writer
from ..model import session_mark
from ..sources.base import About, Event, Item, Source, Transcript
from .families import Families, Standing, Watch, repeated, settled
from .progress import Pass, SyncProgress, SyncReport
from .projects import Projects
from .reading import Reading
from .scan import Changed, KnownFiles, Listed, changed_files, family_order, nothing_to_read, store_of
from .turns import Added, Assembly
from .unknown import PlainRecords
from .walk import RootsOf, Seen, Survey, named, stored_path, walk

_EVENTS_PER_COMMIT = 4_000
_CHARS_PER_COMMIT = 16 << 20
_FILES_PER_COMMIT = 1_000
_STAMPS = FilesRequest(stamps=True)
# Reading sessions again may show that others were read too early as well.
_MAX_ROUNDS = 8


class Keep(Protocol):
    """Keeps the bytes of transcripts that were read to their end."""

    def keep(self, path: Path, source: str, session: str, *, from_start: bool) -> None: ...

    def drop(self, source: str, session: str) -> None:
        """Keep nothing of a session."""

    def flush(self) -> None:
        """Write what waits to be kept."""


class Ingest:
    """Reads the transcripts of some sources into an archive, for as long as it holds the writer."""

    def __init__(
        self,
        writer: Writer,
        sources: Sequence[Source],
        roots_of: RootsOf,
        *,
        home: Path,
        redact: Callable[[Any], Any] | None = None,
        keep: Keep | None = None,
    ) -> None:
        self._writer = writer
        self._sources = sources
        self._roots_of = roots_of
        self._redact = redact
        self._keep = keep
        self._known = KnownFiles(writer)
        self._families = Families(self._known, writer.files)
        # The sessions that were read too early, with the size of the transcript that showed it, by its path.
        self._again: dict[str, tuple[int, set[str]]] = {}
        self._assembly = Assembly(writer)
        self._projects = Projects(writer, home)
        self._plain: PlainRecords = {}
        self._files: list[FileRow] = []
        self._unreadable = 0
        # The stores that this pass has listed, by path.
        self._listed: dict[str, Listed] = {}

    def roots(self) -> list[Path]:
        """The folders to watch."""
        return sorted({root for source in self._sources for root in self._roots_of(source)})

    def present(self) -> Iterator[tuple[str, str, str]]:
        """Path, source and session of the transcripts that were read and are still there."""
        return ((row.path, row.source, row.session) for row in self._known.values() if row.session and not row.missing)

    def repeats_forgotten(self, path: str) -> bool:
        """True if a transcript that was read repeats something that was forgotten."""
        return bool(self._writer.forgotten([*repeated(self._known.with_state(self._known[path]))]))

    def forget_requested(self) -> None:
        """Forget the sessions that any process has requested to be forgotten."""
        if self._writer.sync_state().forgetting:
            self._writer.recover()
            self._known = KnownFiles(self._writer)
            self._families = Families(self._known, self._writer.files)

    def sync(
        self, *, progress: Callable[[SyncProgress], None] | None = None, deadline: float | None = None
    ) -> SyncReport:
        """Read everything that is new. Past the deadline (`time.monotonic()`) the rest is left for the next time."""
        self.forget_requested()
        state = self._writer.sync_state()
        state.started_at, state.finished_at, state.files_done = _now_ms(), None, 0
        # A new archive gets the projects with the sessions.
        state.has_projects = state.has_projects or not self._writer.sessions(SessionsRequest(empty=True, limit=1))
        changes, folders = self._look()
        state.files_total = len(changes)
        if changes:
            self._writer.write(Batch(sync=state))
        report = self._read(changes, progress, deadline, state)
        if not report.skipped:
            if not state.has_projects:
                self._writer.write(self._projects.of_folders(self._writer.sessions(SessionsRequest(empty=True))))
                state.has_projects = True
            state.files_done, state.finished_at = state.files_total, _now_ms()
            state.first_finished_at = state.first_finished_at or state.finished_at
            changed = folders != [*self._writer.sync_state(folders=True).folders]
            self._writer.write(Batch(sync=state, folders=folders if changed else None))
        return report

    def _look(self) -> tuple[list[Changed], list[FolderRow]]:
        """The transcripts to read, and the folders that were searched, in order."""
        names = {source.name for source in self._sources}
        survey = Survey({row.path: row for row in self._writer.files(_STAMPS) if row.source in names})
        changes: list[Changed] = []
        for source in self._sources:
            roots = self._roots_of(source)
            if not roots:  # it is not even imported
                continue
            outdated = set(source.outdated(self._read_of(source)))
            survey.look_at(outdated)
            for root in roots:
                found = list(walk(source, root, survey=survey))
                changes += self._changes(source, found, outdated, stamps=lambda: survey.read)
        self._mark_missing(survey)
        survey.folders.sort(key=lambda row: (row.path, row.source))
        return changes, survey.folders

    def sync_paths(self, paths: Iterable[Path], *, deadline: float | None = None) -> SyncReport:
        """Read what is new in these files, and in these folders; other paths among them are ignored."""
        self.forget_requested()
        paths = list(paths)
        changes = []
        for source in self._sources:
            # By its name alone a file may look like several sources' own.
            roots = self._roots_of(source)
            own = [path for path in paths if any(path.is_relative_to(root) for root in roots)]
            changes += self._changes(source, named(source, own))
        return self._read(changes, deadline=deadline)

    def _read_of(self, source: Source) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        for row in self._writer.files(FilesRequest(source=source.name)):
            if row.session and row.state is not None:
                yield row.path, row.session, row.state

    def _changes(
        self,
        source: Source,
        found: Iterable[Seen],
        outdated: Container[str] = (),
        stamps: Callable[[], Mapping[str, FileRow]] | None = None,
    ) -> list[Changed]:
        def stamps_of_source() -> Mapping[str, FileRow]:
            return {row.path: row for row in self._writer.files(FilesRequest(stamps=True, source=source.name))}

        changes = []
        for change in changed_files(source, found, self._known, outdated, stamps or stamps_of_source):
            if isinstance(change, FileRow):
                self._unreadable += change.size < 0
                self._note(self._known.with_state(change))
            elif isinstance(change, Listed):
                self._listed[change.row.path] = change
            elif self._is_forgotten(change.transcript):
                self._note(nothing_to_read(change))
            else:
                changes.append(change)
        return changes

    def _is_forgotten(self, transcript: Transcript) -> bool:
        """True for the transcript of a forgotten session, or of one that such a session started."""
        names = (name for name in (transcript.session, transcript.parent) if name)
        return bool(self._writer.forgotten([session_mark(f"{transcript.source}/{name}") for name in names]))

    def _mark_missing(self, survey: Survey) -> None:
        """Mark files that are gone; what was read of them stays. Sources that were not looked for are left alone."""
        before, present = survey.read.keys(), survey.present
        for listed in self._listed.values():
            present |= listed.sessions
        changed = []
        for path in before ^ present:
            store, is_missing = store_of(path), path not in present
            if is_missing and store in present and store not in self._listed:
                continue  # the store has not changed
            row = self._known.get(path)
            if row is not None and row.missing != is_missing:
                row.missing = is_missing
                changed.append(row)
        self._files += self._known.with_states(changed)

    def _read(
        self,
        changes: list[Changed],
        progress: Callable[[SyncProgress], None] | None = None,
        deadline: float | None = None,
        state: SyncState | None = None,
    ) -> SyncReport:
        run = Pass(changes, progress, deadline, state)
        run.report.errors, self._unreadable = self._unreadable, 0
        self._families.open(len(changes))
        with self._writer.bulk(run.bytes_total):
            ordered = deque(family_order(changes))
            changes.clear()  # each is let go when it is read: there may be very many
            self._read_files(ordered, run)
            for _ in range(_MAX_ROUNDS):
                if not self._again or run.is_over:
                    break
                again = self._take_back()
                run.extend(again)
                self._read_files(deque(family_order(again, strictly=True)), run)
            self._settle(run)
            self._writer.flush()
            run.report.seconds = time.monotonic() - run.started
        return run.report

    def _read_files(self, changes: deque[Changed], run: Pass) -> None:
        while changes:
            if run.is_over or not self._read_file(changes[0], run):
                run.report.skipped += len(changes)
                break
            changes.popleft()
        self._commit(run)
        self._assembly.forget()

    def _take_back(self) -> list[Changed]:
        """Remove the sessions that were read too early, and give their transcripts, to be read from the start.

        A session one of whose transcripts is gone, cut or rewritten stays as it is: nothing that was read is lost.
        """
        keys = sorted({key for _, found in self._again.values() for key in found if self._can_be_read(key)})
        rows = [row for key in keys for row in self._families.files(key)]
        self._writer.write(Batch(removed=[each for key in keys for each in (key, *self._described_by(key))]))
        places = [(row.source, store_of(row.path) if self._families.is_stored(row) else row.path) for row in rows]
        for row in rows:
            self._known.drop(row)
            self._families.drop(row)
        for path, (size, _) in self._again.items():
            if path in self._known:
                self._note(settled(self._known.with_state(self._known[path]), size))
        self._again.clear()
        changes: list[Changed] = []
        for source in self._sources:
            paths = [Path(place) for name, place in places if name == source.name]
            changes += self._changes(source, named(source, paths))
        return changes

    def _settle(self, run: Pass) -> None:
        """Note that nothing is left to do. Past the deadline, the rows of the files go on naming what is left."""
        if self._again and not run.is_over:
            for path, (size, _) in self._again.items():
                self._note(settled(self._known.with_state(self._known[path]), size))
            self._commit(run)
        self._again.clear()
        if not run.report.skipped:
            for listed in self._listed.values():
                self._note(listed.row)
            self._commit(run)
        self._listed.clear()

    def _can_be_read(self, key: str) -> bool:
        files = self._families.files(key)
        return bool(files) and all(map(self._families.has_all, files))

    def _described_by(self, key: str) -> Iterator[str]:
        """The sessions without a transcript of their own that are part of the transcript of this session."""
        for child in self._writer.sessions(SessionsRequest(parent=key, empty=True)):
            if not self._families.files(child.key):
                yield child.key
                yield from self._described_by(child.key)

    def _read_file(self, change: Changed, run: Pass) -> bool:
        """False if the time was up before its end: it is read on from there."""
        run.start(change)
        if self._is_kept_in_store(change):
            self._note(nothing_to_read(change))
            run.finish(change, 0)
            return True
        if change.before is not None:
            change.before = self._known.with_state(change.before)
        source = change.source.name
        reading = Reading(change, lambda session: self._assembly.turn_keys(f"{source}/{session}"), self._plain)
        watch = Watch(self._families, self._assembly, change)
        for number, items in enumerate(reading.steps()):
            if number == 0:
                self._assembly.begin(
                    change.transcript, reading.standing.turn, from_start=reading.from_start, alone=watch.is_alone
                )
            added = self._add(change, items, again=reading.offset <= reading.known_until)
            watch.see(items, added)
            reading.standing = self._standing(watch, reading)
            if self._full:
                self._commit(run, reading)
                if run.is_over:
                    return False
        watch.end()
        reading.standing = self._standing(watch, reading)
        row = reading.checkpoint(finished=True)
        if reading.from_start:
            self._families.read_whole.add(row.path)
        if watch.again:
            self._again[row.path] = (change.size, watch.again)
        if reading.interrupted and change.store is not None:
            self._listed.pop(stored_path(change.store), None)
        if self._keep is not None and change.store is None and change.path.exists():
            self._keep_bytes(self._keep, change, row, from_start=reading.from_start)
        self._note(row)
        run.finish(change, reading.errors)
        if len(self._files) >= _FILES_PER_COMMIT or self._full:
            self._commit(run)
            self._assembly.forget()
        return True

    def _is_kept_in_store(self, change: Changed) -> bool:
        """True for a file with a session that is read from a store, which took the file in or writes it beside: it has
        the same messages without their ids."""
        if change.store is not None:
            return False
        rows = self._families.files(f"{change.source.name}/{change.transcript.session}")
        return any(self._families.is_stored(row) and self._families.has_events(row) and not row.missing for row in rows)

    def _standing(self, watch: Watch, reading: Reading) -> Standing:
        return watch.standing(self._assembly.position(reading.change.transcript), reading.had)

    def _keep_bytes(self, keep: Keep, change: Changed, row: FileRow, *, from_start: bool) -> None:
        """Keep the bytes of a transcript, unless they repeat what was forgotten."""
        if self._writer.forgotten([*repeated(row)]):
            keep.drop(change.source.name, change.transcript.session)
        else:
            keep.keep(change.path, change.source.name, change.transcript.session, from_start=from_start)

    def _add(self, change: Changed, items: list[Item], *, again: bool) -> Added:
        if self._redact:
            for item in items:
                if isinstance(item, Event):
                    item.text = self._redact(item.text)
                    item.user_text = self._redact(item.user_text)
                    item.arguments = self._redact(item.arguments)
                elif isinstance(item, About):
                    item.title, item.summary = self._redact(item.title), self._redact(item.summary)
        return self._assembly.add(change.transcript, items, change.mtime_ns // 1_000_000, again=again)

    @property
    def _full(self) -> bool:
        return self._assembly.event_count >= _EVENTS_PER_COMMIT or self._assembly.text_chars >= _CHARS_PER_COMMIT

    def _note(self, row: FileRow) -> None:
        self._known.note(row)
        self._families.note(row)
        self._files.append(row)

    def _commit(self, run: Pass, reading: Reading | None = None) -> None:
        """Write what was assembled, with how far every file was read; `reading` is the one that is not done yet."""
        if reading is not None:
            self._note(reading.checkpoint())
        batch = self._assembly.take()
        self._projects.complete(batch)
        batch.files, self._files = self._files, []
        if batch.sessions or batch.events or batch.files or batch.usage:
            batch.sync = run.state
            if self._keep is not None:
                # Before the rows of the files: after a crash in between, they are read and kept once more.
                self._keep.flush()
            self._writer.write(batch)
            sessions = {row.key for row in batch.sessions if row.event_count}
            run.wrote(len(batch.events), sessions, reading.offset if reading else 0)
        if time.monotonic() > run.next_flush:
            self._writer.flush(wait=False)
            run.flushed()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
