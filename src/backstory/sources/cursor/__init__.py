"""Cursor: the transcripts of its agent, one file per session."""

from .transcripts import Cursor

__all__ = ["Cursor"]
