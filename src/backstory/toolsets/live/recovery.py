"""Bringing folder, journal and index together when a store is opened: after a crash, and after others changed files.

First the journal is carried out where files miss its changes, then every file that is not as the index knows it is
read: from where the index left off when it only grew, else from its beginning. A write that was cut short is cut off.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from msgspec import UNSET

from ...livefiles import SUFFIX, session_of
from .branches import lay_out
from .files import Files
from .index import Index, Session
from .journal import Change, Journal
from .records import Scan, scan

__all__ = ["read_file", "reconcile", "redo"]

Problems = dict[str, str]
"""What could not be used, by file name."""
_COMMIT_EVERY = 10_000


def redo(journal: Journal, index: Index, files: Files, scratch: Path, problems: Problems) -> None:
    """Write the changes since the last checkpoint to the files that miss them."""
    pending: dict[str, list[Change]] = {}
    for change in journal.changes(index.checkpoint()):
        if change.cause == "published":
            continue
        if change.at is not UNSET:
            pending.setdefault(change.session_id, []).append(change)
            continue
        pending.pop(change.session_id, None)
        if change.cause == "deleted":
            files.remove(change.session_id)
        elif change.file is not None and (scratch / change.file).exists():
            files.replace(change.session_id, scratch / change.file)
    for session_id, changes in pending.items():
        try:
            _redo_session(files, session_id, changes)
        except (OSError, ValueError) as error:
            problems[files.path(session_id).name] = f"could not be completed after a crash: {error}"
    for leftover in scratch.iterdir():
        leftover.unlink()


def _redo_session(files: Files, session_id: str, changes: Iterable[Change]) -> None:
    for change in changes:
        assert change.at is not UNSET
        data = change.lines()[0]
        stat = files.stat(session_id)
        size = stat.st_size if stat else 0
        if size >= change.at + len(data):
            continue
        if size < change.at:
            raise ValueError("it is shorter than it was; what followed is in the journal only")
        there = files.read(session_id, change.at, size - change.at) if size > change.at else b""
        if not data.startswith(there):
            raise ValueError("its end is not what was written")
        if stat is not None and size == 0:
            files.remove(session_id)
        files.append(session_id, data[len(there) :], size)


def reconcile(index: Index, files: Files, problems: Problems) -> None:
    """Make the index say what the files say."""
    known = {session_id: (size, inode, mtime) for session_id, size, inode, mtime in index.files()}
    with os.scandir(files.folder) as found:
        for item in found:
            if not item.name.endswith(SUFFIX) or not item.is_file():
                continue
            session_id = session_of(item.name)
            if session_id is None:
                printable = os.fsencode(item.name).decode("utf-8", "replace")
                problems[printable] = "is not the name of a session's file"
                continue
            stat = item.stat()
            before = known.pop(session_id, None)
            if before == (stat.st_size, stat.st_ino, stat.st_mtime_ns):
                continue
            grown = before is not None and before[1] == stat.st_ino and 0 < before[0] < stat.st_size
            session = index.session(session_id) if before else None
            try:
                read_file(index, files, session_id, session, problems, from_start=not grown)
            except OSError as error:
                problems[item.name] = f"cannot be read: {error.strerror or error}"
                if session:
                    index.remove(session)
            if index.database.uncommitted > _COMMIT_EVERY:
                index.commit()
    for session_id in known:
        if session := index.session(session_id):
            index.remove(session)
    index.commit()


def read_file(
    index: Index,
    files: Files,
    session_id: str,
    known: Session | None,
    problems: Problems | None = None,
    *,
    from_start: bool = True,
) -> None:
    """Index one file, from its beginning or from where the index left off, and cut off an unfinished write."""
    problems = {} if problems is None else problems
    start = 0 if from_start or known is None else known.size
    path = files.path(session_id)
    with path.open("r+b") as file:
        found = scan(file, start)
        if found.end == 0:
            file.seek(0)
            if not b'{"type":'.startswith(file.read(8)):
                raise OSError("it holds no session")
            path.unlink()  # a session whose very first write was cut short: it never was
            if known:
                index.remove(known)
            return
        if file.seek(0, 2) > found.end:
            file.truncate(found.end)
        if found.unterminated:
            file.seek(found.end)
            file.write(b"\n")
        size = found.end + found.unterminated
    if found.bad_lines:
        problems[path.name] = f"{found.bad_lines} lines could not be read and were skipped"
    session = known or index.add_session(session_id)
    if known and start == 0:
        index.rekey(session, index.new_key())
    _take_in(index, session, found, from_start=start == 0)
    if session.orphans and start:
        read_file(index, files, session_id, session, problems)
        return
    session.size = size
    meta = found.meta or (None if start == 0 else session.meta)
    if meta is not None:
        meta.session_id = session_id
    elif path.name not in problems:
        problems[path.name] = "has entries but no session to show them in"
    index.save(session, meta)
    stat = path.stat()
    index.stamp(session, stat.st_ino, stat.st_mtime_ns)


def _take_in(index: Index, session: Session, found: Scan, *, from_start: bool) -> None:
    if found.leaf is not UNSET:
        session.leaf = found.leaf
        session.tip = None
    elif from_start:
        session.leaf = None
    if from_start:
        layout = lay_out(found.entries)
        index.add_entries(session.key, layout.places)
        index.add_branches(session.key, layout.branches)
        session.branches, session.orphans = len(layout.branches), layout.orphans
        session.current = sum(place.length for place in layout.places)
        return
    for line in found.entries.values():
        place = index.find(session, line.id)
        if place is None:
            index.place(session, line)
        elif place.parent == line.parent:
            index.move(session, place, line)
        else:
            session.orphans += 1  # it changed its parent: its branch has to be laid out again
