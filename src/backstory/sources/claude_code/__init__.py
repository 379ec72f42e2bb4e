"""Claude Code: transcripts below `~/.claude/projects`, and those of Claude Desktop's agent mode (Cowork)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .source import ClaudeCode

__all__ = ["ClaudeCode"]


def __getattr__(name: str) -> Any:
    """The source, which is loaded when it is asked for: a search asks for the folders only (`layout`)."""
    if name == "ClaudeCode":
        from .source import ClaudeCode

        return ClaudeCode
    raise AttributeError(name)
