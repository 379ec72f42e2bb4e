"""Export and import: capsules to a file and back, atomically both ways; from the database of Moss, too.

An import merges records into the store; its mode decides what happens to a record that collides with a capsule.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import overload

import msgspec
from msgspec.structs import replace

from ...config import CapsuleSettings
from ..base import cut_text
from .answers import CapsuleError, Exported, Imported, ImportProblem
from .capsule import MAX_FIELD_CHARS, Capsule, normalise, workspace_or_default
from .files import (
    AllowedFolders,
    Entry,
    Record,
    checked_path,
    open_for_reading,
    read_export,
    record_of,
    replacing,
    to_capsule,
    write_export,
)
from .requests import ExportInput, ImportInput, choice, unless_blank
from .rows import Filters, Writer
from .sections import check_text, missing_sections
from .store import Store

_MOSS_HOME = "~/.moss"
_BATCH = 500
# Bounds of the broken records that an answer lists, for files that hold nothing else. Collisions are all listed.
_MAX_BROKEN = 100
_SHOWN_CHARS = 600
# A refused field of a record is a problem of the record.
_RECORD_CODES = {"INVALID_REQUEST": "INVALID_RECORD"}
_MAX_STEM_BYTES = 150
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]+|\.\.+")
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


def export_capsules(store: Store, settings: CapsuleSettings, given: ExportInput) -> Exported:
    """Write the capsules, exactly as stored, to a new file, or over an old one once the new one is complete."""
    workspace = None if given.workspace is None else workspace_or_default(given.workspace)
    exported_at = int(time.time())
    if (path_given := unless_blank(given.path)) is not None:
        path = checked_path(path_given, (".jsonl",), _allowed(store.home, settings))
    else:
        path = _new_file(store.home / "exports", workspace, exported_at)
        checked_path(str(path), (".jsonl",), _allowed(store.home, settings))
    filters = Filters(
        workspace_norm=None if workspace is None else normalise(workspace),
        include_deleted=bool(given.include_deleted),
    )
    with store.reading_aside() as reader, replacing(path) as file:
        count = write_export(file, reader.oldest_first(filters), exported_at)
    return Exported(str(path), count, exported_at)


def import_capsules(store: Store, settings: CapsuleSettings, given: ImportInput) -> Imported:
    """Read a file into the store: in mode error in one transaction, else in several, so that other writers get their
    turn. Problems in the data are part of the result."""
    path_given = unless_blank(given.path)
    if path_given is None:
        raise CapsuleError.invalid("path", "path is required")
    mode = choice("mode", given.mode, _MODES)
    form = choice("format", given.format, ("jsonl", "moss-db"))

    def admit(capsule: Capsule) -> Capsule:
        if given.allow_thin and not capsule.allow_thin and missing_sections(capsule.text):
            capsule = replace(capsule, allow_thin=True)
        check_text(capsule.text, max_chars=settings.most_chars, allow_thin=capsule.allow_thin)
        return capsule

    reading = _moss_entries if form == "moss-db" else _export_entries
    merge = _Merge(mode, admit)
    with reading(path_given, _allowed(store.home, settings), settings.most_chars) as entries:
        if mode != "error":
            while batch := list(islice(entries, _BATCH)):
                with store.writing() as writer:
                    merge.add(writer, batch)
            return merge.outcome()
        try:
            with store.writing() as writer:
                merge.add(writer, entries)
                return merge.outcome()
        except _Refused as refused:
            return refused.outcome


def _allowed(home: Path, settings: CapsuleSettings) -> AllowedFolders:
    return AllowedFolders.of(home, settings.export_folders, Path.cwd())


@contextmanager
def _export_entries(path: str, allowed: AllowedFolders, most_chars: int) -> Iterator[Iterator[Entry]]:
    with open_for_reading(checked_path(path, (".jsonl",), allowed)) as file:
        yield read_export(file, most_chars)


@contextmanager
def _moss_entries(path: str, allowed: AllowedFolders, _most_chars: int) -> Iterator[Iterator[Entry]]:
    """The format moss-db allows Moss' own folder, too."""
    readable = AllowedFolders((*allowed.folders, Path(_MOSS_HOME).expanduser()), allowed.project)
    with closing(read_moss_database(checked_path(path, (".db", ".sqlite", ".sqlite3"), readable))) as entries:
        yield entries


def _new_file(folder: Path, workspace: str | None, exported_at: int) -> Path:
    name = _NOT_IN_FILE_NAMES.sub("-", normalise(workspace)).strip("-.") if workspace else "all"
    # File systems limit the bytes of a name, and a character takes up to four.
    name = name.encode()[:_MAX_STEM_BYTES].decode(errors="ignore")
    stem = f"{name or 'workspace'}-{time.strftime('%Y%m%dT%H%M%S', time.localtime(exported_at))}"
    candidates = (folder / f"{stem}{suffix}.jsonl" for suffix in ("", *(f"-{n}" for n in range(1, 10_000))))
    return next(path for path in candidates if not path.exists())


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


# Merging


class _Refused(Exception):
    """In mode `error` one problem is enough: nothing is imported."""

    def __init__(self, outcome: Imported) -> None:
        super().__init__("nothing was imported")
        self.outcome = outcome


