"""Files of exports and imports: the folders that they may be in, and the records that they hold.

Only folders that the settings allow are used, and never through a symlink. An export file is in the format of Moss: one
JSON object per line, a header first.
"""

from __future__ import annotations

import errno
import os
import stat
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from ...config import make_private_folder
from ...files import PART_PATTERN
from ...files import replacing as replacing_whole
from ..base import cut_text
from .answers import CapsuleError, ImportProblem
from .capsule import SECOND, Capsule, check_fields, with_text, workspace_or_default
from .sections import missing_sections

# A project may narrow the allowed folders for the agents that work in it.
PROJECT_FILE = ".backstory.toml"
# A temporary file this old belongs to an export that was killed.
_STALE_SECONDS = 3_600
_SHOWN_CHARS = 300
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


class _ProjectCapsules(Struct, frozen=True, forbid_unknown_fields=True):
    export_folders: tuple[str, ...] | None = None


class _Project(Struct):
    capsules: _ProjectCapsules = _ProjectCapsules()


class AllowedFolders(Struct, frozen=True):
    """`folders` are allowed; if `project` is set, a path must be in one of those as well."""

    folders: tuple[Path, ...]
    project: tuple[Path, ...] | None = None

    @classmethod
    def of(cls, home: Path, export_folders: Iterable[str], working_directory: Path) -> AllowedFolders:
        configured = (_absolute(folder, home) for folder in export_folders)
        return cls((home.absolute() / "exports", *configured), _project_folders(working_directory))

    def base_of(self, path: Path) -> Path | None:
        """The allowed folder that holds `path`, if it is allowed."""
        if self.project is not None and not _containing(self.project, path):
            return None
        return _containing(self.folders, path)


def checked_path(given: str, extensions: tuple[str, ...], allowed: AllowedFolders) -> Path:
    """The absolute path, if it may be used; it need not exist."""
    path = _expanded(given)
    if path.suffix.lower() not in extensions:
        raise CapsuleError.invalid("path", f"path must end in {' or '.join(extensions)}")
    try:
        base = allowed.base_of(path)
        _refuse_symlinks(path, base)
    except OSError as error:  # a name or a path that is too long, among others
        raise _unusable(path, error) from None
    if base is None:
        folders = ", ".join(str(folder) for folder in allowed.folders if allowed.base_of(folder))
        hint = f"allowed: {folders}" if folders else f"the project's {PROJECT_FILE} allows none"
        raise CapsuleError.invalid(
            "path", f"path is outside the allowed folders ({hint}); more can be set as capsules.export_folders"
        )
    return path


def _refuse_symlinks(path: Path, base: Path | None) -> None:
    below = path
    while base is not None and below != base:
        if below.is_symlink():
            raise CapsuleError.invalid("path", f"path must not be or go through a symlink: {below}")
        below = below.parent


def open_for_reading(path: Path) -> BinaryIO:
    """The file, which must be a regular one: neither a symlink nor a pipe."""
    try:
        # Absent on Windows, where neither symlinks without rights nor named pipes in folders exist.
        flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, os.O_RDONLY | flags)
    except (FileNotFoundError, NotADirectoryError):
        raise CapsuleError.file_not_found(str(path)) from None
    except OSError as error:
        raise _unusable(path, error) from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CapsuleError.invalid("path", f"{path} is not a regular file")
    return os.fdopen(descriptor, "rb")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write. It replaces `path` once it is complete and on the disk; on an error it is removed."""
    try:
        _remove_stale_parts(make_private_folder(path.parent))
        if path.is_dir():
            raise CapsuleError.invalid("path", f"{path} is a folder")
        with replacing_whole(path, durable=True) as file:
            yield file
    except OSError as error:
        raise _unusable(path, error) from None


def _remove_stale_parts(folder: Path) -> None:
    """Remove the temporary files of exports that were killed."""
    for part in folder.glob(PART_PATTERN):
        with suppress(OSError):
            if part.stat().st_mtime < time.time() - _STALE_SECONDS:
                part.unlink()


def _unusable(path: Path, error: OSError) -> CapsuleError:
    """The error for a file that cannot be used: about the path, unless the disk is full."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CapsuleError.internal(f"{path} cannot be written: {error.strerror}; make room and try again")
    return CapsuleError.invalid("path", f"{cut_text(str(path), _SHOWN_CHARS)} cannot be used: {error.strerror}")


def _expanded(given: str) -> Path:
    if "\0" in given:
        raise CapsuleError.invalid("path", "path must not contain a null character")
    if ".." in given.replace("\\", "/").split("/"):
        raise CapsuleError.invalid("path", "path must not contain `..`")
    try:
        return Path(given).expanduser().absolute()
    except (RuntimeError, OSError):
        raise CapsuleError.invalid("path", "path cannot be resolved") from None


def _absolute(folder: str, base: Path) -> Path:
    try:
        return (base / Path(folder).expanduser()).absolute()
    except RuntimeError:
        raise CapsuleError.invalid("path", f"the allowed folder {folder} cannot be resolved") from None


def _containing(folders: Iterable[Path], path: Path) -> Path | None:
    """The folder that holds `path`. Each counts under its own name and under the one its symlinks resolve to."""
    for folder in folders:
        for name in (folder, folder.resolve()):
            if path.is_relative_to(name):
                return name
    return None


def _project_folders(working_directory: Path) -> tuple[Path, ...] | None:
    file = working_directory / PROJECT_FILE
    try:
        project = msgspec.convert(tomllib.loads(file.read_text("utf-8")), _Project)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        # A broken file must not lift the restriction that it may hold.
        raise CapsuleError.invalid("path", f"{file} cannot be read: {error}") from None
    if project.capsules.export_folders is None:
        return None
    return tuple(_absolute(folder, working_directory) for folder in project.capsules.export_folders)


# Records


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
