"""Exchanges: the user records that begin one, and the answers and tool calls in it.

Where history asks what a person typed, an exchange begins with every user record that has text: also with a compaction
summary, a notification or a shell line. Left out are meta records, tool results, and records of slash commands alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ...model import EventType
from ..base import Event, Item
from .answers import is_synthetic
from .content import readable, string
from .entry import Entry
from .prompts import has_only_tags

__all__ = ["begin_exchange", "mark_answers", "mark_user"]

_COMMAND_TAGS = ("command-", "local-command-", "skill-format")
_INJECTED_TAGS = (*_COMMAND_TAGS, "ide_", "system-reminder", "user-prompt-submit-hook")
_INTERRUPTS = ("[Request interrupted by user]", "[Request interrupted by user for tool use]")
_SAID = (EventType.ASSISTANT_RESPONSE, EventType.TOOL_CALL)


def mark_user(entry: Entry, message: dict[str, Any], items: Iterable[Item]) -> None:
    """`items` are those that the user record gave; the first that is no tool response stands for the record."""
    text = _text(entry.record, message.get("content"))
    if text is None:
        return
    told = (event for event in _own(entry, items) if event.type is not EventType.TOOL_RESPONSE)
    begin_exchange(next(told, None) or entry.add("exchange", EventType.SYSTEM, text), text)


def begin_exchange(event: Event, text: str) -> None:
    event.exchange = "user"
    event.user_text = text if text != event.text else None


def mark_answers(entry: Entry, message: dict[str, Any], items: Iterable[Item]) -> None:
    """`items` are those that the assistant record gave. Texts that Claude Code wrote in the model's name count, too."""
    record = entry.record
    if record.get("isMeta") is True:
        return
    stand_in = is_synthetic(record, message)
    for event in _own(entry, items):
        if event.type in _SAID or (stand_in and event.type is EventType.RUNTIME):
            event.exchange = "assistant"


def _own(entry: Entry, items: Iterable[Item]) -> Iterator[Event]:
    """The events of the session; a record may also tell of a subagent."""
    return (item for item in items if isinstance(item, Event) and item.session == entry.thread.session)


def _text(record: dict[str, Any], content: Any) -> str | None:
    """The text of the record, if it begins an exchange."""
    if record.get("isMeta") is True:
        return None
    if isinstance(content, str):
        return content if content.strip() and not has_only_tags(content, _COMMAND_TAGS) else None
    if not isinstance(content, list):
        return None
    spoken = [block for block in content if not isinstance(block, dict) or block.get("type") != "tool_result"]
    if not spoken:
        return None
    texts = [block if isinstance(block, str) else string(block, "text") or "" for block in spoken]
    if record.get("isCompactSummary") is True or any(map(_is_typed, texts)):
        return readable(spoken)
    return None


def _is_typed(text: str) -> bool:
    """Whether a text among the blocks of a list is a person's: Claude Code puts others there, too."""
    return bool(text.strip()) and text.strip() not in _INTERRUPTS and not has_only_tags(text, _INJECTED_TAGS)
