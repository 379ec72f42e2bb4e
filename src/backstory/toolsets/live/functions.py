"""The functions of the contract by name: description, request and response schema."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

__all__ = ["Function"]


class Function(Struct, frozen=True):
    id: str
    description: str
    request_schema: dict[str, Any]
    response_schema: dict[str, Any]
