"""The agents whose sessions Backstory reads: a row in `agents.py` and a module each, or a source of another package.

Another package adds a source by an entry point of the group `backstory.sources`: the name of the source, and a callable
(mostly a class) that gives an object which follows `base.Source`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from .agents import AGENTS
from .base import Source

__all__ = ["OWN_SOURCES", "SOURCES", "load_sources", "title_of"]

_log = logging.getLogger(__name__)

SOURCES: tuple[str, ...] = tuple(agent.name for agent in AGENTS)
OWN_SOURCES = ("live", "otel")
"""Those that are no coding agents: what Backstory itself received."""
_AGENTS = {agent.name: agent for agent in AGENTS}
_GROUP = "backstory.sources"
_INFO = (".dist-info", ".egg-info")


def load_sources(names: Iterable[str] | None = None) -> list[Source]:
    """The sources by name; by default all of them, those of other packages included. Raises ValueError for a name that
    is not one. A source of another package that cannot be loaded is left out, with a warning."""
    loaded: list[Source] = [_AGENTS[name] for name in (SOURCES if names is None else names) if name in _AGENTS]
    others = [] if names is None else [name for name in names if name not in _AGENTS]
    if names is None or others:
        plugins = _plugins()
        if unknown := [name for name in others if name not in plugins]:
            known = ", ".join((*SOURCES, *sorted(plugins)))
            raise ValueError(f"unknown source {unknown[0]!r}: the sources are {known}")
        loaded += [plugin for name, plugin in sorted(plugins.items()) if names is None or name in others]
    return loaded


def title_of(name: str) -> str:
    """The name of an agent for people; of a source that is not in the table, its own name."""
    agent = _AGENTS.get(name)
    return agent.title if agent else name


def _plugins() -> dict[str, Source]:
    if not _are_installed():
        return {}
    from importlib.metadata import entry_points

    found: dict[str, Source] = {}
    for point in entry_points(group=_GROUP):
        if point.name in SOURCES:
            _log.warning("the source %s of %s is left out: Backstory has one of that name", point.name, point.value)
            continue
        try:
            source: Source = point.load()()
            source.name = point.name
            found[point.name] = source
        except Exception as error:  # a fault of another package must not stop the other sources
            _log.warning("the source %s (%s) cannot be loaded: %s", point.name, point.value, error)
    return found


def _are_installed() -> bool:
    """True if an installed package names a source. A look at the files takes a millisecond, `importlib.metadata` thirty
    of them, which every search would pay."""
    for folder in sys.path:
        try:
            packages = [entry.path for entry in os.scandir(folder or ".") if entry.name.endswith(_INFO)]
        except OSError:
            continue
        for package in packages:
            try:
                if f"[{_GROUP}]" in Path(package, "entry_points.txt").read_text("utf-8"):
                    return True
            except (OSError, UnicodeDecodeError):
                continue
    return False
