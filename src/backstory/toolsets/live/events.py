"""What happened in the store, and who wants to know."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, Struct, UnsetType

__all__ = ["Deliver", "Event", "TriggerType"]

Deliver = Callable[[dict[str, Any], int], Awaitable[None]]
"""`await deliver(payload, seq)`: the payload of one event (shared between subscribers, never to be changed)."""


class Event(Struct, frozen=True, omit_defaults=True):
    """One event; its JSON is the envelope of `session::store::events`."""

    seq: int
    """Position in the store-wide order, also in the payload as `seq`."""
    trigger_type: str
    payload: dict[str, Any]
    session_metadata: dict[str, Any] | UnsetType = UNSET


class TriggerType(Struct, frozen=True):
    """A kind of event to bind to."""

    id: str
    description: str
    config_schema: dict[str, Any]
