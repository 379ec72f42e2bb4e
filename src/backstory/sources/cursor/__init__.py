"""Cursor: the transcripts of its agent, one file per session, and the conversations of its editor, in one database."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..base import Lookup, Parser, Stored, Transcript
from . import editor
from .transcripts import Cursor as Transcripts

__all__ = ["Cursor"]


class Cursor(Transcripts):
    def accepts(self, path: Path) -> bool:
        return path.name == editor.STORE or super().accepts(path)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        if transcript.path.name.startswith(editor.STORE):
            return editor.Bubbles(transcript)
        return super().parser(transcript, state, lookup)

    def sessions(self, path: Path) -> Iterable[Stored] | None:
        return editor.sessions(path) if path.name == editor.STORE else super().sessions(path)

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        return editor.changes(path, session, since)
