"""Codex: rollout files of the CLI, the app, `exec` and the IDE extension, in all the formats they had."""

from .source import Codex

__all__ = ["Codex"]
