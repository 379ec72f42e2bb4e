"""Rows of the capsule store, read and written inside one transaction.

A change writes everything that belongs to it: time stamps, ids, past versions, tags and the word index.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ...archive.query import index_text
from .capsule import SECOND, Capsule, prefix_end

_KEPT_VERSIONS = 20
_MILLISECOND = 1000
_NEWEST_FIRST = "ORDER BY updated_us DESC, id DESC"

TEXT = "(SELECT capsule_text FROM texts WHERE texts.row = capsules.row)"
SUMMARY = "capsules.*, '' AS capsule_text"
WHOLE = f"capsules.*, {TEXT} AS capsule_text"

_SAME = "id title source run_id phase role source_session version created_at updated_us updated_at deleted_us".split()
_FIELDS = {
    "workspace_raw": "workspace",
    "name_raw": "name",
    "capsule_chars": "chars",
    "tokens_estimate": "tokens",
    **dict(zip(_SAME, _SAME, strict=True)),
}
"""The columns that hold a field of a capsule as it is, with its name."""

# The version of `_indexed`, to be increased with every change of `index_text`: a store whose words were indexed by
# another version is indexed again.
_WORDS_VERSION = 2


class Filters(Struct, frozen=True, kw_only=True):
    """Conditions on capsules; all that are set must hold."""

    workspace_norm: str | None = None
    tag: str | None = None
    name_prefix: str | None = None
    run_id: str | None = None
    phase: str | None = None
    role: str | None = None
    since: int | None = None
    """Updated at this time or later, in milliseconds; `until` is exclusive."""
    until: int | None = None
    include_deleted: bool = False

    def where(self) -> tuple[str, list[Any]]:
        """The condition on `capsules`, and its values."""
        clauses, values = self._columns()
        if not self.include_deleted:
            clauses.append("deleted_us IS NULL")
        if self.tag is not None:
            clauses.append("capsules.row IN (SELECT row FROM tags WHERE tag = ?)")
            values.append(self.tag)
        return " AND ".join(clauses) or "TRUE", values

    def listing(self) -> tuple[str, str, list[Any]]:
        """The table to list from, the condition and its values. A tag is listed from its own table."""
        if self.tag is None:
            return "capsules AS listed", *self.where()
        clauses, values = self._columns()
        if not self.include_deleted:
            clauses.append("listed.active = 1")
        # Without conditions on the joined table SQLite leaves it out.
        source = "tags AS listed LEFT JOIN capsules ON capsules.row = listed.row"
        return source, " AND ".join([*clauses, "listed.tag = ?"]), [*values, self.tag]

    def _columns(self) -> tuple[list[str], list[Any]]:
        conditions = {
            "workspace_norm = ?": self.workspace_norm,
            "run_id = ?": self.run_id,
            "phase = ?": self.phase,
            "role = ?": self.role,
            "name_norm >= ?": self.name_prefix,
            "name_norm < ?": prefix_end(self.name_prefix) if self.name_prefix else None,
            "updated_at * 1000 >= ?": self.since,
            "updated_at * 1000 < ?": self.until,
        }
        given = {clause: value for clause, value in conditions.items() if value is not None}
        return list(given), list(given.values())


class Reader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @property
    def index_is_current(self) -> bool:
        version: int = self.connection.execute("SELECT words_version FROM state").fetchone()[0]
        return version == _WORDS_VERSION

    def by_id(self, capsule_id: str, *, include_deleted: bool = False) -> Capsule | None:
        capsule = self._one("id = ?", [capsule_id])
        return capsule if capsule and (include_deleted or capsule.deleted_us is None) else None

    def by_name(self, workspace_norm: str, name_norm: str) -> Capsule | None:
        return self._one("workspace_norm = ? AND name_norm = ? AND deleted_us IS NULL", [workspace_norm, name_norm])

    def deleted_by_name(self, workspace_norm: str, name_norm: str) -> Capsule | None:
        """Of several with this name, the one that was deleted last."""
        return self._one(
            "workspace_norm = ? AND name_norm = ? AND deleted_us IS NOT NULL ORDER BY deleted_us DESC, id DESC LIMIT 1",
            [workspace_norm, name_norm],
        )

    def latest(self, filters: Filters, *, with_text: bool) -> Capsule | None:
        where, values = filters.where()
        return self._one(f"{where} {_NEWEST_FIRST} LIMIT 1", values, WHOLE if with_text else SUMMARY)

    def page(self, filters: Filters, limit: int, offset: int) -> tuple[list[Capsule], int]:
        """A page of summaries, newest first, and the number of all."""
        source, where, values = filters.listing()
        total: int = self.connection.execute(f"SELECT count(*) FROM {source} WHERE {where}", values).fetchone()[0]
        # Only the keys are sorted; whole rows are read for the page only.
        rows = self.connection.execute(
            f"""SELECT {SUMMARY} FROM capsules WHERE row IN (
                SELECT listed.row FROM {source} WHERE {where}
                ORDER BY listed.updated_us DESC, listed.id DESC LIMIT ? OFFSET ?
            ) {_NEWEST_FIRST}""",
            [*values, limit, offset],
        )
        return [decode(row) for row in rows], total

    def of_session(self, source_session: str) -> list[Capsule]:
        rows = self.connection.execute(
            f"SELECT {SUMMARY} FROM capsules WHERE source_session = ? AND deleted_us IS NULL {_NEWEST_FIRST}",
            [source_session],
        )
        return [decode(row) for row in rows]

    def oldest_first(self, filters: Filters) -> Iterator[Capsule]:
        where, values = filters.where()
        query = f"SELECT {WHOLE} FROM capsules WHERE {where} ORDER BY created_at, id"
        return map(decode, self.connection.execute(query, values))

    def past_versions(self, capsule_id: str) -> list[Capsule]:
        """Versions before the current one, newest first."""
        rows = self.connection.execute(
            """SELECT capsule FROM versions WHERE row = (SELECT row FROM capsules WHERE id = ?)
            ORDER BY version DESC""",
            [capsule_id],
        )
        return [msgspec.json.decode(row["capsule"], type=Capsule) for row in rows]

    def workspaces(self, limit: int) -> list[str]:
        """Workspaces that hold capsules, the most recently used first."""
        rows = self.connection.execute(
            "SELECT workspace_raw FROM capsules WHERE deleted_us IS NULL "
            "GROUP BY workspace_norm ORDER BY max(updated_us) DESC LIMIT ?",
            [limit],
        )
        return [row["workspace_raw"] for row in rows]

    def names(self, limit: int) -> Iterator[tuple[str, str]]:
        """Workspace and name of the named capsules, the most recently updated first."""
        condition = "name_norm IS NOT NULL AND deleted_us IS NULL"
        query = f"SELECT workspace_raw, name_raw FROM capsules WHERE {condition} {_NEWEST_FIRST} LIMIT ?"
        return ((row["workspace_raw"], row["name_raw"]) for row in self.connection.execute(query, [limit]))

    def _one(self, condition: str, values: list[Any], columns: str = WHOLE) -> Capsule | None:
        row = self.connection.execute(f"SELECT {columns} FROM capsules WHERE {condition}", values).fetchone()
        return decode(row) if row else None


class Writer(Reader):
    """Order stamps and ids only grow, even when the clock is set back: their order is the order of the commits."""

    def __init__(self, connection: sqlite3.Connection, now_us: int) -> None:
        super().__init__(connection)
        self.now_us = now_us
        state = connection.execute("SELECT stamp_us, last_id FROM state").fetchone()
        self._stamp_us: int = state["stamp_us"]
        self._last_id: str = state["last_id"]

    @property
    def now(self) -> int:
        """The time of this transaction, in seconds."""
        return self.now_us // SECOND

    def create(self, capsule: Capsule) -> Capsule:
        """Store a new capsule with a new id and the current time."""
        capsule_id = self.new_id()
        stamp = self._stamp_us
        return self.insert(replace(capsule, id=capsule_id, created_at=self.now, updated_us=stamp, updated_at=self.now))

    def insert(self, capsule: Capsule) -> Capsule:
        """Store a new capsule with the id and the times it has."""
        values = _columns(capsule)
        places = ", ".join(f":{column}" for column in values)
        cursor = self.connection.execute(f"INSERT INTO capsules ({', '.join(values)}) VALUES ({places})", values)
        row = cursor.lastrowid
        assert row is not None
        self.connection.execute("INSERT INTO texts VALUES (?, ?)", [row, capsule.text])
        self._index(row, capsule)
        return capsule

    def change(self, old: Capsule, new: Capsule) -> Capsule:
        """Overwrite a capsule at the current time; the old version goes to the history."""
        # A whole millisecond, so that an export can carry it.
        stamp = -(-max(self.now_us, self._stamp_us + 1) // _MILLISECOND) * _MILLISECOND
        self._tick(stamp)
        return self.overwrite(old, replace(new, updated_us=stamp, updated_at=max(self.now, old.created_at)))

    def overwrite(self, old: Capsule, new: Capsule) -> Capsule:
        """Overwrite a capsule with the times the new one has; the old version goes to the history."""
        new = replace(new, id=old.id, version=old.version + 1)
        row = self._row(old.id)
        self.connection.execute(
            "INSERT INTO versions VALUES (?, ?, ?, ?)", [row, old.version, old.updated_us, msgspec.json.encode(old)]
        )
        self.connection.execute(
            "DELETE FROM versions WHERE row = ? AND version <= ?", [row, old.version - _KEPT_VERSIONS]
        )
        self._unindex(row, old)
        values = _columns(new)
        changes = ", ".join(f"{column} = :{column}" for column in values)
        self.connection.execute(f"UPDATE capsules SET {changes} WHERE row = :row", {**values, "row": row})
        self.connection.execute("UPDATE texts SET capsule_text = ? WHERE row = ?", [new.text, row])
        self._index(row, new)
        return new

    def delete(self, capsule: Capsule) -> None:
        self._set_deleted(capsule, self.now_us)

    def restore(self, capsule: Capsule) -> None:
        self._set_deleted(capsule, None)

    def purge(self, workspace_norm: str | None, deleted_before_us: int | None) -> int:
        """Remove deleted capsules for good, with their versions and their words in the index; gives their number."""
        conditions = {"workspace_norm = ?": workspace_norm, "deleted_us < ?": deleted_before_us}
        given = {clause: value for clause, value in conditions.items() if value is not None}
        where = " AND ".join(["deleted_us IS NOT NULL", *given])
        found = self.connection.execute(f"SELECT row FROM capsules WHERE {where}", list(given.values()))
        rows = [row["row"] for row in found]
        for row in rows:
            capsule = self._one("row = ?", [row])
            assert capsule is not None
            self._unindex(row, capsule)
            for table in ("versions", "texts", "capsules"):
                self.connection.execute(f"DELETE FROM {table} WHERE row = ?", [row])
        if rows:
            # Deleted words stay in the older segments of the index until all of them are merged into one.
            self.connection.execute("INSERT INTO words (words) VALUES ('optimize')")
            self.connection.execute("UPDATE state SET unscrubbed = TRUE")
        return len(rows)

    def refresh_index(self) -> None:
        """Index the words of all capsules again, unless another process has done so in the meantime."""
        if self.index_is_current:
            return
        self.connection.execute("INSERT INTO words (words) VALUES ('delete-all')")
        for row in self.connection.execute(f"SELECT {WHOLE} FROM capsules"):
            self._index_words(row["row"], decode(row))
        self.connection.execute("UPDATE state SET words_version = ?", [_WORDS_VERSION])

    def new_id(self) -> str:
        """A ULID of the current time; of two in the same millisecond, the later sorts after the earlier."""
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

    def _row(self, capsule_id: str) -> int:
        row: int = self.connection.execute("SELECT row FROM capsules WHERE id = ?", [capsule_id]).fetchone()[0]
        return row

    def _index(self, row: int, capsule: Capsule) -> None:
        active = capsule.deleted_us is None
        self.connection.executemany(
            "INSERT OR IGNORE INTO tags VALUES (?, ?, ?, ?, ?)",
            [(tag, active, capsule.updated_us, capsule.id, row) for tag in capsule.tags],
        )
        self._index_words(row, capsule)

    def _index_words(self, row: int, capsule: Capsule) -> None:
        self.connection.execute(
            "INSERT INTO words (rowid, name, title, tags, text) VALUES (?, ?, ?, ?, ?)", [row, *_indexed(capsule)]
        )

    def _unindex(self, row: int, capsule: Capsule) -> None:
        self.connection.execute("DELETE FROM tags WHERE row = ?", [row])
        self.connection.execute(
            "INSERT INTO words (words, rowid, name, title, tags, text) VALUES ('delete', ?, ?, ?, ?, ?)",
            [row, *_indexed(capsule)],
        )


def decode(row: sqlite3.Row) -> Capsule:
    """The capsule of a row with the columns SUMMARY or WHOLE."""
    return Capsule(
        **{field: row[column] for column, field in _FIELDS.items()},
        tags=msgspec.json.decode(row["tags_json"], type=tuple[str, ...]) if row["tags_json"] else (),
        allow_thin=bool(row["allow_thin"]),
        text=row["capsule_text"],
    )


def _columns(capsule: Capsule) -> dict[str, Any]:
    """The values of a capsule by their columns; the text is in its own table."""
    return {
        **{column: getattr(capsule, field) for column, field in _FIELDS.items()},
        "workspace_norm": capsule.workspace_norm,
        "name_norm": capsule.name_norm,
        "tags_json": msgspec.json.encode(capsule.tags).decode() if capsule.tags else None,
        "allow_thin": capsule.allow_thin,
    }


def _indexed(capsule: Capsule) -> list[str]:
    """The columns of the word index: name, title, tags, text. FTS5 needs the same values to delete a row."""
    parts = (capsule.name or "", capsule.title or "", " ".join(capsule.tags), capsule.text)
    return ["\n".join(index_text(part)) for part in parts]
