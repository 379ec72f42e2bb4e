"""Log records that tell of an agent's work: prompts, model calls, tool calls of Claude Code, Codex and Gemini CLI."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from ...archive.spans import SpanType
from ...model import EventType
from .attributes import Meaning
from .messages import Said
from .records import LogRecord

__all__ = ["Log", "read_log"]

_NAME = re.compile(r"[A-Za-z][\w.:-]{1,100}")
_ERROR = 17  # the least severity of an error
_TITLE_CHARS = 120
_REDACTED = ("<REDACTED>", "[REDACTED]")


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
    said: Callable[[Meaning], list[Said]] | None = None
    """What was said, given what the attributes mean."""


def read_log(record: LogRecord, attributes: dict[str, Any]) -> Log:
    """Reads what `interpret` does not know; what it takes out of the attributes is not needed any more."""
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
            log.said = lambda meaning: [Said(EventType.USER_INPUT, prompt)]
    elif action in ("tool_result", "tool_call"):
        _read_tool(log, attributes)
    elif action in ("assistant_response", "agent_response"):  # Claude Code, Codex
        answer = attributes.get("response")
        if isinstance(answer, str) and answer not in _REDACTED:
            log.body = attributes.pop("response")
            log.said = lambda meaning: _texts(EventType.ASSISTANT_RESPONSE, answer)
    elif action == "api_response" and isinstance(attributes.get("response_text"), str):
        log.said = lambda meaning: _texts(EventType.ASSISTANT_RESPONSE, meaning.output)
    return log


def _read_tool(log: Log, attributes: dict[str, Any]) -> None:
    tool = next((attributes[key] for key in ("tool_name", "function_name") if attributes.get(key)), None)
    if not isinstance(tool, str):
        return
    call = next((str(attributes[key]) for key in ("call_id", "tool_use_id", "prompt_id") if attributes.get(key)), None)
    log.type = "SPAN"
    log.call = call
    # Claude Code tells the output only in its spans.
    once = "tool_use_id" in attributes
    failed, error = log.failed, attributes.get("error")
    attributes.setdefault("otel.event_name", log.name)
    log.name = tool

    def said(meaning: Meaning) -> list[Said]:
        done = [Said(EventType.TOOL_CALL, tool=tool, call=call, arguments=meaning.input, once=once)]
        output = meaning.output if isinstance(meaning.output, str) else ""
        if not output and failed and isinstance(error, str):
            output = error
        if once and not output:
            return done
        return [*done, Said(EventType.TOOL_RESPONSE, output, tool, call, failed=failed, once=once)]

    log.said = said


def _texts(kind: EventType, value: Any) -> list[Said]:
    text = value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()
    return [Said(kind, text)] if text.strip() else []


def _duration(attributes: dict[str, Any]) -> int:
    value = attributes.get("duration_ms")
    try:
        return max(0, min(int(float(value)), 1 << 40)) if isinstance(value, str | int | float) else 0
    except (ValueError, OverflowError):
        return 0
