"""Word of the session files that could not be read in full: the writer of a folder leaves it, `doctor` finds it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ...config import ConfigError
from ...livefiles import STATE_FOLDER, data_folder

__all__ = ["configured_problems", "read_problems", "write_problems"]

_FILE = "problems.json"


def write_problems(folder: Path, problems: Mapping[str, str]) -> None:
    """Record what is wrong with which file of a folder, by name."""
    path = folder / STATE_FOLDER / _FILE
    with suppress(OSError):  # a full disk is no reason not to open the folder
        new = path.with_suffix(".new")
        new.write_bytes(msgspec.json.encode(problems))
        new.chmod(0o600)
        new.replace(path)


def read_problems(folder: Path) -> dict[str, str]:
    """What the writer of a folder found wrong with its files when it opened them, by file name."""
    try:
        return msgspec.json.decode((folder / STATE_FOLDER / _FILE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def configured_problems(table: Mapping[str, Any], home: Path) -> dict[Path, str]:
    """The same for the folder that the `[live]` table of a home names, by path."""
    try:
        folder = data_folder(table, home)
    except ConfigError:
        return {}
    return {folder / name: problem for name, problem in read_problems(folder).items()} if folder else {}