class _Collision(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class _Merge:
    """One import, in one transaction or in several: the rule of the mode places each capsule that `admit` accepts."""

    def __init__(self, mode: str, admit: Callable[[Capsule], Capsule]) -> None:
        self._mode = mode
        self._admit = admit
        self._place = _PLACING[mode]()
        self._imported = self._skipped = self._broken = 0
        self._problems: list[ImportProblem] = []

    def add(self, writer: Writer, entries: Iterable[Entry]) -> None:
        for line, entry in entries:
            if isinstance(entry, ImportProblem):
                self._note_broken(entry)
                continue
            try:
                placed = self._place(writer, self._admit(to_capsule(entry, writer.now)))
                self._imported, self._skipped = self._imported + placed, self._skipped + (not placed)
            except CapsuleError as error:
                self._note_broken(_problem(line, entry, _RECORD_CODES.get(error.code, error.code), error.message))
            except _Collision as error:
                self._problems.append(_problem(line, entry, error.code, error.message))

    def outcome(self) -> Imported:
        """Raises _Refused, which rolls the transaction back, if the import is all or nothing."""
        problems = self._problems
        if self._broken > _MAX_BROKEN:
            message = f"{self._broken - _MAX_BROKEN:,} more problems are not listed"
            problems = [*problems, ImportProblem(0, "TOO_MANY_PROBLEMS", message)]
        if problems and self._mode == "error":
            raise _Refused(Imported(0, self._skipped, problems))
        return Imported(self._imported, self._skipped, problems)

    def _note_broken(self, problem: ImportProblem) -> None:
        self._broken += 1
        if self._broken <= _MAX_BROKEN:
            self._problems.append(problem)


def _problem(line: int, entry: Record, code: str, message: str) -> ImportProblem:
    return ImportProblem(line, code, _short(message), _short(entry.id), _short(entry.name_raw))


def _same_id(writer: Writer, capsule: Capsule) -> Capsule | None:
    return writer.by_id(capsule.id, include_deleted=True)


def _same_name(writer: Writer, capsule: Capsule) -> Capsule | None:
    """The live capsule of this name. Deleted capsules have no name to collide with, on either side."""
    if capsule.name_norm is None or capsule.deleted_us is not None:
        return None
    return writer.by_name(capsule.workspace_norm, capsule.name_norm)


@overload
def _short(text: str) -> str: ...
@overload
def _short(text: str | None) -> str | None: ...
def _short(text: str | None) -> str | None:
    return None if text is None else cut_text(text, _SHOWN_CHARS)


def _place_strictly(writer: Writer, capsule: Capsule) -> bool:
    if stored := _same_id(writer, capsule):
        if _identical(stored, capsule):
            return False
        raise _Collision("ID_COLLISION", f"a capsule with id {capsule.id} already exists")
    if _same_name(writer, capsule):
        raise _Collision(
            "NAME_COLLISION", f'a capsule named "{capsule.name}" already exists in workspace "{capsule.workspace}"'
        )
    writer.insert(capsule)
    return True


def _place_or_replace(writer: Writer, capsule: Capsule) -> bool:
    same_id, same_name = _same_id(writer, capsule), _same_name(writer, capsule)
    if same_id and same_name and same_id.id != same_name.id:
        raise _Collision(
            "AMBIGUOUS_COLLISION",
            f'id {capsule.id} is one stored capsule, the name "{capsule.name}" is another ({same_name.id})',
        )
    target = same_id or same_name
    if target is None:
        writer.insert(capsule)
        return True
    if capsule.deleted_us is not None and target.deleted_us is None:
        # A record of a deleted capsule leaves a live one alone.
        return False
    if _identical(target, replace(capsule, id=target.id)):
        return False
    writer.overwrite(target, capsule)
    return True


class _Renaming:
    def __init__(self) -> None:
        self._suffixes: dict[tuple[str, str], int] = {}

    def __call__(self, writer: Writer, capsule: Capsule) -> bool:
        if stored := _same_id(writer, capsule):
            if _identical(stored, capsule):
                return False
            capsule = replace(capsule, id=writer.new_id())
        if _same_name(writer, capsule):
            capsule = replace(capsule, name=self._free_name(writer, capsule))
        writer.insert(capsule)
        return True

    def _free_name(self, writer: Writer, capsule: Capsule) -> str:
        assert capsule.name is not None
        key = (capsule.workspace_norm, normalise(capsule.name))
        while True:
            # Counting goes on from the last suffix, so that many equal names do not try all suffixes each time.
            self._suffixes[key] = self._suffixes.get(key, 0) + 1
            suffix = f"-{self._suffixes[key]}"
            name = capsule.name.strip()[: MAX_FIELD_CHARS - len(suffix)] + suffix
            if writer.by_name(capsule.workspace_norm, normalise(name)) is None:
                return name


def _identical(stored: Capsule, capsule: Capsule) -> bool:
    """True when an export of the stored capsule would be this record."""
    return _exported(stored) == _exported(capsule)


def _exported(capsule: Capsule) -> Capsule:
    return replace(capsule, version=1, updated_us=capsule.updated_us // 1000, deleted_us=capsule.deleted_at)


# By the mode of an import, places one capsule in the store: True if it was stored, False if there was nothing to do.
_PLACING: dict[str, Callable[[], Callable[[Writer, Capsule], bool]]] = {
    "error": lambda: _place_strictly,
    "replace": lambda: _place_or_replace,
    "rename": _Renaming,
}
_MODES: tuple[str, ...] = tuple(_PLACING)
