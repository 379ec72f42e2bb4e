"""Messages in the shapes that spans carry them, as what was said and done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from ...model import EventType
from .attributes import decoded

__all__ = ["Said", "readable", "said_in"]

_ROLES = {
    "user": EventType.USER_INPUT,
    "human": EventType.USER_INPUT,
    "assistant": EventType.ASSISTANT_RESPONSE,
    "model": EventType.ASSISTANT_RESPONSE,
    "ai": EventType.ASSISTANT_RESPONSE,
    "system": EventType.SYSTEM,
    "developer": EventType.SYSTEM,
    "tool": EventType.TOOL_RESPONSE,
    "function": EventType.TOOL_RESPONSE,
}
_CALLS = {"tool_call", "tool-call", "tool_use", "function_call"}
_RESPONSES = {"tool_call_response", "tool-result", "tool_result", "function_call_output"}
_THOUGHTS = {"reasoning", "thinking"}


class Said(Struct, frozen=True):
    type: EventType
    text: str = ""
    tool: str | None = None
    call: str | None = None
    arguments: Any = None
    failed: bool | None = None
    once: bool = False
    """The call's id alone says which event it is: others may tell it in other words."""


def said_in(value: Any, default: EventType) -> list[Said]:
    """What a span's input or output says; a plain text is said by whom `default` is of."""
    if isinstance(value, dict):
        messages = value.get("messages")
        value = messages if isinstance(messages, list) else [value]
    if isinstance(value, list):
        return [said for message in value for said in _message(message, default)]
    return [Said(default, value)] if isinstance(value, str) and value.strip() else []


def _message(message: Any, default: EventType) -> Iterator[Said]:
    if isinstance(message, str):
        yield from said_in(message, default)
        return
    if not isinstance(message, dict):
        return
    kind = _ROLES.get(str(message.get("role")), default)
    call = _string(message, "tool_call_id", "id") if kind is EventType.TOOL_RESPONSE else None
    content = message.get("parts", message.get("contents", message.get("content")))
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        yield from _part(part, kind, call)
    for request in message.get("tool_calls") or ():
        if isinstance(request, dict):
            yield _call(request)


def _part(part: Any, kind: EventType, call: str | None) -> Iterator[Said]:
    if isinstance(part, str):
        if part.strip():
            yield Said(kind, part, call=call)
        return
    if not isinstance(part, dict):
        return
    name = part.get("type") or part.get("kind")
    if name in _CALLS:
        yield _call(part)
    elif name in _RESPONSES:
        result = next((part[key] for key in ("result", "response", "output", "content") if key in part), None)
        yield Said(
            EventType.TOOL_RESPONSE,
            readable(result),
            tool=_string(part, "name", "toolName"),
            call=_string(part, "id", "toolCallId", "tool_use_id", "call_id"),
            failed=True if part.get("is_error") is True else None,
        )
    elif text := _string(part, "content", "text", "thinking"):
        yield Said(EventType.REASONING if name in _THOUGHTS else kind, text, call=call)


def _call(request: dict[str, Any]) -> Said:
    function = request.get("function")
    inner = function if isinstance(function, dict) else request
    arguments = next((inner[key] for key in ("arguments", "args", "input") if key in inner), None)
    return Said(
        EventType.TOOL_CALL,
        tool=_string(inner, "name", "toolName"),
        call=_string(request, "id", "toolCallId", "call_id"),
        arguments=decoded(arguments),
    )


def _string(table: dict[str, Any], *names: str) -> str | None:
    return next((value for name in names if isinstance(value := table.get(name), str) and value), None)


def readable(value: Any) -> str:
    """A value as text: texts as they are, blocks of text one after the other, everything else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(item, dict) and isinstance(item.get("text"), str) for item in value):
        return "\n".join(item["text"] for item in value)
    return "" if value is None else msgspec.json.encode(value).decode()
