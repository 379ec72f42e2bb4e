"""Requests that cannot be answered."""

from __future__ import annotations

from typing import Any

from .types import ErrorCode

__all__ = ["Refused"]


class Refused(Exception):
    """The contract's code, what was wrong, and what the caller needs to get it right."""

    def __init__(self, code: ErrorCode, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code: ErrorCode = code
        self.message = message
        self.details = details
