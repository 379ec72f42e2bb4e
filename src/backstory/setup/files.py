"""Writing files of agents so that it can be taken back: backups, and a journal of what was written.

The journal and the backups are in `setup/` below Backstory's home. The journal has, for each file, the backup of what
was there before Backstory wrote to it first, and the digest of what Backstory left there. While the digest holds, the
backup is put back to the byte; once another program has changed the file, only Backstory's own entries are removed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from ..config import make_private_folder
from ..files import replacing
from .documents import Format, Refused
from .server import Probe


class Entry(Struct, frozen=True):
    """An entry of Backstory in a file; without a path, the whole file is Backstory's."""

    agent: str
    format: Format | None = None
    path: tuple[str, ...] = ()
    item: str | None = None
    """The mark of Backstory's item, where the entry is a list or a block of text that others write to as well."""


class Written(Struct):
    """A file that Backstory has written to."""

    backup: str | None
    """The name of the backup; None: there was no file, or `exact` is false."""
    digest: str
    exact: bool = True
    """Nothing but Backstory has written to it since the backup."""
    folders: list[str] = []
    """Folders that were made for it, the outermost first."""
    entries: list[Entry] = []


class Outcome(Struct, kw_only=True):
    """The change of one file of an agent."""

    agent: str
    file: str
    action: Literal["added", "updated", "unchanged", "refused", "removed", "restored"]
    by: str | None = None
    """The agent's own command, if that wrote the file."""
    backup: str | None = None
    reason: str | None = None
    probe: Probe | None = None


class Journal:
    """The journal of changes, kept in a file and saved with every change."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "setup"
        self._path = self.folder / "journal.json"
        self.files: dict[str, Written] = {}
        if self._path.exists():
            self.files = msgspec.json.decode(self._path.read_bytes(), type=dict[str, Written])

    def write(self, path: Path, text: str, *entries: Entry) -> None:
        """Write a file, with a backup of what is there. Raises Refused for a file that must not be written to."""
        before = read_bytes(path)
        folders = [folder for folder in reversed(path.resolve().parents) if not folder.exists()]
        replace_file(path, text.encode())
        self.note(path, before, *entries, folders=folders)

    def note(self, path: Path, before: bytes | None, *entries: Entry, folders: Sequence[Path] = ()) -> None:
        """Remember that these entries were written to a file; `before` is what was there."""
        now = read_bytes(path)
        if now is None or now == before:
            return
        written = self.files.get(str(path))
        if written is None:
            written = Written(self._back_up(path, before), "", folders=list(map(str, folders)))
            self.files[str(path)] = written
        elif before is None or digest(before) != written.digest:
            written.exact, written.backup = False, None
        written.digest = digest(now)
        written.entries += [entry for entry in entries if entry not in written.entries]
        self.save()

    def restore(self, path: Path) -> bool:
        """Put back what was there before Backstory; False if another program has written to the file since."""
        written = self.files[str(path)]
        now = read_bytes(path)
        if now is not None and not (written.exact and digest(now) == written.digest):
            return False
        if now is not None:
            if written.backup is None:
                path.resolve().unlink()  # a link that led to no file is as it was
            else:
                replace_file(path, (self.folder / written.backup).read_bytes())
        for folder in reversed(written.folders):
            try:
                Path(folder).rmdir()
            except OSError:  # another program uses it
                break
        self.forget(path)
        return True

    def forget(self, path: Path) -> None:
        written = self.files.pop(str(path))
        if written.backup is not None:
            (self.folder / written.backup).unlink(missing_ok=True)
        self.save()

    def save(self) -> None:
        make_private_folder(self.folder)
        replace_file(self._path, msgspec.json.format(msgspec.json.encode(self.files), indent=1))

    def _back_up(self, path: Path, before: bytes | None) -> str | None:
        if before is None:
            return None
        make_private_folder(self.folder)
        name = f"{hashlib.sha256(str(path).encode()).hexdigest()[:12]}-{path.name}"
        replace_file(self.folder / name, before)
        return name


def read_bytes(path: Path) -> bytes | None:
    """The bytes of a file; None when there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(f"it cannot be read: {error.strerror}") from None


def read_text(path: Path) -> str:
    """The text of a file, empty when there is none. Raises Refused for what is not UTF-8."""
    try:
        return (read_bytes(path) or b"").decode()
    except UnicodeDecodeError:
        raise Refused("it is not UTF-8") from None


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check_writable(path: Path) -> None:
    """Raises Refused for a file, or the folder of a new file, that this user cannot write to."""
    file = path.resolve()
    target = file if file.exists() else next(folder for folder in file.parents if folder.exists())
    # The superuser may write to everything, but a file without any write permission is one its owner has locked.
    if not os.access(target, os.W_OK) or not target.stat().st_mode & 0o222:
        raise Refused("it is read-only" if target == file else f"the folder {target} is read-only")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file at once or not at all. A link stays a link, and permissions stay as they are."""
    check_writable(path)
    target = path.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o7777 if target.exists() else 0o600
    try:
        with replacing(target, mode=mode, durable=True) as file:
            file.write(data)
    except OSError as error:
        raise Refused(f"it cannot be written: {error.strerror}") from None
