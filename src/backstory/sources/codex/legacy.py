"""Rollouts from before the envelope {timestamp, type, payload}: each record becomes what it would be inside one.

Seen are, from the oldest: one JSON file {session, items}; lines that are response items, after a header line without a
type; lines with a role and a content or message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .fields import Payload

__all__ = ["Envelope", "is_bare_record", "json_records", "open_envelope"]

_BARE_TYPES = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "function_call",
    "tool_call": "function_call",
    "local_shell_call": "local_shell_call",
    "custom_tool_call": "custom_tool_call",
    "web_search_call": "web_search_call",
    "function_call_output": "function_call_output",
    "custom_tool_call_output": "custom_tool_call_output",
    "local_shell_call_output": "function_call_output",
    "function_result": "function_call_output",
    "tool_result": "function_call_output",
}


class Envelope(NamedTuple):
    type: str
    payload: Payload
    timestamp: Any


def open_envelope(record: Any) -> Envelope:
    """The record's type, payload and time. Raises ValueError for what was never a record of Codex."""
    if not isinstance(record, dict):
        raise ValueError("record is not a JSON object")
    kind, payload = record.get("type"), record.get("payload")
    if isinstance(kind, str) and isinstance(payload, dict):
        return Envelope(kind, payload, record.get("timestamp"))
    if isinstance(kind, str) and "payload" in record:
        raise ValueError(f"payload of a {kind[:60]} record is not a JSON object")
    time = record.get("timestamp", record.get("created_at"))
    if is_bare_record(record):
        return Envelope("response_item", _response_item(record), time)
    if _is_header(record):
        return Envelope("session_meta", record, time)
    if isinstance(kind, str) or isinstance(kind := record.get("record_type"), str):
        return Envelope(kind, record, time)
    raise ValueError("record has neither type nor role")


def is_bare_record(record: Payload) -> bool:
    kind = record.get("type")
    if isinstance(kind, str):
        return kind in _BARE_TYPES
    return record.get("role") in ("user", "assistant", "system", "developer")


def _is_header(record: Payload) -> bool:
    return "type" not in record and isinstance(record.get("id"), str) and ("timestamp" in record or "git" in record)


def _response_item(record: Payload) -> Payload:
    kind = record.get("type")
    item = {**record, "type": _BARE_TYPES[kind] if isinstance(kind, str) else "message"}
    if "content" not in item and "message" in item:
        item["content"] = item["message"]
    return item


def json_records(document: Any) -> Iterator[Any]:
    """The records of the one-file format."""
    if not isinstance(document, dict) or not isinstance(items := document.get("items"), list):
        raise ValueError("not a Codex session: it has no list of items")
    session = document.get("session")
    if isinstance(session, dict):
        yield {"timestamp": session.get("timestamp"), "type": "session_meta", "payload": session}
    yield from items
