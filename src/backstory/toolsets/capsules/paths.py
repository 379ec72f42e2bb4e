"""Files of exports and imports: only in the folders that the settings allow, and never through a symlink."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec
from msgspec import Struct

from .answers import CapsuleError

# A project may narrow the allowed folders for the agents that work in it.
PROJECT_FILE = ".backstory.toml"
# A temporary file this old belongs to an export that was killed.
_STALE_SECONDS = 3_600
_SHOWN_CHARS = 300


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
    part = path.with_name(f".backstory-{secrets.token_hex(6)}.part")
    try:
        _make_private_parents(path)
        _remove_stale_parts(path.parent)
        if path.is_dir():
            raise CapsuleError.invalid("path", f"{path} is a folder")
        descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(descriptor)
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        _sync_folder(path.parent)
    except OSError as error:
        raise _unusable(path, error) from None


def _remove_stale_parts(folder: Path) -> None:
    """Remove the temporary files of exports that were killed."""
    for part in folder.glob(".backstory-*.part"):
        with suppress(OSError):
            if part.stat().st_mtime < time.time() - _STALE_SECONDS:
                part.unlink()


def _make_private_parents(path: Path) -> None:
    """Create the missing folders above `path`, for their owner only."""
    missing = []
    folder = path.parent
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)


def _sync_folder(folder: Path) -> None:
    """Write the new name to the disk. Where folders cannot be opened, as on Windows, that is left to the system."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unusable(path: Path, error: OSError) -> CapsuleError:
    """The error for a file that cannot be used: about the path, unless the disk is full."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return CapsuleError.internal(f"{path} cannot be written: {error.strerror}; make room and try again")
    shown = str(path) if len(str(path)) <= _SHOWN_CHARS else f"{str(path)[:_SHOWN_CHARS]}…"
    return CapsuleError.invalid("path", f"{shown} cannot be used: {error.strerror}")


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
