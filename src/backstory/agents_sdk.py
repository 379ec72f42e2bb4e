"""A `Session` of the OpenAI Agents SDK kept in a live session.

    agent_session = AgentSession(live, "conversation-1")
    await Runner.run(agent, "Hello", session=agent_session)

Each batch of items is appended as messages, for readers and subscribers of the session, and then, exactly as the SDK
passed them, as one bookkeeping entry: the batch exists from that entry on, whole or not at all. Popped and cleared
items stay on a branch. If the popped message is not the last of the path (other runs have added theirs, or may do so
through a bridge), another bookkeeping entry marks it as popped.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any
from uuid import uuid4

import msgspec
from msgspec import Struct

from .toolsets.live import Live

_ITEMS = "openai_agents.items"
_POPPED = "openai_agents.popped"
_PAGE = 500
Item = dict[str, Any]


class _Step(Struct):
    """One entry of the active path: a message, a batch of items, or a note that items of a batch were popped."""

    entry_id: str
    items: list[Item] | None = None
    messages: list[str] | None = None
    """Of a batch: the ids of its messages."""
    batch: str | None = None
    kept: int = 0
    """The number of items that are left of `batch`."""
    by: str = ""


class _Batch(Struct):
    """A batch of items that has some left."""

    place: int
    """Its entry on the path."""
    items: list[Item]
    messages: list[str] | None
    whole: bool = True


class AgentSession:
    """Implements `agents.memory.Session`; the package itself is not needed here."""

    def __init__(self, live: Live, session_id: str, *, metadata: dict[str, Any] | None = None) -> None:
        self.session_id = session_id
        self.session_settings: Any = None
        self._live = live
        self._metadata = metadata

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The conversation, oldest first; of a limited one the latest."""
        items = [item for batch in _batches(await self._steps()) for item in batch.items]
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
        added = await self._call("append-many", messages=[_message(item) for item in plain])
        await self._append({"items": plain, "messages": added["entry_ids"]})

    async def pop_item(self) -> Any:
        """Take back the latest item."""
        while True:
            steps = await self._steps()
            batches = _batches(steps)
            if not batches:
                return None
            latest = batches[-1]
            before = None if self._live.adapter == "bridge" else _before_last(steps, latest)
            if before is None:
                taken = await self._strike_out(steps[latest.place].entry_id, len(latest.items) - 1)
            else:
                # No other call runs between reading the path and this one.
                taken = True
                await self._branch_off(before, latest)
            if taken:
                return latest.items[-1]

    async def _branch_off(self, before: str, latest: _Batch) -> None:
        """Continue from the entry before the last message, without the last item of its batch."""
        if len(latest.items) > 1:
            assert latest.messages is not None
            left = {"items": latest.items[:-1], "messages": latest.messages[:-1]}
            await self._append(left, parent_id=before)
        else:
            await self._call("set-active-leaf", entry_id=before)

    async def _strike_out(self, batch: str, kept: int) -> bool:
        """Note that `kept` items are left of a batch; False when another caller has just done so."""
        entry_id, by = f"{batch}:{kept}", uuid4().hex
        data = {"batch": batch, "kept": kept, "by": by}
        custom = {"custom_type": _POPPED, "data": data}
        await self._call("append", custom=custom, entry_id=entry_id)
        found = await self._call("get-message", entry_id=entry_id)
        return bool(found["entry"]["data"]["by"] == by)

    async def clear_session(self) -> None:
        """Go back to the start of the SDK's conversation; earlier messages of others stay."""
        steps = await self._steps()
        ours = {entry_id for step in steps for entry_id in step.messages or ()}
        first = next((place for place, step in enumerate(steps) if step.items or step.entry_id in ours), 0)
        if steps:
            await self._call("set-active-leaf", entry_id=steps[max(first - 1, 0)].entry_id)

    async def _begin(self) -> None:
        """Make sure the session exists. An empty batch is its root, to which `clear_session` can go back."""
        await self._call("ensure", metadata=self._metadata)
        if not (await self._call("messages", limit=1, include_custom=True))["messages"]:
            await self._append({"items": []}, entry_id=f"{self.session_id}:start")

    async def _append(self, data: Item, **where: Any) -> None:
        await self._call("append", custom={"custom_type": _ITEMS, "data": data}, **where)

    async def _steps(self) -> list[_Step]:
        if await self._call("get") is None:
            return []
        return [step async for step in self._path()]

    async def _path(self) -> AsyncIterator[_Step]:
        cursor = None
        while True:
            page = await self._call("messages", limit=_PAGE, cursor=cursor, include_custom=True)
            for entry in page["messages"]:
                yield _step(entry)
            cursor = page.get("next_cursor")
            if cursor is None:
                return

    async def _call(self, function: str, **request: Any) -> Any:
        return await self._live.call(f"session::{function}", {"session_id": self.session_id, **request})


def _step(entry: Item) -> _Step:
    custom = entry.get("custom") or {}
    if custom.get("custom_type") in (_ITEMS, _POPPED) and isinstance(custom.get("data"), dict):
        with suppress(msgspec.ValidationError):  # of another program
            return msgspec.convert({**custom["data"], "entry_id": entry["entry_id"]}, _Step)
    return _Step(entry["entry_id"])


def _batches(steps: list[_Step]) -> list[_Batch]:
    """The batches of a path that have items left, without those that were popped."""
    kept: dict[str, int] = {}
    for step in steps:
        if step.batch is not None:
            kept[step.batch] = min(step.kept, kept.get(step.batch, step.kept))
    found = []
    for place, step in enumerate(steps):
        items = step.items or []
        left = items[: kept.get(step.entry_id, len(items))]
        if left:
            found.append(_Batch(place, left, step.messages, len(left) == len(items)))
    return found


def _before_last(steps: list[_Step], latest: _Batch) -> str | None:
    """The entry before the last message of a batch, when nothing but that batch is at the end of the path."""
    first = latest.place - len(latest.items)
    if not latest.whole or latest.place != len(steps) - 1 or latest.messages is None or first < 1:
        return None
    if [step.entry_id for step in steps[first : latest.place]] != latest.messages:
        return None
    return steps[latest.place - 2].entry_id


def _as_plain(value: Any) -> Any:
    """Items may be models of the SDK."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is not an item of a conversation")


def _message(item: Item) -> Item:
    """The message that readers of the session see for an item."""
    kind = str(item.get("type") or "message")
    common = {
        "content": [{"type": "text", "text": text} for text in _texts(item)],
        "timestamp": time.time_ns() // 1_000_000,
    }
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


def _arguments(text: Any) -> Any:
    try:
        return msgspec.json.decode(text) if isinstance(text, str) else text
    except msgspec.DecodeError:
        return text
