"""Backstory: the memory of coding agents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .library import Library

__all__ = ["__version__", "open_archive"]
__version__ = "0.1.0"


def open_archive(home: str | os.PathLike[str] | None = None) -> Library:
    """The archive below `home` (by default `BACKSTORY_HOME` or `~/.backstory`), made when it is not there yet."""
    from .library import Library

    return Library(None if home is None else Path(home), here=_here())


def _here() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None
