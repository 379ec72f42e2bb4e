"""Programs written with the iii SDK, as they are written by its users."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

iii = pytest.importorskip("iii", reason="an extra: pip install backstory[iii]")
from iii.trigger import TriggerHandler  # noqa: E402, F401
from iii_helpers.observability import ReconnectionConfig  # noqa: E402

MESSAGE = {"role": "user", "content": [{"type": "text", "text": "What's the weather?"}], "timestamp": 1717800000000}


class Client:
    def __init__(self, url: str) -> None:
        retry = ReconnectionConfig(initial_delay_ms=50, max_delay_ms=200)
        self.sdk = iii.register_worker(url, iii.InitOptions(otel={"enabled": False}, reconnection_config=retry))

    def call(self, function_id: str, payload: Any = None, timeout_ms: int = 60_000) -> Any:
        return self.sdk.trigger({"function_id": function_id, "payload": payload or {}, "timeout_ms": timeout_ms})

    def is_bound(self, trigger_type: str) -> bool:
        """True if the engine delivers these events to this client: not while it is away, nor just after, when the SDK
        has not yet registered everything again."""
        try:
            found = self.call("engine::registered-triggers::list", timeout_ms=2_000)["registered_triggers"]
        except iii.InvocationError:
            return False
        return any(trigger["trigger_type"] == trigger_type for trigger in found)

    def on(self, trigger_type: str, config: Any = None, function_id: str = "app::on") -> queue.Queue[Any]:
        """Bind a function of its own; what it is called with comes out of the queue."""
        seen: queue.Queue[Any] = queue.Queue()
        self.sdk.register_function(function_id, seen.put)
        self.sdk.register_trigger({"type": trigger_type, "function_id": function_id, "config": config or {}})
        self.call("engine::workers::list")  # everything before it has been handled when this is answered
        return seen


@contextmanager
def connected(url: str) -> Iterator[Client]:
    client = Client(url)
    try:
        yield client
    finally:
        client.sdk.shutdown()
        client.sdk._loop.close()  # which the SDK leaves open
