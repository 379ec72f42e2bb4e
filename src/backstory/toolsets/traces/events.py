"""Events of spans: messages and tool outputs that come as events, and all others."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...model import EventType
from .attributes import Meaning, decoded
from .messages import Said, readable
from .records import RawEvent, RawSpan, with_fields

__all__ = ["ToolOutput", "take_events"]

_CONTENTS = {
    "gen_ai.content.prompt": ("input", "gen_ai.prompt"),
    "gen_ai.content.completion": ("output", "gen_ai.completion"),
}


class ToolOutput(Struct, frozen=True):
    """What Claude Code tells of a tool's work when it may (`OTEL_LOG_TOOL_CONTENT=1`)."""

    output: Any
    arguments: dict[str, Any]

    def said(self, attributes: dict[str, Any], call: str | None) -> list[Said]:
        name = attributes.get("gen_ai.tool.name") or attributes.get("tool_name")
        tool = name if isinstance(name, str) else None
        return [
            Said(EventType.TOOL_CALL, tool=tool, call=call, arguments=self.arguments, once=True),
            Said(EventType.TOOL_RESPONSE, readable(self.output), tool, call, once=True),
        ]


def take_events(raw: RawSpan, meaning: Meaning) -> ToolOutput | None:
    """Fill input and output from events that hold them, and keep what they do not show as the attribute `events`."""
    read = [_message(event) for event in raw.events]
    # Where attributes or other events tell the same already, an event stays what it is.
    told = {"input": meaning.input is not None, "output": meaning.output is not None}
    messages = {side: [message for of, message in read if of == side] for side in told if not told[side]}
    tool: ToolOutput | None = None
    others = []
    for event, (side, _) in zip(raw.events, read, strict=True):
        unseen = event.attributes
        if messages.get(side or ""):
            unseen = {}
        elif event.name == "tool.output" and tool is None and messages.get("output") == []:
            key = next((key for key in ("output", "content") if unseen.get(key) is not None), None)
            arguments = {name: value for name, value in unseen.items() if name != key}
            tool = ToolOutput(arguments if key is None else unseen[key], arguments)
            unseen = {} if key is None else arguments
        others.append(_entry(event, unseen))
    meaning.input = messages.get("input") or meaning.input
    meaning.output = tool.output if tool is not None else messages.get("output") or meaning.output
    name = "events" if "events" not in meaning.rest else "otel.events"
    meaning.rest = with_fields(meaning.rest, {name: others})
    return tool


def _entry(event: RawEvent, attributes: dict[str, Any]) -> dict[str, Any]:
    return {"name": event.name, "time": event.time, **({"attributes": attributes} if attributes else {}), **event.rest}


def _message(event: RawEvent) -> tuple[str | None, Any]:
    name, attributes = event.name, event.attributes
    if name.startswith("gen_ai.") and name.endswith(".message"):
        return "input", {"role": name.split(".")[1], **_decoded(attributes)}
    if name == "gen_ai.choice":
        fields = _decoded(attributes)
        message = fields.pop("message", None)
        if not isinstance(message, dict):
            message = {} if message is None else {"message": message}
        return "output", {"role": "assistant", **fields, **message}
    if name in _CONTENTS and len(attributes) == 1:
        side, key = _CONTENTS[name]
        return (side, decoded(attributes[key])) if key in attributes else (None, None)
    return None, None


def _decoded(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: decoded(value) for name, value in attributes.items()}
