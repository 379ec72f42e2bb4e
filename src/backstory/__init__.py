"""Backstory: the memory of coding agents."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .library import Library, Scope

__all__ = ["__version__", "open_archive"]
__version__ = "0.1.0"


def open_archive(
    home: str | os.PathLike[str] | None = None, *, scope: Scope = "local", name_origins: bool = True
) -> Library:
    """The archive below `home` (by default `BACKSTORY_HOME` or `~/.backstory`), made when it is not there yet.

    `scope` selects the archive that is searched: that of this machine, of the team in its settings, or both; with
    `name_origins`, answers name the members and machines of a team among their warnings.
    """
    from .library import Library

    return Library(None if home is None else Path(home), here=_here(), scope=scope, name_origins=name_origins)


def _here() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was deleted
        return None
