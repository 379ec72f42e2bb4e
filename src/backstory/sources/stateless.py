"""Parsers for records that the agent may rewrite: each read begins anew, and its events replace earlier ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from ..model import EventType, digest
from .base import Event, Item, TurnEnd, Usage
from .fields import integer

_BY_MODEL = (EventType.ASSISTANT_RESPONSE, EventType.REASONING, EventType.TOOL_CALL)
_OF_TOOL = (EventType.TOOL_CALL, EventType.TOOL_RESPONSE)


# "Command exited with code 3", "Exit code: 3", "exit_code=3", "<return-code>3".
_EXIT_CODE = re.compile(r"(?:exit(?:ed with)?[ _]code|return-code>)[^\w-]{0,3}(-?\d{1,10})\b", re.IGNORECASE)
_COMMANDS = re.compile(r"bash|shell|command|terminal|exec|process|^run", re.IGNORECASE)
_NEAR_END = 400


def exit_code_in(text: str, tool: str | None) -> int | None:
    """The exit code in the text of a result, at its beginning or end, of an agent that has it nowhere else. Only tools
    that run commands have one: what another tool read may speak of exit codes, too."""
    if tool is None or not _COMMANDS.search(tool):
        return None
    found = _EXIT_CODE.search(text[:_NEAR_END]) or _EXIT_CODE.search(text[-_NEAR_END:])
    return int(found[1]) if found else None


class Stateless:
    """A parser that keeps nothing between two reads, made of a function from a record to its items."""

    def __init__(self, parse: Callable[[Any], Iterable[Item]]) -> None:
        self.parse = parse

    def finish(self) -> Iterable[Item]:
        return (TurnEnd(provisional=True),)

    def state(self) -> dict[str, Any]:
        return {}


class Writer:
    """Makes the items of one record. All have its identity, its time and its model, and events have `replaces`."""

    def __init__(self, *identity: str, ts: Any = None, model: Any = None, cwd: Any = None) -> None:
        """Values of another type than the expected one count as missing, as in `fields`."""
        self._identity = identity
        self.ts: int | None = integer(ts)
        self.model: str | None = model if isinstance(model, str) else None
        self._cwd: str | None = cwd if isinstance(cwd, str) else None
        self.usage_key: bytes | None = None

    def uid(self, *part: str) -> bytes:
        return digest(*self._identity, *part)

    def event(self, part: str, kind: EventType, text: str = "", **fields: Any) -> Event:
        """An event of the record; `part` is its name within the record."""
        if not isinstance(text, str):
            raise ValueError(f"a text that is {type(text).__name__}")
        fields["ts"] = fields.get("ts") or self.ts
        fields.setdefault("cwd", self._cwd)
        if kind in _BY_MODEL:
            fields.setdefault("model", self.model)
            fields.setdefault("usage_key", self.usage_key)
        if kind in _OF_TOOL:
            fields.setdefault("originating_model", self.model)
        return Event(uid=self.uid(part), type=kind, text=text, replaces=True, **fields)

    def prompt(self, part: str, text: str, **fields: Any) -> Event:
        return self.event(part, EventType.USER_INPUT, text, starts_turn=True, **fields)

    def answer(self, part: str, text: str, **fields: Any) -> Event:
        return self.event(part, EventType.ASSISTANT_RESPONSE, text, **fields)

    def thought(self, part: str, text: str, **fields: Any) -> Event:
        return self.event(part, EventType.REASONING, text, **fields)

    def call(self, part: str, tool: str, call_id: str | None, arguments: Any, **fields: Any) -> Event:
        return self.event(part, EventType.TOOL_CALL, tool=tool, call_id=call_id, arguments=arguments, **fields)

    def result(self, part: str, tool: str | None, call_id: str | None, text: str, **fields: Any) -> Event:
        return self.event(part, EventType.TOOL_RESPONSE, text, tool=tool, call_id=call_id, **fields)

    def usage(
        self,
        *,
        fresh: Any = 0,
        output: Any = 0,
        cache_read: Any = 0,
        cache_write: Any = 0,
        reasoning: Any = 0,
        cost: Any = None,
        **fields: Any,
    ) -> list[Usage]:
        """The tokens of the model call behind the record, if it has any: `fresh` are those of the input that were
        neither read from the cache nor written to it, `output` includes reasoning. Events that follow name the call."""
        numbers = [integer(value) or 0 for value in (fresh, output, cache_read, cache_write, reasoning)]
        if not any(numbers):
            return []
        fresh, output, cache_read, cache_write, reasoning = numbers
        self.usage_key = self.uid("usage")
        usage = Usage(
            key=self.usage_key,
            model=self.model,
            ts=fields.pop("ts", None) or self.ts,
            input_tokens=fresh + cache_read + cache_write,
            output_tokens=output,
            cache_read_tokens=cache_read,
            cache_write_5m_tokens=cache_write,
            reasoning_tokens=reasoning,
            cost=float(cost) if isinstance(cost, int | float) and cost > 0 else None,
            **fields,
        )
        return [usage]
