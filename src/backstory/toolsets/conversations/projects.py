"""Which project folders a server speaks of, and what it calls them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable

__all__ = ["Projects"]

_WILDCARD = re.compile(r"[*?\[]")


class Projects:
    """A glob pattern over the names of Claude Code's project folders."""

    def __init__(self, pattern: str = "*") -> None:
        self.pattern = pattern
        self._prefix = _WILDCARD.split(pattern, maxsplit=1)[0]

    def matches(self, folder: str) -> bool:
        return fnmatch.fnmatchcase(folder, self.pattern)

    def name(self, folder: str) -> str:
        """The folder without what all folders of the pattern begin with: `-home-me-sites-blog` is `blog` under
        `-home-me-sites*`."""
        if not self._prefix:
            return folder
        return folder.removeprefix(self._prefix).lstrip("-") or folder

    def select(self, folders: Iterable[str], part: str | None) -> tuple[str, ...]:
        """The folders that match the pattern and, if given, whose name has the part in it, in any case."""
        wanted = (part or "").casefold()
        return tuple(f for f in folders if self.matches(f) and wanted in self.name(f).casefold())

    def has_all(self, part: str | None) -> bool:
        """Whether every folder there may be would be selected."""
        return self.pattern == "*" and not part
