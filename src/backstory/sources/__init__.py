"""The agents whose transcripts Backstory reads, each in a module of its own."""

from __future__ import annotations

from collections.abc import Iterable

from .base import Source

__all__ = ["OWN_SOURCES", "SOURCES", "load_sources"]

SOURCES: tuple[str, ...] = ("claude-code", "codex", "live", "otel")
OWN_SOURCES = ("live", "otel")
"""Those that are no coding agents: what Backstory itself received."""


def load_sources(names: Iterable[str] | None = None) -> list[Source]:
    """The sources by name, all of them by default. Raises ValueError for a name that is not one."""
    return [_load(name) for name in (SOURCES if names is None else names)]


def _load(name: str) -> Source:
    match name:
        case "claude-code":
            from .claude_code import ClaudeCode

            return ClaudeCode()
        case "codex":
            from .codex import Codex

            return Codex()
        case "live":
            from .live import Live

            return Live()
        case "otel":
            from .otel import Otel

            return Otel()
    raise ValueError(f"unknown source {name!r}: the sources are {', '.join(SOURCES)}")
