"""Live sessions in Python: a durable, reactive, branching store of conversations.

    async with backstory.live.open() as sessions:
        session = await sessions.create(title="Weather question", metadata={"owner": "u_1"})
        await sessions.append(session["session_id"], user("What's the weather?"))
        async for event in sessions.follow(session_id=session["session_id"]):
            ...

Answers are the JSON objects of the `session::*` functions; errors are `LiveError`.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from .config import home_folder
from .toolsets.live import Event, Live, LiveError
from .toolsets.live.tools import open_live

if TYPE_CHECKING:
    from .agents_sdk import AgentSession

__all__ = ["Event", "LiveError", "Sessions", "assistant", "function_result", "open", "user"]

Json = dict[str, Any]
Message = Mapping[str, Any]
Content = str | Sequence[Mapping[str, Any]]
Order = Literal["created_asc", "created_desc", "updated_desc"]
Status = Literal["idle", "working", "done", "error"]
_WAIT_SECONDS = 5.0


def open(
    home: str | os.PathLike[str] | None = None,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    url: str | None = None,
    token: str | None = None,
) -> Sessions:
    """Sessions of Backstory's home (by default as `config.toml` there says), of a folder, or of a server.

    A home or folder that a running `backstory serve` has is used through that server.
    """
    if data_dir is not None and url is not None:
        raise ValueError("give data_dir or url, not both")
    table: Json | None = None
    if data_dir is not None:
        table = {"adapter": {"name": "fs", "config": {"data_dir": os.fspath(Path(data_dir).absolute())}}}
    elif url is not None:
        table = {"adapter": {"name": "bridge", "config": {"url": url} | ({"token": token} if token else {})}}
    return Sessions(Path(home).expanduser().absolute() if home is not None else home_folder(), table)


def user(content: Content, **fields: Any) -> Json:
    """A user's message, now; plain text becomes a text block."""
    return {"role": "user", "content": _blocks(content), "timestamp": _now(), **fields}


def assistant(content: Content, *, model: str, provider: str, stop_reason: str = "end", **fields: Any) -> Json:
    """A model's message, now."""
    made = {"role": "assistant", "content": _blocks(content), "timestamp": _now(), "stop_reason": stop_reason}
    return {**made, "model": model, "provider": provider, **fields}


def function_result(content: Content, *, function_call_id: str, function_id: str, **fields: Any) -> Json:
    """The result of a function, now."""
    made = {"role": "function_result", "content": _blocks(content), "timestamp": _now()}
    return {**made, "function_call_id": function_call_id, "function_id": function_id, **fields}


