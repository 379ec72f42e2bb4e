"""The one error a caller of `session::*` ever sees."""

from __future__ import annotations

from typing import Literal

__all__ = ["Code", "InUse", "LiveError"]

Code = Literal[
    "not_found",
    "entry_not_found",
    "parent_not_found",
    "invalid_entry_kind",
    "details_not_supported",
    "empty_batch",
    "invalid_cursor",
    "invalid_request",
    "storage",
]


class LiveError(Exception):
    """A refused or failed call. Its text is what goes over every wire: `session/<code>: <message>`."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(f"session/{code}: {message}")
        self.code = code
        self.message = message


class InUse(LiveError):
    """Another process has the folder. `url` is where it serves it, if it does."""

    def __init__(self, message: str, url: str) -> None:
        super().__init__("storage", message)
        self.url = url
