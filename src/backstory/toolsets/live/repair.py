"""Reading session files into the index, and repairing damaged ones.

A damaged file gets its lost entries back from the journal, and an entry whose parent is lost follows the entry before
the gap. Where file and journal have the same revision of an entry, the version of the file counts: a person may have
corrected it there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import BinaryIO

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .files import Files, stamp_of
from .index import Index, Session
from .journal import Journal
from .records import CUSTOM_ENTRY, Scan, head_of, lay_out, scan, write_lines
from .types import SessionMeta, decode_meta

_NEW_FILE = ("deleted", "rewritten")
"""Changes that replace the whole session: earlier ones do not count."""


class Held(Struct):
    """The latest state of a session as far as the journal goes back."""

    entries: dict[str, bytes] = {}
    leaf: str | UnsetType | None = UNSET
    meta: SessionMeta | None = None


class Additions(Struct):
    """Lines to append to a damaged file."""

    data: bytes = b""
    restored: int = 0
    linked: int = 0
    """Entries whose parent is lost: they follow the entry before the gap now."""


def held_by(journal: Journal, session_ids: Iterable[str]) -> dict[str, Held]:
    held = {session_id: Held() for session_id in session_ids}
    for change in journal.changes(None):
        if change.session_id not in held:
            continue
        if change.cause in _NEW_FILE or change.cause == "created":
            held[change.session_id] = Held()
        state = held[change.session_id]
        with suppress(msgspec.MsgspecError):  # a damaged line
            for entry in change.entries:
                state.entries[head_of(entry).id] = bytes(entry)
            if change.leaf is not UNSET:
                state.leaf = change.leaf
            if change.meta is not UNSET:
                state.meta = decode_meta(change.meta)
    return held


def additions(found: Scan, held: Held, file: BinaryIO, indexed: SessionMeta | None) -> Additions:
    """The lines that a file lacks. `indexed` is the meta in the index, for a file without one."""
    lost = _lost_entries(found, held)
    restored = len(lost)
    lost |= _relinked(found, held, lost, file)
    leaf, meta = _leaf(found, held), _meta(found, held, lost, indexed)
    changed_leaf = UNSET if leaf == found.leaf or (leaf is None and found.leaf is UNSET) else leaf
    raw = None if meta is None or meta == found.meta else msgspec.json.encode(meta)
    if not lost and changed_leaf is UNSET and raw is None:
        return Additions()
    return Additions(write_lines(lost.values(), changed_leaf, raw)[0], restored, len(lost) - restored)


def _lost_entries(found: Scan, held: Held) -> dict[str, bytes]:
    """Entries that the file lacks, or has in an older revision than the journal."""
    return {
        entry_id: raw
        for entry_id, raw in held.entries.items()
        if (line := found.entries.get(entry_id)) is None or line.revision < (head_of(raw).revision or 0)
    }


def _relinked(found: Scan, held: Held, lost: dict[str, bytes], file: BinaryIO) -> dict[str, bytes]:
    """Entries whose parent is lost for good, with the last entry before the gap as their parent."""
    linked: dict[str, bytes] = {}
    for entry_id, line in found.entries.items():
        if line.parent is None or line.parent in found.entries or line.parent in held.entries or entry_id in lost:
            continue
        if (before := found.behind_damage.get(entry_id)) is not None:
            linked[entry_id] = _with_parent(os.pread(file.fileno(), line.length, line.offset), before)
    before = next((entry_id for entry_id in reversed(found.entries) if entry_id not in held.entries), None)
    for entry_id, raw in lost.items():
        parent = head_of(raw).parent_id
        if parent is not None and before is not None and parent not in found.entries and parent not in held.entries:
            linked[entry_id] = _with_parent(raw, before)
    return linked


def _with_parent(raw: bytes, parent: str) -> bytes:
    entry = msgspec.json.decode(raw)
    entry["parent_id"] = parent
    return msgspec.json.encode(entry)


def _leaf(found: Scan, held: Held) -> str | None:
    """The leaf of the journal, unless the file has later entries that the journal does not."""
    leaf = found.leaf if held.leaf is UNSET or _is_added(found, held) else held.leaf
    if leaf is UNSET or leaf is None:
        return None
    return leaf if leaf in found.entries or leaf in held.entries else found.last


def _is_added(found: Scan, held: Held) -> bool:
    if not isinstance(found.leaf, str) or found.leaf in held.entries or found.leaf not in found.entries:
        return False
    known = [line.offset for entry_id, line in found.entries.items() if entry_id in held.entries]
    return bool(known) and max(known) < found.entries[found.leaf].offset


def _meta(found: Scan, held: Held, lost: dict[str, bytes], indexed: SessionMeta | None) -> SessionMeta | None:
    """The latest known meta, with the actual number of messages."""
    known = [meta for meta in (found.meta, held.meta, indexed) if meta is not None]
    if not known:
        return None
    latest = max(known, key=lambda meta: meta.updated_at)  # of equal ones the first
    messages = {entry_id for entry_id, line in found.entries.items() if line.role != CUSTOM_ENTRY}
    messages |= {entry_id for entry_id in lost if head_of(lost[entry_id]).kind == "message"}
    return msgspec.structs.replace(latest, message_count=len(messages))


def read_file(
    index: Index,
    files: Files,
    session_id: str,
    known: Session | None,
    *,
    from_start: bool = False,
    only_sound: bool = False,
) -> bool:
    """Index one file, from where the index left off or from its beginning, and cut off an unfinished write.

    False when only a file without damage should be read, and this is none: then nothing has happened.
    """
    start, digest = (0, b"") if from_start or known is None else (known.size, known.digest)
    path = files.path(session_id)
    with path.open("r+b") as file:
        found = scan(file, start, digest, known.size if known else 0)
        if only_sound and found.bad_lines:
            return False
        if found.end == 0:
            file.seek(0)
            if not b'{"type":'.startswith(file.read(8)):
                raise OSError("it holds no session")
            path.unlink()  # the first write of a session was cut short: it was never created
            if known:
                index.remove(known)
            return True
        finish(file, found)
    session = known or index.add_session(session_id)
    if known and start == 0:
        index.rekey(session, index.new_key())
    _add_to_index(index, session, found, from_start=start == 0)
    if session.orphans and start:
        return read_file(index, files, session_id, session, from_start=True)
    session.size, session.digest = found.end + found.unterminated, found.digest
    session.bad_lines = found.bad_lines + (session.bad_lines if start else 0)
    meta = found.meta or (None if start == 0 else session.meta)
    if meta is not None:
        meta.session_id = session_id
    session.stamp = stamp_of(path.stat())
    index.save(session, meta)
    return True


def finish(file: BinaryIO, found: Scan) -> None:
    """Cut off an unfinished write, and end the last line."""
    if file.seek(0, os.SEEK_END) > found.end:
        file.truncate(found.end)
    file.seek(found.end)
    if found.unterminated:
        file.write(b"\n")


def _add_to_index(index: Index, session: Session, found: Scan, *, from_start: bool) -> None:
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
            session.orphans += 1  # its parent changed: the branches have to be laid out again
