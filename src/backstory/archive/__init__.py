"""The archive: a small protocol (`base`), and the engines that implement it. `open_engine` is the only way to one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .base import Archive


def open_engine(name: str, home: Path) -> Archive:
    """Open the archive below `home` with the engine of this name. Raises KeyError for an unknown one."""
    match name:
        case "local":
            from .local.archive import LocalArchive

            return LocalArchive(home)
    raise KeyError(name)