class Sessions:
    """The functions of the contract as methods. Used as `async with backstory.live.open(...) as sessions`."""

    def __init__(self, home: Path, table: Mapping[str, Any] | None = None) -> None:
        self._home = home
        self._table = table
        self._live: Live | None = None

    @property
    def live(self) -> Live:
        if self._live is None:
            raise RuntimeError("used outside of `async with backstory.live.open(...)`")
        return self._live

    async def __aenter__(self) -> Self:
        # The archive of this home does not hold sessions of another folder or server.
        forget = self._forget if self._table is None else None
        self._live = await open_live(self._home, table=self._table, wait_seconds=_WAIT_SECONDS, forget=forget)
        return self

    def _forget(self, session_id: str) -> None:
        """Delete a session from the archive of this home."""
        from .library import Library

        with Library(self._home) as library:
            library.forget_live(session_id)

    async def __aexit__(self, *_: object) -> None:
        await self.live.close()

    async def call(self, function: str, /, **request: Any) -> Any:
        """`session::<function>` with the fields that are not None."""
        given = {name: value for name, value in request.items() if value is not None}
        return await self.live.call(f"session::{function}", given)

    async def _ask(self, function: str, /, **request: Any) -> Json:
        answer: Json = await self.call(function, **request)
        return answer

    async def create(
        self, *, title: str | None = None, description: str | None = None, metadata: Json | None = None
    ) -> Json:
        return await self._ask("create", title=title, description=description, metadata=metadata)

    async def ensure(
        self,
        session_id: str,
        *,
        title: str | None = None,
        description: str | None = None,
        metadata: Json | None = None,
    ) -> Json:
        return await self._ask("ensure", session_id=session_id, title=title, description=description, metadata=metadata)

    async def get(self, session_id: str) -> Json | None:
        """The session's meta, or None."""
        found = await self._ask("get", session_id=session_id)
        return found and found["meta"]

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        status: Status | None = None,
        metadata: Json | None = None,
        order: Order | None = None,
    ) -> Json:
        return await self._ask("list", limit=limit, cursor=cursor, status=status, metadata=metadata, order=order)

    async def set_meta(
        self,
        session_id: str,
        *,
        title: str | None = None,
        description: str | None = None,
        metadata: Json | None = None,
    ) -> Json:
        return await self._ask(
            "set-meta", session_id=session_id, title=title, description=description, metadata=metadata
        )

    async def set_status(self, session_id: str, status: Status, *, reason: str | None = None) -> Json:
        return await self._ask("set-status", session_id=session_id, status=status, reason=reason)

    async def delete(self, session_id: str) -> bool:
        return bool((await self.call("delete", session_id=session_id))["deleted"])

    async def append(
        self,
        session_id: str,
        message: Message | None = None,
        *,
        custom: Json | None = None,
        parent_id: str | None = None,
        entry_id: str | None = None,
        origin: Json | None = None,
    ) -> Json:
        return await self._ask(
            "append",
            session_id=session_id,
            message=message,
            custom=custom,
            parent_id=parent_id,
            entry_id=entry_id,
            origin=origin,
        )

    async def append_many(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        parent_id: str | None = None,
        origin: Json | None = None,
    ) -> Json:
        batch = [*messages]
        return await self._ask("append-many", session_id=session_id, messages=batch, parent_id=parent_id, origin=origin)

    async def update_message(
        self,
        session_id: str,
        entry_id: str,
        content: Content,
        *,
        details: Any = None,
        expected_revision: int | None = None,
        origin: Json | None = None,
    ) -> Json:
        return await self._ask(
            "update-message",
            session_id=session_id,
            entry_id=entry_id,
            content=_blocks(content),
            details=details,
            expected_revision=expected_revision,
            origin=origin,
        )

    async def messages(
        self,
        session_id: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        roles: Sequence[str] | None = None,
        from_entry_id: str | None = None,
        include_custom: bool | None = None,
    ) -> Json:
        return await self._ask(
            "messages",
            session_id=session_id,
            limit=limit,
            cursor=cursor,
            roles=None if roles is None else [*roles],
            from_entry_id=from_entry_id,
            include_custom=include_custom,
        )

    async def get_message(self, session_id: str, entry_id: str) -> Json | None:
        """One entry, or None."""
        found = await self._ask("get-message", session_id=session_id, entry_id=entry_id)
        return found and found["entry"]

    async def fork(self, session_id: str, entry_id: str, *, title: str | None = None) -> Json:
        return await self._ask("fork", session_id=session_id, entry_id=entry_id, title=title)

    async def set_active_leaf(self, session_id: str, entry_id: str) -> Json:
        return await self._ask("set-active-leaf", session_id=session_id, entry_id=entry_id)

    def follow(
        self,
        *,
        types: Sequence[str] | None = None,
        session_id: str | None = None,
        roles: Sequence[str] | None = None,
        metadata: Json | None = None,
        after: int | None = None,
    ) -> AsyncIterator[Event]:
        """Events as they happen, of all six types by default; first everything after a sequence number, if given."""
        config = {"session_id": session_id, "roles": None if roles is None else [*roles], "metadata": metadata}
        return self.live.follow(config, types=types, after=after)

    def bind(
        self, trigger_type: str, deliver: Callable[[Json, int], Awaitable[None]], config: Json | None = None
    ) -> Callable[[], None]:
        """Call `deliver(payload, seq)` for every matching event. Returns a function that ends the binding."""
        return self.live.bind(f"python-{id(deliver)}-{time.monotonic_ns()}", trigger_type, config, deliver)

    def agent_session(self, session_id: str, *, metadata: Json | None = None) -> AgentSession:
        """A `Session` for the OpenAI Agents SDK, kept in a live session."""
        from .agents_sdk import AgentSession

        return AgentSession(self.live, session_id, metadata=metadata)


def _blocks(content: Content) -> Sequence[Mapping[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else [*content]


def _now() -> int:
    return time.time_ns() // 1_000_000
