"""Moving in from Moss: its own database, of either schema version, read from a copy."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import msgspec

from .errors import CapsuleError
from .paths import open_for_reading
from .transfer import Entry, record_of
from .types import ImportProblem

__all__ = ["MOSS_HOME", "read_moss_database"]

MOSS_HOME = "~/.moss"

_REQUIRED = (
    "id",
    "workspace_raw",
    "name_raw",
    "title",
    "capsule_text",
    "source",
    "created_at",
    "updated_at",
    "deleted_at",
)
# Later versions have these too.
_OPTIONAL = ("run_id", "phase", "role")


def read_moss_database(path: Path) -> Generator[Entry, None, None]:
    """The capsules of a Moss database, numbered from 1 in the order of their creation.

    Moss may be running. Its files are copied first, the log with what is not yet in the main file included, because
    opening a database in place creates and changes files beside it.
    """
    with tempfile.TemporaryDirectory(prefix="backstory-moss-") as folder:
        copy = Path(folder) / "moss.db"
        _copy(path, copy)
        log = path.with_name(f"{path.name}-wal")
        if log.is_file():
            _copy(log, copy.with_name("moss.db-wal"))
        connection = sqlite3.connect(copy)
        try:
            yield from _records(connection)
        except sqlite3.Error:
            raise CapsuleError.invalid("path", f"{path} is not a Moss database, or is damaged") from None
        finally:
            connection.close()


def _records(connection: sqlite3.Connection) -> Iterator[Entry]:
    present = {row[1] for row in connection.execute("PRAGMA table_info(capsules)")}
    if missing := [column for column in (*_REQUIRED, "tags_json") if column not in present]:
        raise sqlite3.DatabaseError(f"no such columns: {missing}")
    columns = [*_REQUIRED, *(column for column in _OPTIONAL if column in present)]
    query = f"SELECT {', '.join(columns)}, tags_json FROM capsules ORDER BY created_at, id"
    for number, row in enumerate(connection.execute(query), start=1):
        *values, tags = row
        content = dict(zip(columns, values, strict=True))
        try:
            content["tags"] = msgspec.json.decode(tags) if tags else None
        except (msgspec.DecodeError, TypeError):
            yield number, ImportProblem(number, "INVALID_RECORD", "tags_json is not JSON", str(content["id"]))
            continue
        yield number, record_of(number, content)


def _copy(source: Path, target: Path) -> None:
    with open_for_reading(source) as original, target.open("wb") as copy:
        shutil.copyfileobj(original, copy)
