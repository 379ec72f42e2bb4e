"""The index beside the session files: lists and pages without reading the files. Rebuilt from them when it is lost.

Entries are placed on branches: an entry continues its parent's branch when it is the first to, else it starts another.
So the path from a root to any entry is a few runs of (branch, depth), and a page of it is a range of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from .database import Database
from .events import tokens_of
from .functions import Order
from .journal import Position, now
from .records import Branch, EntryLine, Place, read_place, signed
from .types import SessionMeta, decode_meta

_VERSION = 3
_CACHED_SESSIONS = 4096
_RARE = 1000
_MAX_TOKENS = 32
DeletedFrom = Literal["log", "archive"]
DELETED_FROM: tuple[DeletedFrom, ...] = ("log", "archive")
_encode = msgspec.json.encode

_SCHEMA = """
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE session (
    key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, meta BLOB, created INTEGER, updated INTEGER, leaf TEXT,
    size INTEGER NOT NULL DEFAULT 0, digest BLOB NOT NULL DEFAULT x'', stamp TEXT, bad_lines INTEGER NOT NULL DEFAULT 0,
    current INTEGER NOT NULL DEFAULT 0, branches INTEGER NOT NULL DEFAULT 0, orphans INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX session_created ON session (created, id) WHERE meta IS NOT NULL;
CREATE INDEX session_updated ON session (updated, id) WHERE meta IS NOT NULL;
CREATE TABLE tag (token INTEGER, session INTEGER, PRIMARY KEY (token, session)) WITHOUT ROWID;
CREATE TABLE branch (
    session INTEGER, number INTEGER, parent INTEGER, depth INTEGER, PRIMARY KEY (session, number)
) WITHOUT ROWID;
CREATE TABLE entry (
    session INTEGER, branch INTEGER, depth INTEGER, id TEXT NOT NULL, parent TEXT, role INTEGER NOT NULL,
    revision INTEGER NOT NULL, offset INTEGER NOT NULL, length INTEGER NOT NULL, PRIMARY KEY (session, branch, depth)
) WITHOUT ROWID;
CREATE UNIQUE INDEX entry_id ON entry (session, id);
CREATE TABLE garbage (key INTEGER PRIMARY KEY);
"""
_PLACE = "id, parent, role, revision, offset, length, branch, depth"
_ORDERS: Mapping[Order, tuple[str, str, str]] = {
    "created_asc": ("created", ">", "ASC"),
    "created_desc": ("created", "<", "DESC"),
    "updated_desc": ("updated", "<", "DESC"),
}


class Session(Struct):
    """One session file as the index knows it."""

    key: int
    id: str
    meta: SessionMeta | None = None
    leaf: str | None = None
    size: int = 0
    digest: bytes = b""
    """The `chain` of its lines: the file is unchanged if it has the same."""
    stamp: str | None = None
    """Size, inode and times of the file after the last write of this store."""
    bad_lines: int = 0
    current: int = 0
    """The bytes of the file that are not superseded."""
    branches: int = 0
    orphans: int = 0
    """The number of entries without their parent (yet). They are read as roots."""
    tip: Place | None = None
    """The latest entry: the end of its branch, and mostly the parent of the next entry."""


class Run(Struct, frozen=True):
    """A stretch of a path: one branch, from one depth to another."""

    branch: int
    first: int
    last: int


class Index:
    def __init__(self, path: Path) -> None:
        self.database = Database(path, _SCHEMA, _VERSION)
        self._query = self.database.query
        self._write = self.database.write
        self._cache: dict[str, Session] = {}
        self._touched: dict[int, Session] = {}
        self._last_key: int = self._query(
            "SELECT max((SELECT coalesce(max(key), 0) FROM session), (SELECT coalesce(max(key), 0) FROM garbage))"
        ).fetchone()[0]
        while row := self._query("SELECT session FROM entry WHERE session > ?", self._last_key).fetchone():
            self._last_key = row[0]
            self._write("INSERT INTO garbage VALUES (?)", self._last_key)

    # --- what is there

    def session(self, session_id: str) -> Session | None:
        session = self._cache.get(session_id)
        if session is None:
            row = self._query(
                "SELECT key, id, meta, leaf, size, digest, stamp, bad_lines, current, branches, orphans "
                "FROM session WHERE id = ?",
                session_id,
            ).fetchone()
            if row is None:
                return None
            session = Session(*row)
            session.meta = decode_meta(row[2]) if row[2] is not None else None
            if len(self._cache) >= _CACHED_SESSIONS:
                self._forget_some()
            self._cache[session_id] = session
        return session

    def _forget_some(self) -> None:
        for session_id in list(self._cache)[: _CACHED_SESSIONS // 4]:
            if self._cache[session_id].key not in self._touched:
                del self._cache[session_id]

    def files(self) -> Iterator[tuple[str, str | None, int]]:
        """Session id, stamp and unreadable lines of every file as it was indexed."""
        return self._query("SELECT id, stamp, bad_lines FROM session")

    def find(self, session: Session, entry_id: str) -> Place | None:
        if session.tip is not None and session.tip.id == entry_id:
            return session.tip
        row = self._query(f"SELECT {_PLACE} FROM entry WHERE session = ? AND id = ?", session.key, entry_id).fetchone()
        return read_place(row) if row else None

    def path(self, session: Session, end: Place) -> list[Run]:
        """The runs from the root to an entry."""
        runs = [Run(end.branch, 0, end.depth)]
        while row := self._query(
            "SELECT parent, depth FROM branch WHERE session = ? AND number = ?", session.key, runs[-1].branch
        ).fetchone():
            parent, depth = row
            if parent is None:
                break
            runs[-1] = Run(runs[-1].branch, depth + 1, runs[-1].last)
            runs.append(Run(parent, 0, depth))
        return runs[::-1]

    def places(self, session: Session, runs: Iterable[Run], roles: Sequence[int], limit: int = -1) -> list[Place]:
        """The entries of a path with one of the roles (as codes), root first."""
        codes = ", ".join(map(str, roles)) or "NULL"
        found: list[Place] = []
        for run in runs:
            if limit >= 0 and len(found) >= limit:
                break
            rows = self._query(
                f"SELECT {_PLACE} FROM entry WHERE session = ? AND branch = ? AND depth BETWEEN ? AND ? "
                f"AND role IN ({codes}) ORDER BY depth LIMIT ?",
                session.key,
                run.branch,
                run.first,
                run.last,
                limit - len(found) if limit >= 0 else -1,
            )
            found += map(read_place, rows)
        return found

    def all_places(self, session: Session) -> list[Place]:
        """Every entry, parents before their children (a branch is numbered after the one it leaves)."""
        rows = self._query(f"SELECT {_PLACE} FROM entry WHERE session = ? ORDER BY branch, depth", session.key)
        return [read_place(row) for row in rows]

    def ordered(
        self, order: Order, after: tuple[int, str] | None, tokens: Sequence[int]
    ) -> Iterator[tuple[int, SessionMeta]]:
        """Sort key and meta of the sessions after a place in an order that have all tokens, lazily.

        Only the first tokens are used: SQLite limits the length of a condition.
        """
        tokens = tokens[:_MAX_TOKENS]
        column, compare, direction = _ORDERS[order]
        where, values = ["meta IS NOT NULL"], list[Any]()
        if after is not None:
            where.append(f"({column}, id) {compare} (?, ?)")
            values += after
        rare = self._rare(tokens)
        if rare is not None:
            where.append("key IN (SELECT session FROM tag WHERE token = ?)")
            values.append(rare)
        for token in tokens:
            if token != rare:
                where.append("EXISTS (SELECT 1 FROM tag WHERE token = ? AND session = key)")
                values.append(token)
        # The unary plus keeps SQLite from walking the whole order when few sessions can match.
        sort = f"+{column}" if rare is not None else column
        rows = self._query(
            f"SELECT {column}, meta FROM session WHERE {' AND '.join(where)} "
            f"ORDER BY {sort} {direction}, id {direction}",
            *values,
        )
        return ((key, decode_meta(meta)) for key, meta in rows)

    def _rare(self, tokens: Sequence[int]) -> int | None:
        for token in tokens:
            query = "SELECT count(*) FROM (SELECT 1 FROM tag WHERE token = ? LIMIT ?)"
            if self._query(query, token, _RARE + 1).fetchone()[0] <= _RARE:
                return token
        return None

    def metas(self) -> list[SessionMeta]:
        rows = self._query("SELECT meta FROM session WHERE meta IS NOT NULL ORDER BY created, id")
        return [decode_meta(row[0]) for row in rows]

    def count(self) -> int:
        return int(self._query("SELECT count(*) FROM session WHERE meta IS NOT NULL").fetchone()[0])

    # --- what changes

    def new_key(self) -> int:
        """A key under which entries can be prepared before a session has it."""
        self._last_key += 1
        return self._last_key

    def add_session(self, session_id: str) -> Session:
        session = Session(self.new_key(), session_id)
        self._write("INSERT INTO session (key, id) VALUES (?, ?)", session.key, session_id)
        self._cache[session_id] = session
        return session

    def place(self, session: Session, line: EntryLine) -> Place:
        """Place a new entry after its parent."""
        parent = self.find(session, line.parent) if line.parent is not None else None
        if parent is not None and (parent is session.tip or not self._continued(session, parent)):
            branch, depth = parent.branch, parent.depth + 1
        else:
            branch, depth = session.branches, parent.depth + 1 if parent else 0
            session.branches += 1
            session.orphans += parent is None and line.parent is not None
            leaves = (parent.branch, parent.depth) if parent else (None, None)
            self._write("INSERT INTO branch VALUES (?, ?, ?, ?)", session.key, branch, *leaves)
        place = Place(line.id, line.parent, line.role, line.revision, line.offset, line.length, branch, depth)
        self._write(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            session.key, branch, depth, line.id, line.parent, line.role, signed(line.revision), line.offset,
            line.length,
        )  # fmt: skip
        session.current += line.length
        session.tip = place
        return place

    def _continued(self, session: Session, place: Place) -> bool:
        row = self._query(
            "SELECT 1 FROM entry WHERE session = ? AND branch = ? AND depth = ?",
            session.key,
            place.branch,
            place.depth + 1,
        ).fetchone()
        return row is not None

    def move(self, session: Session, place: Place, line: EntryLine) -> None:
        """Set the new location of an entry that was rewritten."""
        self._write(
            "UPDATE entry SET role = ?, revision = ?, offset = ?, length = ? "
            "WHERE session = ? AND branch = ? AND depth = ?",
            line.role,
            signed(line.revision),
            line.offset,
            line.length,
            session.key,
            place.branch,
            place.depth,
        )
        session.current += line.length - place.length
        place.role, place.revision, place.offset, place.length = line.role, line.revision, line.offset, line.length

    def save(self, session: Session, meta: SessionMeta | None) -> None:
        """Write a session's row, with a new meta (the same object when it did not change)."""
        before, session.meta = session.meta, meta
        if meta is not before:
            self._save_tags(session.key, before, meta)
        self._write(
            "UPDATE session SET meta = ?, created = ?, updated = ?, leaf = ?, size = ?, digest = ?, stamp = ?, "
            "bad_lines = ?, current = ?, branches = ?, orphans = ? WHERE key = ?",
            _encode(meta) if meta else None, meta and meta.created_at, meta and meta.updated_at, session.leaf,
            session.size, session.digest, session.stamp, session.bad_lines, session.current, session.branches,
            session.orphans, session.key, key=("session", session.key),
        )  # fmt: skip
        self._touched[session.key] = session

    def _save_tags(self, key: int, before: SessionMeta | None, after: SessionMeta | None) -> None:
        if before and after and before.status == after.status and before.metadata is after.metadata:
            return
        old = set(tokens_of(before.status, before.metadata)) if before else set()
        new = set(tokens_of(after.status, after.metadata)) if after else set()
        for token in old - new:
            self._write("DELETE FROM tag WHERE token = ? AND session = ?", token, key)
        for token in new - old:
            self._write("INSERT OR IGNORE INTO tag VALUES (?, ?)", token, key)

    def add_entries(self, key: int, places: Iterable[Place]) -> None:
        """Entries whose places are known, under a key."""
        self.database.write_many(
            "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    key, place.branch, place.depth, place.id, place.parent, place.role, signed(place.revision),
                    place.offset, place.length,
                )
                for place in places
            ],
        )  # fmt: skip

    def add_branches(self, key: int, branches: Iterable[Branch]) -> None:
        rows = [(key, branch.number, branch.parent, branch.depth) for branch in branches]
        self.database.write_many("INSERT INTO branch VALUES (?, ?, ?, ?)", rows)

    def branches(self, session: Session) -> list[Branch]:
        rows = self._query("SELECT number, parent, depth FROM branch WHERE session = ?", session.key)
        return [Branch(*row) for row in rows]

    def rekey(self, session: Session, key: int) -> None:
        """Replace the entries of a session by those prepared under a key."""
        self._write("INSERT INTO garbage VALUES (?)", session.key)
        self._write("DELETE FROM branch WHERE session = ?", session.key)
        self._save_tags(session.key, session.meta, None)
        self._save_tags(key, None, session.meta)
        self._write("UPDATE session SET key = ? WHERE key = ?", key, session.key)
        self._touched.pop(session.key, None)
        session.key, session.tip = key, None

    def remove(self, session: Session) -> None:
        self._write("INSERT INTO garbage VALUES (?)", session.key)
        self._write("DELETE FROM branch WHERE session = ?", session.key)
        self._save_tags(session.key, session.meta, None)
        self._write("DELETE FROM session WHERE key = ?", session.key)
        self._cache.pop(session.id, None)
        self._touched.pop(session.key, None)

    def collect(self, limit: int = 2000) -> bool:
        """Delete some entries of deleted sessions; False when none are left."""
        row = self._query("SELECT key FROM garbage").fetchone()
        if row is None:
            return False
        (key,) = row
        self._write(
            "DELETE FROM entry WHERE session = ? AND (branch, depth) IN "
            "(SELECT branch, depth FROM entry WHERE session = ? LIMIT ?)",
            key,
            key,
            limit,
        )
        if self._query("SELECT 1 FROM entry WHERE session = ?", key).fetchone() is None:
            self._write("DELETE FROM garbage WHERE key = ?", key)
        return True

    def state(self, name: str) -> str | None:
        row = self._query("SELECT value FROM state WHERE name = ?", name).fetchone()
        return row[0] if row else None

    def set_state(self, name: str, value: str | None) -> None:
        self._write("INSERT OR REPLACE INTO state VALUES (?, ?)", name, value, key=("state", name))

    def note_deleted(self, session_id: str, number: int) -> None:
        """Remember a deletion, by the number of its event, until each of `DELETED_FROM` is `set_deleted`."""
        for place in DELETED_FROM:
            self._write("INSERT OR REPLACE INTO state VALUES (?, ?)", f"{place} {session_id}", str(number))

    def set_deleted(self, place: DeletedFrom, session_id: str, number: int) -> None:
        """Nothing of the session is left there. A later deletion of another session under the same id stays noted."""
        self._write("DELETE FROM state WHERE name = ? AND value = ?", f"{place} {session_id}", str(number))

    def deleted(self, place: DeletedFrom) -> dict[str, int]:
        """The sessions that are still to be deleted from a place, with the numbers of their deletions."""
        rows = self._query("SELECT name, value FROM state WHERE name > ? AND name < ?", f"{place} ", f"{place}!")
        return {name.partition(" ")[2]: int(number) for name, number in rows}

    def wipe(self, deletions: Iterable[str]) -> bool:
        """Leave nothing of deleted sessions in the file; False when that has to be tried again."""
        gone = [session_id for session_id in deletions if self.session(session_id) is None]
        return self.database.wipe([b'{"session_id":%b,"title":' % _encode(session_id) for session_id in gone])

    def checkpoint(self) -> Position | None:
        found = self.state("checkpoint")
        return Position(*map(int, found.split())) if found else None

    def set_checkpoint(self, position: Position) -> None:
        self.set_state("checkpoint", f"{position.segment} {position.offset}")
        self.set_state("checkpoint_time", str(now()))

    def commit(self) -> bool:
        """Commit the changes; False when that failed. They are kept."""
        done = self.database.commit()
        if done:
            self._touched.clear()
        return done
