"""Messages in the forms of Anthropic's and OpenAI's APIs, in records that are never rewritten."""

from __future__ import annotations

import re
from typing import Any

from ..model import EventType
from .content import count_images, exit_code_in, readable, split_reminders, tool_calls_of
from .fields import Payload, arguments_of, text_of
from .parsing import M, RecordParser


class MessageParser(RecordParser[M]):
    """A parser with the reading of user and assistant messages. Reminders around a prompt are system events."""

    exit_code: re.Pattern[str]
    """The phrase by which the agent writes an exit code into the text of a result."""

    def read_user(self, content: Any, identity: str) -> None:
        spoken: list[Any] = []
        for number, block in enumerate(content if isinstance(content, list) else [content]):
            if isinstance(block, dict) and block.get("type") == "tool_result":
                text = self.result_text(block.get("content"))
                failed = block.get("is_error")
                self.add_response(
                    text,
                    text_of(block, "tool_use_id"),
                    identity,
                    str(number),
                    exit_code=exit_code_in(text, self.exit_code),
                    failed=failed if isinstance(failed, bool) else None,
                )
            else:
                spoken.append(block)
        text, reminders = split_reminders(readable(spoken))
        if text:
            images = count_images(spoken)
            self.add_prompt(text, identity, "prompt", extra={"images": images} if images else None)
        for number, reminder in enumerate(reminders):
            self.add(EventType.SYSTEM, reminder, identity, f"reminder {number}")

    def result_text(self, content: Any) -> str:
        return readable(content)

    def read_answer(self, content: Any, identity: str, usage_key: bytes | None = None) -> None:
        blocks = content if isinstance(content, list) else [content]
        asks = any(isinstance(block, dict) and block.get("type") == "tool_use" for block in blocks)
        for number, block in enumerate(blocks):
            part, kind = str(number), block.get("type") if isinstance(block, dict) else "text"
            if kind == "tool_use":
                tool, call_id = text_of(block, "name") or "unknown", text_of(block, "id")
                # Some agents repeat a call with the next one.
                named = ("call", call_id) if call_id else (identity, part)
                self.add_call(tool, call_id, block.get("input"), self.transcript.session, *named, usage_key=usage_key)
            elif kind in ("thinking", "redacted_thinking"):
                if text := text_of(block, "thinking"):
                    self.add_reasoning(text, identity, part, usage_key=usage_key)
            elif text := readable(block):
                self.add_answer(text, identity, part, may_end_turn=not asks, usage_key=usage_key)


def read_completion(parser: RecordParser[M], message: Payload, identity: str) -> None:
    """An answer in the form of OpenAI's API: reasoning, text and tool calls beside one another."""
    calls = tool_calls_of(message)
    if thought := text_of(message, "reasoning_content"):
        parser.add_reasoning(thought, identity, "reasoning")
    if text := readable(message.get("content")):
        parser.add_answer(text, identity, "answer", may_end_turn=not calls)
    for number, call in enumerate(calls):
        parser.add_call(call.name, call.id, arguments_of(call.arguments), identity, str(number))
