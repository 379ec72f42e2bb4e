"""A `Session` of the OpenAI Agents SDK kept in a live session.

    agent_session = AgentSession(live, "conversation-1")
    await Runner.run(agent, "Hello", session=agent_session)

Each batch of items is appended as messages, for everyone who reads or follows the session, and then, exactly as the SDK
gave them, as one bookkeeping entry: the batch counts from that entry on, whole or not at all. What is popped or cleared
is left behind on a branch, not destroyed.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from msgspec import Struct

from .runtime import Live

__all__ = ["AgentSession"]

_ITEMS = "openai_agents.items"
_PAGE = 500
Item = dict[str, Any]


class _Step(Struct):
    """One entry of the active path: a message, or a batch of items."""

    entry_id: str
    items: list[Item] | None = None


class AgentSession:
    """Implements `agents.memory.Session`; the package itself is not needed here."""

    def __init__(self, live: Live, session_id: str, *, metadata: dict[str, Any] | None = None) -> None:
        self.session_id = session_id
        self.session_settings: Any = None
        self._live = live
        self._metadata = metadata

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The conversation, oldest first; of a limited one the latest."""
        items = [item for step in await self._steps() for item in step.items or ()]
        if limit is None:
            limit = getattr(self.session_settings, "limit", None)
        if limit is None:
            return items
        return items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[Any]) -> None:
        if not items:
            return
        await self._begin()
        plain: list[Item] = msgspec.json.decode(msgspec.json.encode(items, enc_hook=_as_plain))
        await self._call("append-many", messages=[_message(item) for item in plain])
        await self._append(plain)

    async def pop_item(self) -> Any:
        """Take back the latest item: from there on the conversation branches off."""
        steps = await self._steps()
        batches = [number for number, step in enumerate(steps) if step.items is not None]
        items = steps[batches[-1]].items if batches else None
        if not items:
            return None
        if len(items) > 1:
            # One message per item: the last message before the batch's entry is the popped item's.
            await self._append(items[:-1], parent_id=steps[batches[-1] - 2].entry_id)
        else:
            await self._call("set-active-leaf", entry_id=steps[batches[-2]].entry_id)
        return items[-1]

    async def clear_session(self) -> None:
        steps = await self._steps()
        if steps:
            await self._call("set-active-leaf", entry_id=steps[0].entry_id)

    async def _begin(self) -> None:
        """The session, with an empty batch as its root: there is always something to go back to."""
        await self._call("ensure", metadata=self._metadata)
        if not (await self._call("messages", limit=1, include_custom=True))["messages"]:
            await self._append([], entry_id=f"{self.session_id}:start")

    async def _append(self, items: list[Item], **where: Any) -> None:
        await self._call("append", custom={"custom_type": _ITEMS, "data": {"items": items}}, **where)

    async def _steps(self) -> list[_Step]:
        if await self._call("get") is None:
            return []
        return [step async for step in self._path()]

    async def _path(self) -> AsyncIterator[_Step]:
        cursor = None
        while True:
            page = await self._call("messages", limit=_PAGE, cursor=cursor, include_custom=True)
            for entry in page["messages"]:
                custom = entry.get("custom") or {}
                items = custom["data"]["items"] if custom.get("custom_type") == _ITEMS else None
                yield _Step(entry["entry_id"], items)
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    async def _call(self, function: str, **request: Any) -> Any:
        return await self._live.call(f"session::{function}", {"session_id": self.session_id, **request})


def _as_plain(value: Any) -> Any:
    """Items may be models of the SDK."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is not an item of a conversation")


def _message(item: Item) -> Item:
    """What people and other programs see of an item."""
    kind = str(item.get("type") or "message")
    common = {"content": _text_blocks(_texts(item)), "timestamp": time.time_ns() // 1_000_000}
    if kind == "message" and item.get("role") == "user":
        return {"role": "user", **common}
    answer = {"role": "assistant", **common, "stop_reason": "end", "model": "", "provider": "openai-agents"}
    if kind == "message" and item.get("role") == "assistant":
        return answer
    if kind == "function_call":
        call = {"id": str(item.get("call_id")), "function_id": str(item.get("name"))}
        block = {"type": "function_call", **call, "arguments": _arguments(item.get("arguments"))}
        return {**answer, "content": [block], "stop_reason": "function_call"}
    if kind == "function_call_output":
        return {"role": "function_result", **common, "function_call_id": str(item.get("call_id")), "function_id": ""}
    if kind == "reasoning":
        return {**answer, "content": [{"type": "thinking", "text": "\n".join(_texts(item))}]}
    return {"role": "custom", "custom_type": f"openai_agents.{item.get('role') or kind}", **common}


def _texts(item: Item) -> Iterable[str]:
    """The readable parts: content, summary or output, as a text or as blocks of text."""
    found: list[str] = []
    for name in ("content", "summary", "output"):
        value = item.get(name)
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, list):
            found += [
                block["text"] for block in value if isinstance(block, dict) and isinstance(block.get("text"), str)
            ]
    return found


def _text_blocks(texts: Iterable[str]) -> list[Item]:
    return [{"type": "text", "text": text} for text in texts]


def _arguments(text: Any) -> Any:
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else text
    except msgspec.DecodeError:
        return text
