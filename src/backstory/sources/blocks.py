"""Messages whose content is a list of blocks, as Anthropic's API has them, in the order of their conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..model import EventType
from .base import Item
from .decoding import decode_or_none, encode
from .fields import Payload, mapping_of, text_of
from .stateless import Writer, exit_code_in

Texts = Callable[[Writer, str, str], Iterator[Item]]
"""The items of a text block in a user's message: the writer, the part's name, the text."""


class Blocks:
    """Turns messages into items. It knows the names of the tools that were called so far."""

    def __init__(self, texts: Texts | None = None) -> None:
        self._texts = texts or _prompt
        self._tools: dict[str, str] = {}

    def user(self, write: Writer, content: Any) -> Iterator[Item]:
        for number, block in enumerate(_blocks(content)):
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
        blocks = _blocks(content)
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
        exit_code = exit_code_in(text, tool)
        return write.result(part, tool, call_id, text, exit_code=exit_code, failed=bool(failed) or bool(exit_code))


def _prompt(write: Writer, part: str, text: str) -> Iterator[Item]:
    if text.strip():
        yield write.prompt(part, text)


def _entry_text(entry: Payload) -> str:
    """A part of a result: a block of text, or what one of several commands gave."""
    result = entry.get("result")
    text = text_of(entry, "text") or (result if isinstance(result, str) else encode(result) if result else "")
    error = text_of(entry, "error")
    return f"{text}\n{error}" if error and error not in text else text


def _blocks(content: Any) -> list[Payload]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [mapping_of(block) for block in content] if isinstance(content, list) else []
