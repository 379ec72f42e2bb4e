"""Tokens: one `Usage` for each model call, however often Codex repeats the count."""

from __future__ import annotations

from typing import Any

from ..base import Item, Usage
from .fields import Payload, integer, mapping_of
from .session import Session

__all__ = ["call_usage", "read_counts", "token_count", "token_usage_record"]

Counts = tuple[int, ...]
"""Input (with what was cached), cached, written to the cache, output (with reasoning), reasoning."""


def read_counts(usage: Any) -> Counts | None:
    """Counts by the names they have today, and by those of versions before it had settled."""
    if not isinstance(usage, dict):
        return None
    return (
        _count(usage, "input_tokens") or _count(usage, "prompt"),
        _count(usage, "cached_input_tokens"),
        _count(usage, "cache_write_input_tokens"),
        _count(usage, "output_tokens") or _count(usage, "completion"),
        _count(usage, "reasoning_output_tokens")
        or _count(mapping_of(usage, "output_tokens_details"), "reasoning_tokens"),
    )


def _count(usage: Payload, name: str) -> int:
    return max(integer(usage.get(name)) or 0, 0)


def token_usage_record(session: Session, payload: Payload) -> list[Item]:
    """Written as soon as a model call is over, and repeated by the `token_count` that follows what the call started."""
    counts = read_counts(payload.get("usage"))
    session.state.usage_recorded = counts
    return call_usage(session, counts)


def token_count(session: Session, payload: Payload) -> list[Item]:
    """`last_token_usage` is the call's own count, `total_token_usage` the running total of the session. A record whose
    total has not moved repeats an earlier one: Codex writes those whenever rate limits change or a turn begins."""
    info = payload.get("info")
    if not isinstance(info, dict):
        info = payload
    state = session.state
    total = read_counts(info.get("total_token_usage"))
    before = state.usage_total
    if total is not None:
        state.usage_total = total
        if total == before:
            return []
    last = read_counts(info.get("last_token_usage"))
    recorded, state.usage_recorded = state.usage_recorded, None
    if recorded is not None and last in (recorded, None):
        return []
    if last is None:
        last = read_counts(info) if total is None else _growth(before, total, inherits=bool(state.ancestors))
    return call_usage(session, last)


def _growth(before: Counts | None, total: Counts, *, inherits: bool) -> Counts | None:
    if before is None:
        return None if inherits else total  # a fork's first total holds its ancestor's tokens
    if total < before:
        return total  # the count began anew
    return tuple(max(now - then, 0) for now, then in zip(total, before, strict=True))


def call_usage(session: Session, counts: Counts | None) -> list[Item]:
    if counts is None or not any(counts):
        return []
    usage = Usage(
        key=session.usage_key,
        model=session.state.model,
        ts=session.state.ts,
        input_tokens=counts[0],
        cache_read_tokens=counts[1],
        cache_write_5m_tokens=counts[2],
        output_tokens=counts[3],
        reasoning_tokens=counts[4],
    )
    session.end_model_call()
    return [usage]
