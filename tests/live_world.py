"""Live sessions for tests: called without async, closed and opened again at will."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from backstory.toolsets.live import Live, LiveError

T = TypeVar("T")
Json = dict[str, Any]


def text(words: str) -> list[Json]:
    return [{"type": "text", "text": words}]


def user(words: str = "hello") -> Json:
    return {"role": "user", "content": text(words), "timestamp": 1717800000000}


def assistant(words: str = "hi", **more: Any) -> Json:
    fields = {"stop_reason": "end", "model": "m-1", "provider": "p", "timestamp": 1717800000001}
    return {"role": "assistant", "content": text(words), **fields, **more}


def result(words: str = "42", **more: Any) -> Json:
    fields = {"function_call_id": "c1", "function_id": "calc", "timestamp": 1717800000002}
    return {"role": "function_result", "content": text(words), **fields, **more}


def custom(words: str = "note", **more: Any) -> Json:
    return {"role": "custom", "custom_type": "notice", "content": text(words), "timestamp": 1717800000003, **more}


class World:
    """The loop runs only during a call, so nothing happens between two lines of a test."""

    def __init__(self, home: Path, config: Json | None = None, environ: dict[str, str] | None = None) -> None:
        self.home = home
        self.config: Json = {} if config is None else config
        self.environ = environ or {}
        self.own_urls: list[str] = []
        self._numbers = count()
        self._runner = asyncio.Runner()
        try:
            self.live = self._start()
        except BaseException:
            self._runner.close()
            raise

    def _start(self) -> Live:
        async def fetch() -> Json:
            return self.config

        async def start() -> Live:
            live = Live(self.home, fetch_config=fetch, own_urls=self.own_urls, environ=self.environ)
            await live.start()
            return live

        return self.run(start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def call(self, function: str, data: Any = None, /, **fields: Any) -> Any:
        """`session::<function>` with a request; keyword arguments are its fields."""
        return self.run(self.live.call(f"session::{function}", fields if data is None else data))

    def refused(self, function: str, data: Any = None, /, **fields: Any) -> str:
        """The code of the error that a call ends in."""
        with pytest.raises(LiveError) as caught:
            self.call(function, data, **fields)
        error = caught.value
        assert str(error) == f"session/{error.code}: {error.message}"
        return error.code

    def session(self, **fields: Any) -> str:
        return str(self.call("create", fields)["session_id"])

    def append(self, session_id: str, message: Json | None = None, **fields: Any) -> str:
        return str(self.call("append", session_id=session_id, message=message or user(), **fields)["entry_id"])

    def said(self, session_id: str, **fields: Any) -> list[str]:
        """The texts of the active path."""
        items = self.call("messages", session_id=session_id, limit=500, **fields)["messages"]
        return [words_of(item) for item in items]

    def entry_ids(self, session_id: str) -> list[str]:
        """The ids of the active path."""
        return [item["entry_id"] for item in self.call("messages", session_id=session_id, limit=500)["messages"]]

    def events(self, after: int = 0) -> list[tuple[str, Json]]:
        """Type and payload of the events so far, without the numbers."""
        events = self.run(self.live.replay(after, 10_000))
        assert [event.payload["seq"] for event in events] == [event.seq for event in events]
        return [(short(event.trigger_type), without(event.payload, "seq")) for event in events]

    def bind(
        self, trigger_type: str, config: Any = None, deliver: Callable[[Json, int], Awaitable[None]] | None = None
    ) -> list[Json]:
        """The payloads that a binding gets, as they come."""
        got: list[Json] = []

        async def collect(payload: Json, seq: int) -> None:
            got.append(payload)

        async def bind() -> None:
            self.live.bind(f"binding-{next(self._numbers)}", trigger_type, config, deliver or collect)

        self.run(bind())
        return got

    def settle(self) -> None:
        """Until every subscriber has every event so far."""
        self.run(settled())

    def until(self, true: Callable[[], Any], seconds: float = 60) -> None:
        """Let the loop run until something holds."""

        async def wait() -> None:
            async with asyncio.timeout(seconds):
                while not true():
                    await asyncio.sleep(0.005)

        self.run(wait())

    @property
    def folder(self) -> Path:
        return self.home / "live"

    def file(self, session_id: str) -> Path:
        return self.folder / f"{session_id}.jsonl"

    def close(self) -> None:
        self.run(self.live.close())

    def reopen(self) -> None:
        self.close()
        self.live = self._start()

    def crash(self) -> None:
        """End as a killed process would: nothing is flushed, the lock is free."""
        self._runner.close()
        self._runner = asyncio.Runner()
        self._let_go()

    def _let_go(self) -> None:
        store: Any = getattr(self.live._adapter, "_store", None)
        if store is None or getattr(store, "_closed", True):
            return
        store._closed = True
        store.index.database._db.close()
        store.files.close()
        os.close(store.journal._fd)
        store._syncs.close()
        store.folder.lock.release()

    def crash_and_reopen(self) -> None:
        self.crash()
        self.live = self._start()

    def end(self) -> None:
        self._runner.close()
        self._let_go()


async def settled() -> None:
    """Lets the loop deliver the events so far; nothing waits for a disk or a network."""
    for _ in range(50):
        await asyncio.sleep(0)


def short(trigger_type: str) -> str:
    return trigger_type.removeprefix("session::")


def without(payload: Json, *names: str) -> Json:
    return {name: value for name, value in payload.items() if name not in names}


def words_of(item: Json) -> str:
    if "custom" in item:
        return f"<{item['custom']['custom_type']}>"
    return "".join(block.get("text", f"[{block['type']}]") for block in item["message"]["content"])
