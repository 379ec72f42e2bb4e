"""Tokens of one API message."""

from __future__ import annotations

from typing import Any

from ...model import digest
from ..base import Usage
from .content import string

__all__ = ["count", "read_usage", "usage_key"]


def usage_key(message: dict[str, Any], record: dict[str, Any], identity: str) -> bytes:
    """The model call: all records of one API message share it, copies in forks too."""
    if message_id := string(message, "id"):
        return digest("claude-code", message_id, string(record, "requestId") or "")
    return digest("claude-code", "message", identity)


def read_usage(message: dict[str, Any], record: dict[str, Any], key: bytes) -> Usage | None:
    usage = message.get("usage")
    if not isinstance(usage, dict):
        return None
    read = count(usage, "cache_read_input_tokens")
    created = count(usage, "cache_creation_input_tokens")
    by_age = usage.get("cache_creation")
    one_hour = count(by_age, "ephemeral_1h_input_tokens")
    # The split by age is newer than the total, and what it leaves open was written for the default of five minutes.
    five_minutes = max(created - one_hour, count(by_age, "ephemeral_5m_input_tokens"))
    details = usage.get("output_tokens_details")
    cost = record.get("costUSD")
    return Usage(
        key=key,
        model=string(message, "model"),
        input_tokens=count(usage, "input_tokens") + read + one_hour + five_minutes,
        output_tokens=count(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_5m_tokens=five_minutes,
        cache_write_1h_tokens=one_hour,
        reasoning_tokens=count(details, "thinking_tokens") or count(details, "reasoning_tokens"),
        cost=cost if isinstance(cost, float) else None,
        stop_reason=string(message, "stop_reason"),
        request=string(record, "requestId"),
    )


def count(table: Any, field: str) -> int:
    """A number of tokens; whatever else stands there is none."""
    value = table.get(field) if isinstance(table, dict) else None
    return value if type(value) is int and value > 0 else 0
