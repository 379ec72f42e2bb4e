"""Writing capsules inside one transaction: time stamps, ids, versions, the word index and the change log with them."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

import msgspec
from msgspec.structs import replace

from .capsule import SECOND, Capsule
from .reader import Reader
from .search import indexed

__all__ = ["Writer"]

KEPT_VERSIONS = 20
_MILLISECOND = 1000

_COLUMNS = """id, workspace_raw, workspace_norm, name_raw, name_norm, title, capsule_chars, tokens_estimate,
    tags_json, source, run_id, phase, role, source_session, allow_thin, version, created_at, updated_us, updated_at,
    deleted_us"""
_MARKS = ", ".join("?" * len(_COLUMNS.split(",")))


class Writer(Reader):
    """Order stamps and ids only ever grow, whatever the clock does: their order is the order of the commits."""

    def __init__(self, connection: sqlite3.Connection, now_us: int) -> None:
        super().__init__(connection)
        self.now_us = now_us
        self._stamp_us: int
        self._last_id: str
        self._stamp_us, self._last_id = connection.execute("SELECT stamp_us, last_id FROM state").fetchone()
        self.changed = False

    @property
    def now(self) -> int:
        """The time of this transaction, in seconds."""
        return self.now_us // SECOND

    def create(self, capsule: Capsule) -> Capsule:
        """Store it as new, with an id and the time of now."""
        capsule_id = self.new_id()
        stamp = self._stamp_us
        return self.insert(replace(capsule, id=capsule_id, created_at=self.now, updated_us=stamp, updated_at=self.now))

    def insert(self, capsule: Capsule) -> Capsule:
        """Store it as it is."""
        cursor = self.connection.execute(f"INSERT INTO capsules ({_COLUMNS}) VALUES ({_MARKS})", _values(capsule))
        row = cursor.lastrowid
        assert row is not None
        self.connection.execute("INSERT INTO texts VALUES (?, ?)", [row, capsule.text])
        self._index(row, capsule)
        self._log(capsule.id)
        return capsule

    def change(self, old: Capsule, new: Capsule) -> Capsule:
        """Overwrite it as of now; the old version goes to the history."""
        # A whole millisecond, so that an export can carry it.
        stamp = -(-max(self.now_us, self._stamp_us + 1) // _MILLISECOND) * _MILLISECOND
        self._tick(stamp)
        return self.overwrite(old, replace(new, updated_us=stamp, updated_at=max(self.now, old.created_at)))

    def overwrite(self, old: Capsule, new: Capsule) -> Capsule:
        """Overwrite it with the times it brings along; the old version goes to the history."""
        new = replace(new, id=old.id, version=old.version + 1)
        row = self._row(old.id)
        self.connection.execute(
            "INSERT INTO versions VALUES (?, ?, ?, ?)", [row, old.version, old.updated_us, msgspec.json.encode(old)]
        )
        self.connection.execute(
            "DELETE FROM versions WHERE row = ? AND version <= ?", [row, old.version - KEPT_VERSIONS]
        )
        self._unindex(row, old)
        self.connection.execute(f"UPDATE capsules SET ({_COLUMNS}) = ({_MARKS}) WHERE row = ?", [*_values(new), row])
        self.connection.execute("UPDATE texts SET capsule_text = ? WHERE row = ?", [new.text, row])
        self._index(row, new)
        self._log(new.id)
        return new

    def delete(self, capsule: Capsule) -> None:
        self._set_deleted(capsule, self.now_us)

    def restore(self, capsule: Capsule) -> None:
        self._set_deleted(capsule, None)

    def purge(self, workspace_norm: str | None, deleted_before_us: int | None) -> int:
        """Remove deleted capsules for good, with their versions and every word of theirs in the index."""
        condition = "deleted_us IS NOT NULL"
        values: list[Any] = []
        if workspace_norm is not None:
            condition += " AND workspace_norm = ?"
            values.append(workspace_norm)
        if deleted_before_us is not None:
            condition += " AND deleted_us < ?"
            values.append(deleted_before_us)
        ids = [row[0] for row in self.connection.execute(f"SELECT id FROM capsules WHERE {condition}", values)]
        for capsule_id in ids:
            self._purge_one(capsule_id)
        if ids:
            # Deleted words stay in the older segments of the index until all of them are merged into one.
            self.connection.execute("INSERT INTO words (words) VALUES ('optimize')")
            self.connection.execute("UPDATE state SET unscrubbed = TRUE")
        return len(ids)

    def new_id(self) -> str:
        """A ULID of now; of two in the same millisecond, the later sorts after the earlier."""
        from ulid import ULID

        stamp_us = max(self.now_us, self._stamp_us + 1)
        millisecond = stamp_us // _MILLISECOND
        last = ULID.from_str(self._last_id) if self._last_id else None
        if last is not None and last.milliseconds == millisecond:
            made = ULID.from_int(int(last) + 1)
        else:
            made = ULID.from_bytes(millisecond.to_bytes(6, "big") + os.urandom(10))
        self._last_id = str(made)
        self._tick(stamp_us)
        return self._last_id

    def _tick(self, stamp_us: int) -> None:
        self._stamp_us = stamp_us
        self.connection.execute("UPDATE state SET stamp_us = ?, last_id = ?", [stamp_us, self._last_id])

    def _set_deleted(self, capsule: Capsule, deleted_us: int | None) -> None:
        row = self._row(capsule.id)
        self.connection.execute("UPDATE capsules SET deleted_us = ? WHERE row = ?", [deleted_us, row])
        self.connection.execute("UPDATE tags SET active = ? WHERE row = ?", [deleted_us is None, row])
        self._log(capsule.id)

    def _purge_one(self, capsule_id: str) -> None:
        row = self._row(capsule_id)
        capsule = self.by_id(capsule_id, include_deleted=True)
        assert capsule is not None
        self._unindex(row, capsule)
        for table in ("versions", "texts", "capsules"):
            self.connection.execute(f"DELETE FROM {table} WHERE row = ?", [row])
        self._log(capsule_id)

    def _row(self, capsule_id: str) -> int:
        row: int = self.connection.execute("SELECT row FROM capsules WHERE id = ?", [capsule_id]).fetchone()[0]
        return row

    def _index(self, row: int, capsule: Capsule) -> None:
        active = capsule.deleted_us is None
        self.connection.executemany(
            "INSERT OR IGNORE INTO tags VALUES (?, ?, ?, ?, ?)",
            [(tag, active, capsule.updated_us, capsule.id, row) for tag in capsule.tags],
        )
        self.connection.execute(
            "INSERT INTO words (rowid, name, title, tags, text) VALUES (?, ?, ?, ?, ?)", [row, *indexed(capsule)]
        )

    def _unindex(self, row: int, capsule: Capsule) -> None:
        self.connection.execute("DELETE FROM tags WHERE row = ?", [row])
        self.connection.execute(
            "INSERT INTO words (words, rowid, name, title, tags, text) VALUES ('delete', ?, ?, ?, ?, ?)",
            [row, *indexed(capsule)],
        )

    def _log(self, capsule_id: str) -> None:
        self.changed = True
        self.connection.execute("INSERT OR REPLACE INTO changes (id) VALUES (?)", [capsule_id])


def _values(capsule: Capsule) -> list[Any]:
    return [
        capsule.id,
        capsule.workspace,
        capsule.workspace_norm,
        capsule.name,
        capsule.name_norm,
        capsule.title,
        capsule.chars,
        capsule.tokens,
        msgspec.json.encode(capsule.tags).decode() if capsule.tags else None,
        capsule.source,
        capsule.run_id,
        capsule.phase,
        capsule.role,
        capsule.source_session,
        capsule.allow_thin,
        capsule.version,
        capsule.created_at,
        capsule.updated_us,
        capsule.updated_at,
        capsule.deleted_us,
    ]
