"""Sessions that telemetry told of: files that whoever receives it appends to, and the source `otel` reads."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from .model import EventType, file_name
from .model import session_of_file as session_of

__all__ = ["FOLDER", "Line", "file_name", "session_of"]

FOLDER = "otel"
"""Below Backstory's home."""


class Line(Struct, omit_defaults=True):
    """One event as it is kept; the names are short because there are many."""

    uid: str
    ts: int
    type: EventType
    text: str = ""
    tool: str | None = None
    call: str | None = None
    arguments: Any = None
    model: str | None = None
    failed: bool | None = None
    cwd: str | None = None
