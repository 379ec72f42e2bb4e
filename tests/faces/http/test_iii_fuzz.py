from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from backstory.faces.http.iii import Engine
from backstory.toolsets.live import Live

from .conftest import FakeLive

TYPES = [
    "registerfunction",
    "unregisterfunction",
    "registertriggertype",
    "unregistertriggertype",
    "registertrigger",
    "unregistertrigger",
    "triggerregistrationresult",
    "invokefunction",
    "invocationresult",
    "reattach",
    "ping",
    "observe",
]
NAMES = st.sampled_from(["a", "b", "session::create", "session::append", "session::created", "engine::workers::list"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
FRAMES = st.fixed_dictionaries(
    {"type": st.sampled_from(TYPES)},
    optional={
        "id": NAMES | JSON,
        "invocation_id": NAMES | JSON,
        "function_id": NAMES | JSON,
        "trigger_type": NAMES | JSON,
        "previous_worker_id": NAMES | JSON,
        "data": JSON,
        "config": JSON,
        "result": JSON,
        "error": JSON,
        "metadata": JSON,
        "action": st.just({"type": "void"}) | JSON,
    },
)


class TestAnyFrames:
    """Clients send any frames in any order: the engine goes on, and nothing is left when they disconnect."""

    @given(st.lists(st.tuples(st.integers(0, 2), FRAMES), max_size=25))
    def test_the_engine_goes_on(self, frames: list[tuple[int, dict[str, Any]]]) -> None:
        async def main() -> None:
            live = FakeLive()
            engine = Engine(cast("Live", live))
            peers = [engine.attach() for _ in range(3)]
            for number, frame in frames:
                await engine.receive(peers[number], json.dumps(frame))
            probe = engine.attach()
            await engine.receive(probe, '{"type": "ping"}')
            await probe.outbox.get()
            assert await probe.outbox.get() == '{"type":"pong"}'
            for peer in [*peers, probe]:
                engine.detach(peer)
            assert live.bindings == {}
            assert not list(engine._calls.registered())
            assert not engine._calls._pending
            await asyncio.sleep(0)

        asyncio.run(main())
