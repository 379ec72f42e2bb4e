"""Export and import: from the request to the file and back, atomically both ways."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path

from msgspec.structs import replace

from ...config import CapsuleSettings
from .capsule import Capsule
from .errors import CapsuleError
from .inputs import ExportInput, ImportInput
from .limits import check_text
from .lint import missing_sections
from .merge import MODES, Merge, Refused
from .moss import MOSS_HOME, read_moss_database
from .paths import AllowedFolders, checked_path, open_for_reading, replacing
from .reader import Filters
from .requests import choice, unless_blank
from .store import Store
from .transfer import Entry, read_export, write_export
from .types import Exported, Imported
from .wording import normalise, workspace_or_default

__all__ = ["export_capsules", "import_capsules"]

_BATCH = 500
_MAX_STEM_BYTES = 150
_NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]+|\.\.+")


def export_capsules(store: Store, home: Path, settings: CapsuleSettings, given: ExportInput) -> Exported:
    """Write the capsules to a new file, or over an old one once the new one is complete."""
    workspace = None if given.workspace is None else workspace_or_default(given.workspace)
    exported_at = int(time.time())
    if (path_given := unless_blank(given.path)) is not None:
        path = checked_path(path_given, (".jsonl",), _allowed(home, settings))
    else:
        path = _new_file(home / "exports", workspace, exported_at)
        checked_path(str(path), (".jsonl",), _allowed(home, settings))
    filters = Filters(
        workspace_norm=None if workspace is None else normalise(workspace),
        include_deleted=bool(given.include_deleted),
    )
    with store.aside() as reader, replacing(path) as file:
        count = write_export(file, reader.oldest_first(filters), exported_at)
    return Exported(str(path), count, exported_at)


def import_capsules(store: Store, home: Path, settings: CapsuleSettings, given: ImportInput) -> Imported:
    """Read a file into the store: in mode error in one transaction, else in several, so that other writers get their
    turn. What is wrong with the data is part of the result."""
    path_given = unless_blank(given.path)
    if path_given is None:
        raise CapsuleError.invalid("path", "path is required")
    mode = choice("mode", given.mode, MODES)
    form = choice("format", given.format, ("jsonl", "moss-db"))

    def admit(capsule: Capsule) -> Capsule:
        if given.allow_thin and not capsule.allow_thin and missing_sections(capsule.text):
            capsule = replace(capsule, allow_thin=True)
        check_text(capsule.text, max_chars=settings.most_chars, allow_thin=capsule.allow_thin)
        return capsule

    reading = _moss_entries if form == "moss-db" else _export_entries
    merge = Merge(mode, admit)
    with reading(path_given, _allowed(home, settings), settings.most_chars) as entries:
        if mode != "error":
            while batch := list(islice(entries, _BATCH)):
                with store.writing() as writer:
                    merge.add(writer, batch)
            return merge.outcome()
        try:
            with store.writing() as writer:
                merge.add(writer, entries)
                return merge.outcome()
        except Refused as refused:
            return refused.outcome


def _allowed(home: Path, settings: CapsuleSettings) -> AllowedFolders:
    return AllowedFolders.of(home, settings.export_folders, Path.cwd())


@contextmanager
def _export_entries(path: str, allowed: AllowedFolders, most_chars: int) -> Iterator[Iterator[Entry]]:
    with open_for_reading(checked_path(path, (".jsonl",), allowed)) as file:
        yield read_export(file, most_chars)


@contextmanager
def _moss_entries(path: str, allowed: AllowedFolders, _most_chars: int) -> Iterator[Iterator[Entry]]:
    """Asked for by name, Moss' own folder may be read as well."""
    readable = AllowedFolders((*allowed.folders, Path(MOSS_HOME).expanduser()), allowed.project)
    with closing(read_moss_database(checked_path(path, (".db", ".sqlite", ".sqlite3"), readable))) as entries:
        yield entries


def _new_file(folder: Path, workspace: str | None, exported_at: int) -> Path:
    name = _NOT_IN_FILE_NAMES.sub("-", normalise(workspace)).strip("-.") if workspace else "all"
    # File systems limit the bytes of a name, and a character takes up to four.
    name = name.encode()[:_MAX_STEM_BYTES].decode(errors="ignore")
    stem = f"{name or 'workspace'}-{time.strftime('%Y%m%dT%H%M%S', time.localtime(exported_at))}"
    candidates = (folder / f"{stem}{suffix}.jsonl" for suffix in ("", *(f"-{n}" for n in range(1, 10_000))))
    return next(path for path in candidates if not path.exists())
