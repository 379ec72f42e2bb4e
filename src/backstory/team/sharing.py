"""The rules of sharing: the sessions that may leave this machine. Without a rule none may."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from pathlib import Path

from ..archive.base import SessionRow
from ..config import ConfigError, TeamSettings
from ..model import parse_time
from .parcel import is_clean_key

_WILDCARD = re.compile(r"[*?]|\[[^]]*\]")
# Received spans are no sessions of an agent; live sessions have other participants.
_NEVER = frozenset({"otel", "live"})


class Projects:
    """Patterns of projects. One matches a project by the identity of its repository (`github.com/acme/*`) or by its
    folder (`~/work/shop`), and then also what is below it; `*` matches everything, `/` included."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        expanded = (str(Path(each).expanduser()) if each.startswith("~") else each for each in patterns)
        self._match = _pattern(tuple(each.rstrip("/") or "/" for each in expanded))

    @property
    def everything(self) -> bool:
        return "*" in self.patterns

    @property
    def literals(self) -> list[str]:
        """For each pattern its longest part without wildcards, which every match contains; none if one has no such
        part."""
        longest = [max(_WILDCARD.split(pattern), key=len) for pattern in self.patterns]
        return longest if all(longest) else []

    def match(self, row: SessionRow) -> bool:
        return self.everything or any(self.match_name(name) for name in (row.project, row.cwd) if name)

    def match_name(self, name: str) -> bool:
        """True for the identity or the folder of a project that matches."""
        return self._match.match(name.casefold()) is not None


@lru_cache
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    forms = [translate(form) for each in patterns for form in (each.casefold(), f"{each.casefold()}/*")]
    return re.compile("|".join(forms) or r"(?!)")


class Sharing:
    """The rules of `[team]`. Raises ConfigError for a `since` that is no time."""

    def __init__(self, settings: TeamSettings) -> None:
        self._projects = Projects(settings.projects)
        self._agents = frozenset(settings.agents)
        self._since = 0
        if settings.since:
            since = parse_time(settings.since)
            if since is None:
                raise ConfigError(f"team.since: {settings.since!r} is not a date (2026-01-31) or an RFC 3339 time")
            self._since = since

    def covered(self, sessions: Mapping[str, SessionRow], withheld: Collection[str]) -> set[str]:
        """The keys of the sessions that are to be shared, of all sessions of the archive."""
        return {key for key in sessions if self._covers(key, sessions, withheld) and is_clean_key(key)}

    def _covers(self, key: str, sessions: Mapping[str, SessionRow], withheld: Collection[str]) -> bool:
        """A session is covered if it matches and all those that led to it do; a subagent without a project takes that
        of the session that started it."""
        row = sessions[key]
        seen = set()
        has_project = False
        while True:
            if row.key in withheld or row.key in seen or row.source in _NEVER:
                return False
            seen.add(row.key)
            if row.cwd or row.project:
                has_project = True
                if not self._projects.match(row):
                    return False
            if (self._agents and row.source not in self._agents) or row.started_at < self._since:
                return False
            if row.parent is None or row.parent not in sessions:
                # One without a project is covered by `*` alone.
                return has_project or self._projects.everything
            row = sessions[row.parent]
