"""Records of capsules outside the store: the export file, which is the format of Moss, and the database of Moss.

An export file has one JSON object per line, a header first.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from .answers import CapsuleError, ImportProblem
from .capsule import SECOND, Capsule, check_fields, with_text, workspace_or_default
from .paths import open_for_reading
from .sections import missing_sections

_SCHEMA_VERSION = "1.0"
# Room for the other fields of a record, and for the largest texts of a store with other settings. A longer line is not
# read into memory.
_LINE_BYTES = 16 << 20
# A control character takes six bytes in JSON.
_BYTES_PER_CHAR = 6
_MAX_ID_CHARS = 128
# The end of the year 9999.
_MAX_TIME = 253_402_300_799
_MILLISECOND = 1000

# The columns of Moss' database. Its second schema version has the optional ones.
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
_OPTIONAL = ("run_id", "phase", "role")


class Record(Struct, kw_only=True):
    """One capsule as it is read. Norms and counts are not read but computed."""

    id: str
    capsule_text: str
    workspace_raw: str | None = None
    name_raw: str | None = None
    title: str | None = None
    tags: list[str] | None = None
    source: str | None = None
    created_at: int | None = None
    updated_at: int | None = None
    deleted_at: int | None = None
    allow_thin: bool | None = None
    run_id: str | None = None
    phase: str | None = None
    role: str | None = None
    source_session: str | None = None
    # The place in the order of updates, in milliseconds, which also orders updates within one second.
    updated_at_ms: int | None = None


Entry = tuple[int, Record | ImportProblem]


def write_export(file: BinaryIO, capsules: Iterable[Capsule], exported_at: int) -> int:
    """Write the header and the capsules, exactly as stored; gives the number of capsules."""
    header = {"_moss_export": True, "schema_version": _SCHEMA_VERSION, "exported_at": exported_at}
    file.write(msgspec.json.encode(header) + b"\n")
    count = 0
    for capsule in capsules:
        file.write(msgspec.json.encode(_line(capsule)) + b"\n")
        count += 1
    return count


def read_export(file: BinaryIO, most_chars: int) -> Iterator[Entry]:
    """The records, or the problems of lines that are none, with their line numbers. Takes any bytes."""
    max_bytes = _LINE_BYTES + _BYTES_PER_CHAR * most_chars
    for number, line in _lines(file, max_bytes):
        if line is None:
            yield number, _broken(number, f"line is longer than {max_bytes} bytes")
            continue
        try:
            content = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            yield number, _broken(number, f"not JSON: {error}")
            continue
        if isinstance(content, dict) and content.get("_moss_export"):
            version = content.get("schema_version")
            if not str(version).startswith("1."):
                yield number, _broken(number, f"schema_version {version!r} is not known; this reads 1.x")
            continue
        yield number, record_of(number, content)


def record_of(number: int, content: Any) -> Record | ImportProblem:
    try:
        return msgspec.convert(content, Record)
    except msgspec.ValidationError as error:
        given = content if isinstance(content, dict) else {}
        named = {key: value for key in ("id", "name_raw") if isinstance(value := given.get(key), str)}
        return ImportProblem(number, "INVALID_RECORD", str(error), named.get("id"), named.get("name_raw"))


def to_capsule(record: Record, now: int) -> Capsule:
    """The capsule of a record, with computed norms and counts."""
    if not record.id.strip() or len(record.id) > _MAX_ID_CHARS:
        raise CapsuleError.invalid("id", f"id must have 1 to {_MAX_ID_CHARS} characters")
    if not record.capsule_text.strip():
        raise CapsuleError.invalid("capsule_text", "capsule_text is empty")
    created_at = _time("created_at", record.created_at, now)
    updated_at = _time("updated_at", record.updated_at, created_at)
    deleted_at = _time("deleted_at", record.deleted_at, 0)
    capsule = Capsule(
        id=record.id,
        workspace=workspace_or_default(record.workspace_raw),
        name=record.name_raw if record.name_raw and record.name_raw.strip() else None,
        title=record.title,
        tags=tuple(record.tags or ()),
        source=record.source,
        run_id=record.run_id,
        phase=record.phase,
        role=record.role,
        source_session=record.source_session,
        allow_thin=bool(record.allow_thin),
        created_at=created_at,
        updated_us=_exact_update(record, created_at, updated_at),
        updated_at=updated_at,
        deleted_us=None if record.deleted_at is None else deleted_at * SECOND,
    )
    check_fields(capsule)
    return with_text(capsule, record.capsule_text)


def _line(capsule: Capsule) -> dict[str, Any]:
    """Every field of the format, null or not; after them the fields that Backstory adds, each only when it is set."""
    line = {
        "id": capsule.id,
        "workspace_raw": capsule.workspace,
        "workspace_norm": capsule.workspace_norm,
        "name_raw": capsule.name,
        "name_norm": capsule.name_norm,
        "title": capsule.title,
        "capsule_text": capsule.text,
        "capsule_chars": capsule.chars,
        "tokens_estimate": capsule.tokens,
        "tags": capsule.tags or None,
        "source": capsule.source,
        "created_at": capsule.created_at,
        "updated_at": capsule.updated_at,
        "deleted_at": capsule.deleted_at,
    }
    extras = {
        # An export restores what the store holds, also where a text lost a section after it was checked.
        "allow_thin": capsule.allow_thin or bool(missing_sections(capsule.text)) or None,
        "run_id": capsule.run_id,
        "phase": capsule.phase,
        "role": capsule.role,
        "source_session": capsule.source_session,
        "updated_at_ms": None if _implied_update(capsule) else capsule.updated_us // _MILLISECOND,
    }
    return line | {key: value for key, value in extras.items() if value is not None}


def _implied_update(capsule: Capsule) -> bool:
    """True when the time of the last update follows from the other fields."""
    plain = Record(id=capsule.id, capsule_text="")
    implied = _exact_update(plain, capsule.created_at, capsule.updated_at)
    return implied // _MILLISECOND == capsule.updated_us // _MILLISECOND


def _exact_update(record: Record, created_at: int, updated_at: int) -> int:
    """Microseconds from the milliseconds of a record; those of a capsule that was never changed are in its id."""
    if record.updated_at_ms is not None and 0 <= record.updated_at_ms // 1000 <= _MAX_TIME:
        return record.updated_at_ms * _MILLISECOND
    if updated_at == created_at and (made := _milliseconds(record.id)) is not None and made // 1000 == created_at:
        return made * _MILLISECOND
    return updated_at * SECOND


def _milliseconds(capsule_id: str) -> int | None:
    from ulid import ULID

    try:
        return ULID.from_str(capsule_id).milliseconds
    except ValueError:
        return None


def _time(field: str, given: int | None, otherwise: int) -> int:
    if given is None:
        return otherwise
    if not 0 <= given <= _MAX_TIME:
        raise CapsuleError.invalid(field, f"{field} is not a time in Unix seconds")
    return given


def _broken(number: int, message: str) -> ImportProblem:
    return ImportProblem(number, "PARSE_ERROR", message)


def _lines(file: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes | None]]:
    """The lines that are not blank, numbered from 1; None for one that is too long."""
    number = 0
    while line := file.readline(max_bytes):
        number += 1
        too_long = len(line) == max_bytes and not line.endswith(b"\n")
        if too_long:
            while (rest := file.readline(max_bytes)) and not rest.endswith(b"\n"):
                continue
            yield number, None
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.strip():
            yield number, line


# Moss' database


def read_moss_database(path: Path) -> Generator[Entry, None, None]:
    """The capsules of a Moss database, numbered from 1 in the order of their creation.

    Moss may be running. Its files are copied first, the write-ahead log included, because opening a database in place
    creates and changes files beside it.
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
