"""Which project folders a server speaks of, and what it calls them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable

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

    def having(self, part: str | None) -> Callable[[str], bool] | None:
        """Selects the folders that match the pattern and, if given, whose name has the part in it, in any case. None
        where that is every folder."""
        if self.pattern == "*" and not part:
            return None
        folded = (part or "").casefold()
        return lambda folder: self.matches(folder) and folded in self.name(folder).casefold()
