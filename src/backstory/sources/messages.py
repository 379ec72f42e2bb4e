"""Messages in the forms of Anthropic's and OpenAI's APIs: `MessageParser` reads records that are only added, `Blocks`
those that are rewritten."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from ..model import EventType
from .base import Item
from .content import blocks_of, count_images, exit_code_in, is_unknown, readable, split_reminders, spoken, tool_calls_of
from .decoding import decode_or_none, encode
from .fields import Payload, arguments_of, mapping_of, mappings_of, text_of
from .parsing import M, RecordParser, Writer


class MessageParser(RecordParser[M]):
    """A parser with the reading of user and assistant messages. Reminders around a prompt are system events."""

    exit_code: re.Pattern[str]
    """The phrase by which the agent writes an exit code into the text of a result."""

    def read_user(self, content: Any, identity: str) -> None:
        said: list[Any] = []
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
                said.append(block)
        text, reminders = split_reminders(spoken(said))
        if text:
            images = count_images(said)
            self.add_prompt(text, identity, "prompt", extra={"images": images} if images else None)
        for number, reminder in enumerate(reminders):
            self.add(EventType.SYSTEM, reminder, identity, f"reminder {number}")
        self.add_unknown_blocks(said, identity)

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
            elif is_unknown(block):
                self.add_unknown(block, identity, part)
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


Texts = Callable[[Writer, str, str], Iterator[Item]]
"""The items of a text block in a user's message: the writer, the part's name, the text."""


class Blocks:
    """Turns messages into items. It knows the names of the tools that were called so far."""

    def __init__(self, texts: Texts | None = None) -> None:
        self._texts = texts or _prompt
        self._tools: dict[str, str] = {}

    def user(self, write: Writer, content: Any) -> Iterator[Item]:
        for number, block in enumerate(mappings_of(blocks_of(content))):
            match block.get("type"):
                case "text":
                    yield from self._texts(write, str(number), text_of(block, "text") or "")
                case "tool_result":
                    yield self._result(write, str(number), block)
                case "image" | "document" | "file":
                    pass
                case _:
                    yield write.event(str(number), EventType.UNKNOWN, encode(block))

    def assistant(self, write: Writer, content: Any, *, ends: bool | None = None) -> Iterator[Item]:
        """`ends`: the agent says that the turn is over, or that it is not; None: an answer without calls may end it."""
        blocks = mappings_of(blocks_of(content))
        calls = any(block.get("type") == "tool_use" for block in blocks)
        may_end = ends is None and not calls
        last = max((number for number, block in enumerate(blocks) if block.get("type") == "text"), default=-1)
        for number, block in enumerate(blocks):
            part = str(number)
            match block.get("type"):
                case "text":
                    if text := text_of(block, "text"):
                        end = bool(ends) and number == last
                        yield write.answer(part, text, ends_turn=end, may_end_turn=may_end)
                case "thinking" | "reasoning":
                    if text := text_of(block, "thinking", "text", "summary"):
                        yield write.thought(part, text)
                case "tool_use":
                    call_id, tool = text_of(block, "id") or "", text_of(block, "name") or "unknown"
                    self._tools[call_id] = tool
                    given = block.get("input")
                    yield write.call(part, tool, call_id, decode_or_none(given) if isinstance(given, str) else given)
                case "tool_result":  # of a tool that ran where the model is
                    yield self._result(write, part, block)
                case "redacted_thinking" | "image" | "token_budget" | "flag":
                    pass
                case _:
                    yield write.event(part, EventType.UNKNOWN, encode(block))

    def _result(self, write: Writer, part: str, block: Payload) -> Item:
        call_id = text_of(block, "tool_use_id", "toolUseID") or ""
        content = block.get("content")
        decoded = decode_or_none(content) if isinstance(content, str) and content.startswith('{"query"') else None
        entries = [decoded] if isinstance(decoded, dict) else content
        failed: bool | None = block["is_error"] if isinstance(block.get("is_error"), bool) else None
        if isinstance(entries, list):
            entries = [mapping_of(entry) for entry in entries]
            text = "\n".join(_entry_text(entry) for entry in entries)
            if any("success" in entry for entry in entries):
                failed = any(entry.get("success") is False for entry in entries)
        else:
            text = content if isinstance(content, str) else ""
        tool = text_of(block, "name") or self._tools.get(call_id)
        return write.text_result(part, tool, call_id, text, failed=bool(failed))


def _prompt(write: Writer, part: str, text: str) -> Iterator[Item]:
    if text.strip():
        yield write.prompt(part, text)


def _entry_text(entry: Payload) -> str:
    """A part of a result: a block of text, or the output of one of several commands."""
    result = entry.get("result")
    text = text_of(entry, "text") or (result if isinstance(result, str) else encode(result) if result else "")
    error = text_of(entry, "error")
    return f"{text}\n{error}" if error and error not in text else text
