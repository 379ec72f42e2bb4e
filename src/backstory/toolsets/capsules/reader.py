"""Reading capsules inside one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from .capsule import Capsule
from .wording import prefix_end

__all__ = ["SUMMARY", "TEXT", "WHOLE", "Filters", "Reader", "decode"]

_SUMMARY = """id, workspace_raw, name_raw, title, capsule_chars, tokens_estimate, tags_json, source, run_id, phase,
    role, source_session, allow_thin, version, created_at, updated_us, updated_at, deleted_us"""
SUMMARY = f"{_SUMMARY}, ''"
TEXT = "(SELECT capsule_text FROM texts WHERE texts.row = capsules.row)"
WHOLE = f"{_SUMMARY}, {TEXT}"
_NEWEST_FIRST = "ORDER BY updated_us DESC, id DESC"


class Filters(Struct, frozen=True, kw_only=True):
    """Which capsules; all that is set must hold."""

    workspace_norm: str | None = None
    tag: str | None = None
    name_prefix: str | None = None
    run_id: str | None = None
    phase: str | None = None
    role: str | None = None
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
        given = {
            "workspace_norm = ?": self.workspace_norm,
            "run_id = ?": self.run_id,
            "phase = ?": self.phase,
            "role = ?": self.role,
            "name_norm >= ?": self.name_prefix,
            "name_norm < ?": prefix_end(self.name_prefix) if self.name_prefix else None,
        }
        return [clause for clause, value in given.items() if value is not None], [
            value for value in given.values() if value is not None
        ]


class Reader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

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
        """Summaries, newest first, and how many there are in all."""
        source, where, values = filters.listing()
        total: int = self.connection.execute(f"SELECT count(*) FROM {source} WHERE {where}", values).fetchone()[0]
        # What has to be sorted are the keys alone; whole rows are read for the page only.
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
        return [msgspec.json.decode(row[0], type=Capsule) for row in rows]

    def workspaces(self, limit: int) -> list[str]:
        """Workspaces that hold something, the most recently used first."""
        rows = self.connection.execute(
            "SELECT workspace_raw FROM capsules WHERE deleted_us IS NULL "
            "GROUP BY workspace_norm ORDER BY max(updated_us) DESC LIMIT ?",
            [limit],
        )
        return [row[0] for row in rows]

    def names(self, limit: int) -> list[tuple[str, str]]:
        """Workspace and name of the capsules that have one, the most recently updated first."""
        condition = "name_norm IS NOT NULL AND deleted_us IS NULL"
        query = f"SELECT workspace_raw, name_raw FROM capsules WHERE {condition} {_NEWEST_FIRST} LIMIT ?"
        return list(self.connection.execute(query, [limit]))

    def changes(self, after: int, limit: int) -> list[tuple[int, str, Capsule | None]]:
        """The next changes by sequence number; None stands for a capsule that is deleted or purged."""
        rows = self.connection.execute("SELECT seq, id FROM changes WHERE seq > ? ORDER BY seq LIMIT ?", [after, limit])
        return [(seq, capsule_id, self.by_id(capsule_id)) for seq, capsule_id in rows]

    def _one(self, condition: str, values: list[Any], columns: str = WHOLE) -> Capsule | None:
        row = self.connection.execute(f"SELECT {columns} FROM capsules WHERE {condition}", values).fetchone()
        return decode(row) if row else None


def decode(row: tuple[Any, ...]) -> Capsule:
    """A row of the columns SUMMARY or WHOLE."""
    return Capsule(
        id=row[0],
        workspace=row[1],
        name=row[2],
        title=row[3],
        chars=row[4],
        tokens=row[5],
        tags=msgspec.json.decode(row[6], type=tuple[str, ...]) if row[6] else (),
        source=row[7],
        run_id=row[8],
        phase=row[9],
        role=row[10],
        source_session=row[11],
        allow_thin=bool(row[12]),
        version=row[13],
        created_at=row[14],
        updated_us=row[15],
        updated_at=row[16],
        deleted_us=row[17],
        text=row[18],
    )
