"""Messages and tool calls, as spans, their events and log records carry them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from ...model import EventType
from .attributes import Meaning, decoded
from .records import LogRecord, RawEvent, RawSpan, SpanType, with_fields

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
_CONTENTS = {
    "gen_ai.content.prompt": ("input", "gen_ai.prompt"),
    "gen_ai.content.completion": ("output", "gen_ai.completion"),
}
_NAME = re.compile(r"[A-Za-z][\w.:-]{1,100}")
_ERROR = 17  # the least severity of an error
_TITLE_CHARS = 120
_REDACTED = ("<REDACTED>", "[REDACTED]")


class Message(Struct, frozen=True):
    """A message, a tool call or a tool response."""

    type: EventType
    text: str = ""
    tool: str | None = None
    call: str | None = None
    arguments: Any = None
    failed: bool | None = None
    once: bool = False
    """The id of the call alone identifies it: another report may have other words."""


def read_messages(value: Any, default: EventType) -> list[Message]:
    """The messages in the input or output of a span; `default` is the type of a plain text."""
    if isinstance(value, dict):
        messages = value.get("messages")
        value = messages if isinstance(messages, list) else [value]
    if isinstance(value, list):
        return [entry for message in value for entry in _message(message, default)]
    return [Message(default, value)] if isinstance(value, str) and value.strip() else []


def conversation(meaning: Meaning) -> list[Message]:
    """The messages of a model call, its answer last."""
    messages = read_messages(meaning.input, EventType.USER_INPUT)
    answer = read_messages(meaning.output, EventType.ASSISTANT_RESPONSE)
    if meaning.tool_calls and not any(entry.type is EventType.TOOL_CALL for entry in answer):
        calls = [{"role": "assistant", "tool_calls": meaning.tool_calls}]
        answer += read_messages(calls, EventType.ASSISTANT_RESPONSE)
    # Some agents send the whole conversation as input, and its last message again as output.
    return messages if answer == messages[-len(answer) :] else messages + answer


def _message(message: Any, default: EventType) -> Iterator[Message]:
    if isinstance(message, str):
        yield from read_messages(message, default)
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


def _part(part: Any, kind: EventType, call: str | None) -> Iterator[Message]:
    if isinstance(part, str):
        if part.strip():
            yield Message(kind, part, call=call)
        return
    if not isinstance(part, dict):
        return
    name = part.get("type") or part.get("kind")
    if name in _CALLS:
        yield _call(part)
    elif name in _RESPONSES:
        result = next((part[key] for key in ("result", "response", "output", "content") if key in part), None)
        yield Message(
            EventType.TOOL_RESPONSE,
            readable(result),
            tool=_string(part, "name", "toolName"),
            call=_string(part, "id", "toolCallId", "tool_use_id", "call_id"),
            failed=True if part.get("is_error") is True else None,
        )
    elif text := _string(part, "content", "text", "thinking"):
        yield Message(EventType.REASONING if name in _THOUGHTS else kind, text, call=call)


def _call(request: dict[str, Any]) -> Message:
    function = request.get("function")
    inner = function if isinstance(function, dict) else request
    arguments = next((inner[key] for key in ("arguments", "args", "input") if key in inner), None)
    return Message(
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


# Events of spans


class ToolOutput(Struct, frozen=True):
    """The output of a tool, which Claude Code sends if it may (`OTEL_LOG_TOOL_CONTENT=1`)."""

    output: Any
    arguments: dict[str, Any]

    def messages(self, attributes: dict[str, Any], call: str | None) -> list[Message]:
        name = attributes.get("gen_ai.tool.name") or attributes.get("tool_name")
        tool = name if isinstance(name, str) else None
        return [
            Message(EventType.TOOL_CALL, tool=tool, call=call, arguments=self.arguments, once=True),
            Message(EventType.TOOL_RESPONSE, readable(self.output), tool, call, once=True),
        ]


def take_events(raw: RawSpan, meaning: Meaning) -> ToolOutput | None:
    """Fill input and output from events that hold them, and keep what they do not show as the attribute `events`."""
    read = [_message_of(event) for event in raw.events]
    # An event whose text is also in attributes or in other events stays as it is.
    known = {"input": meaning.input is not None, "output": meaning.output is not None}
    messages = {side: [message for of, message in read if of == side] for side in known if not known[side]}
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
        attributes = {"attributes": unseen} if unseen else {}
        others.append({"name": event.name, "time": event.time, **attributes, **event.rest})
    meaning.input = messages.get("input") or meaning.input
    meaning.output = tool.output if tool is not None else messages.get("output") or meaning.output
    name = "events" if "events" not in meaning.rest else "otel.events"
    meaning.rest = with_fields(meaning.rest, {name: others})
    return tool


def _message_of(event: RawEvent) -> tuple[str | None, Any]:
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


# Log records


class Log(Struct):
    name: str
    type: SpanType = "EVENT"
    duration: int = 0
    failed: bool = False
    prompt_id: str | None = None
    call: str | None = None
    """The id of a tool call that it reports as a whole."""
    title: str | None = None
    body: Any = None
    messages: Callable[[Meaning], list[Message]] | None = None
    """The messages of the record, given the meaning of its attributes."""


def read_log(record: LogRecord, attributes: dict[str, Any]) -> Log:
    """Read the parts of a log record that `interpret` does not know. Takes shown values out of the attributes."""
    body = record.body
    # Codex: the event's name in the protocol is a place in its source.
    event = str(attributes.get("event.name") or record.event or "")
    if record.event and record.event != event:
        attributes["otel.event_name"] = record.event
    if isinstance(body, str) and _NAME.fullmatch(body) and body.endswith(event):
        event, body = body, None  # Claude Code: the body is the full name
    log = Log(event or "log", body=body)
    log.duration = _duration(attributes)
    log.prompt_id = next((str(attributes[key]) for key in ("prompt.id", "prompt_id") if attributes.get(key)), None)
    success = attributes.get("success")
    log.failed = record.severity >= _ERROR or success in (False, "false") or log.name.endswith("_error")
    action = log.name.rpartition(".")[2]
    if action == "user_prompt":
        prompt = attributes.get("prompt")
        if isinstance(prompt, str) and prompt.strip() and prompt not in _REDACTED:
            log.title = " ".join(prompt[: 4 * _TITLE_CHARS].split())[:_TITLE_CHARS]
            log.messages = lambda meaning: [Message(EventType.USER_INPUT, prompt)]
    elif action in ("tool_result", "tool_call"):
        _read_tool(log, attributes)
    elif action in ("assistant_response", "agent_response"):  # Claude Code, Codex
        answer = attributes.get("response")
        if isinstance(answer, str) and answer not in _REDACTED:
            log.body = attributes.pop("response")
            log.messages = lambda meaning: _texts(EventType.ASSISTANT_RESPONSE, answer)
    elif action == "api_response" and isinstance(attributes.get("response_text"), str):
        log.messages = lambda meaning: _texts(EventType.ASSISTANT_RESPONSE, meaning.output)
    elif event.startswith("gen_ai."):
        fields = decoded(body) if body is not None else record.attributes
        log.messages = lambda meaning: _conventional(event, fields, meaning)
    return log


def _conventional(event: str, fields: Any, meaning: Meaning) -> list[Message]:
    """The messages of an event of the GenAI conventions: one in its own fields, or those of a call in attributes."""
    table = fields if isinstance(fields, dict) else {"content": fields}
    side, message = _message_of(RawEvent(event, 0, table, {}))
    if side is None:
        return conversation(meaning)
    return read_messages(message, EventType.USER_INPUT if side == "input" else EventType.ASSISTANT_RESPONSE)


def _read_tool(log: Log, attributes: dict[str, Any]) -> None:
    tool = next((attributes[key] for key in ("tool_name", "function_name") if attributes.get(key)), None)
    if not isinstance(tool, str):
        return
    call = next((str(attributes[key]) for key in ("call_id", "tool_use_id", "prompt_id") if attributes.get(key)), None)
    log.type = "SPAN"
    log.call = call
    # Claude Code sends the output only in its spans.
    once = "tool_use_id" in attributes
    failed, error = log.failed, attributes.get("error")
    attributes.setdefault("otel.event_name", log.name)
    log.name = tool

    def messages(meaning: Meaning) -> list[Message]:
        done = [Message(EventType.TOOL_CALL, tool=tool, call=call, arguments=meaning.input, once=once)]
        output = meaning.output if isinstance(meaning.output, str) else ""
        if not output and failed and isinstance(error, str):
            output = error
        if once and not output:
            return done
        return [*done, Message(EventType.TOOL_RESPONSE, output, tool, call, failed=failed, once=once)]

    log.messages = messages


def _texts(kind: EventType, value: Any) -> list[Message]:
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    return [Message(kind, text)] if text.strip() else []


def _duration(attributes: dict[str, Any]) -> int:
    value = attributes.get("duration_ms")
    try:
        return max(0, min(int(float(value)), 1 << 40)) if isinstance(value, str | int | float) else 0
    except (ValueError, OverflowError):
        return 0
