"""The prompts a person typed while the agent was busy.

`queue-operation` records say what happens to them: `enqueue` (with the text), then one of
- `dequeue`: submitted when the agent was done; the user record that follows carries the text;
- `remove`: handed to the agent between two tool calls. Since about 2.1.75 a `queued_command` attachment follows and
  carries the text, mostly before the agent goes on. Before, nothing does: the prompt stands nowhere but in its
  `enqueue`, though the agent answers it. A user record with `queueTranscriptOnly` may repeat it;
- `popAll`: taken back by the person to be edited.
A prompt that never left the queue was never seen by the agent: it is none.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ...model import digest
from .content import readable
from .prompts import is_notification

__all__ = ["PromptQueue", "Queued"]

_LIMIT = 64


class Queued(Struct, array_like=True):
    text: str
    typed: str
    """When it was typed, as the record has it: part of its identity."""
    absorbed: str = ""
    """When the agent got it."""


class PromptQueue(Struct):
    waiting: list[Queued] = []
    absorbed: list[Queued] = []
    """Handed to the agent; whether a record of their own follows shows when the agent goes on."""
    told: list[str] = []
    """Digests of prompts that were told without an attachment of their own, which may come late."""
    attached: list[str] = []
    """Digests of prompts that came as an attachment, which a user record may repeat."""
    submitted: str | None = None

    def apply(self, record: dict[str, Any]) -> None:
        operation = record.get("operation")
        text = readable(record.get("content")).strip()
        stamp = str(record.get("timestamp") or "")
        if operation == "enqueue":
            if text:
                self.waiting = [*self.waiting[1 - _LIMIT :], Queued(text, stamp)]
        elif operation == "remove":
            if item := self._take(text):
                item.absorbed = stamp
                self.absorbed = [*self.absorbed[1 - _LIMIT :], item]
        elif operation == "dequeue":
            item = self._take(text)
            self.submitted = item.text if item else None
        elif operation == "popAll":
            self.waiting = []

    def claim(self, text: str) -> bool:
        """A record carries this prompt: whether it came out of the queue, which forgets it."""
        text = text.strip()
        if self.submitted == text:
            self.submitted = None
            return True
        for items in (self.absorbed, self.waiting):
            for position, item in enumerate(items):
                if item.text == text:
                    del items[position]
                    return True
        return False

    def drain(self) -> list[Queued]:
        """The prompts the agent got that no record of their own followed."""
        items, self.absorbed = self.absorbed, []
        if items:
            self.told = [*self.told, *(_mark(item.text) for item in items)][-_LIMIT:]
        return items

    def attach(self, text: str) -> bool:
        """A prompt arrives as an attachment: whether it is new, or was told already without it."""
        if not self.claim(text) and _cross_off(self.told, text):
            return False
        self.attached = [*self.attached, _mark(text)][-_LIMIT:]
        return True

    def repeat(self, text: str) -> bool:
        """A user record repeats a prompt that went through the queue, for the transcript alone: whether it is new."""
        if _cross_off(self.attached, text) or _mark(text) in self.told:
            return False
        self.claim(text)
        self.told = [*self.told, _mark(text)][-_LIMIT:]
        return True

    def _take(self, text: str) -> Queued | None:
        """The item with this text. Records mostly do not say which: then people go before background tasks."""
        position = next((n for n, item in enumerate(self.waiting) if item.text == text), None)
        if position is None and not text:
            typed = (n for n, item in enumerate(self.waiting) if not is_notification(item.text))
            position = next(typed, 0 if self.waiting else None)
        return None if position is None else self.waiting.pop(position)


def _mark(text: str) -> str:
    return digest(text.strip()).hex()


def _cross_off(marks: list[str], text: str) -> bool:
    """Whether the text is among them, which is true once."""
    if (mark := _mark(text)) not in marks:
        return False
    marks.remove(mark)
    return True
