"""Subscribers that are slow, stuck or gone: they cost little, and others do not notice them."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from backstory.toolsets.live import journal
from tests.live_world import World, text, user


class TestSlowSubscribers:
    """Events that do not fit a subscriber's queue are read from the log later, all of them and in order."""

    def test_everything_arrives_in_order(self, world: World) -> None:
        session_id = world.session()
        gate = asyncio.Event()
        slow: list[int] = []
        quick: list[int] = []

        async def wait(payload: Any, seq: int) -> None:
            await gate.wait()
            slow.append(seq)

        async def take(payload: Any, seq: int) -> None:
            quick.append(seq)

        async def scenario() -> None:
            world.live.bind("slow", "session::message-added", {}, wait)
            world.live.bind("quick", "session::message-added", {}, take)
            for number in range(2000):
                await world.live.call("session::append", {"session_id": session_id, "message": user(f"{number}")})
            async with asyncio.timeout(60):
                while len(quick) < 2000:
                    await asyncio.sleep(0)
                assert slow == []
                gate.set()
                while len(slow) < 2000:
                    await asyncio.sleep(0)

        world.run(scenario())
        assert slow == quick == list(range(2, 2002))

    def test_queues_are_bounded(self, world: World) -> None:
        session_id = world.session()

        async def stuck(payload: Any, seq: int) -> None:
            await asyncio.Event().wait()

        async def scenario() -> tuple[int, int]:
            world.live.bind("stuck", "session::store::events", {}, stuck)
            (subscription,) = world.live._feed._subscriptions
            for _ in range(1000):
                await world.live.call("session::append", {"session_id": session_id, "message": user("x")})
            events = len(subscription._queue)
            subscription._queue.clear()
            subscription._queued_bytes, subscription._behind = 0, False
            for _ in range(20):
                await world.live.call("session::append", {"session_id": session_id, "message": user("x" * 200_000)})
            return events, len(subscription._queue)

        events, large = world.run(scenario())
        assert events <= 256
        assert large <= 6

    def test_one_large_event_still_arrives(self, world: World) -> None:
        got = world.bind("session::message-added")
        session_id = world.session()
        world.append(session_id, user("x" * 3_000_000))
        world.append(session_id, user("small"))
        world.settle()
        assert [len(event["message"]["content"][0]["text"]) for event in got] == [3_000_000, 5]

    def test_new_events_while_catching_up(self, world: World) -> None:
        session_id = world.session()
        for number in range(700):
            world.append(session_id, user(f"{number}"))
        got: list[int] = []

        async def scenario() -> None:
            async for event in world.live.follow({"session_id": session_id}, after=1):
                got.append(event.seq)
                if len(got) % 100 == 0 and len(got) < 1000:
                    await world.live.call("session::append", {"session_id": session_id, "message": user("more")})
                if event.seq == world.live.last_seq:
                    break

        world.run(scenario())
        assert got == list(range(2, world.live.last_seq + 1))
        assert len(got) > 700


class TestBehindTheLog:
    """A binding that is slower than the log is long gets the current state instead of the events that are dropped."""

    def test_gets_the_state(self, new_world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal, "SEGMENT_BYTES", 100_000)
        world: World = new_world(config={"adapter": {"name": "fs", "config": {"fsync": "off", "replay_mb": 1}}})
        session_id = world.session()
        gate = asyncio.Event()
        got: list[str] = []

        async def wait(payload: Any, seq: int) -> None:
            await gate.wait()
            got.append(payload["entry_id"])

        world.bind("session::message-added", {}, wait)
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]
        for number in range(120):
            world.append(session_id, user(f"{number}" * 10_000))
            store._rotate()
        world.run(store.upkeep.save())
        assert store.journal.oldest > 60
        gate.set()
        added = set(world.entry_ids(session_id))
        world.until(lambda: set(got) == added)
        after = world.append(session_id, user("after"))
        world.until(lambda: got[-1] == after)


class TestGoneSubscribers:
    """A subscriber that stops is removed."""

    def test_a_broken_off_loop(self, world: World) -> None:
        async def scenario() -> None:
            stream = world.live.follow()
            await world.live.call("session::create", {})
            await anext(stream)

        world.run(scenario())
        gc.collect()
        world.settle()
        assert world.live.status()["bindings"] == 0

    def test_an_iterator_that_was_never_used(self, world: World) -> None:
        async def scenario() -> None:
            world.live.follow()

        world.run(scenario())
        gc.collect()
        assert world.live.status()["bindings"] == 0

    def test_a_cancelled_listener(self, world: World) -> None:
        async def scenario() -> None:
            async def listen() -> None:
                async for _ in world.live.follow():
                    pass

            task = asyncio.create_task(listen())
            await asyncio.sleep(0)
            assert world.live.status()["bindings"] == 1
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        world.run(scenario())
        assert world.live.status()["bindings"] == 0

    def test_stuck_ones_end_with_the_store(self, world: World) -> None:
        async def stuck(payload: Any, seq: int) -> None:
            await asyncio.Event().wait()

        world.bind("session::created", {}, stuck)
        world.session()
        world.close()


class TestDurableFirst:
    """A change is published and acknowledged when it is as durable as the settings ask for."""

    def test_events_come_with_the_acknowledgement(self, new_world: Any) -> None:
        world: World = new_world()
        got = world.bind("session::store::events")
        session_id = world.session()

        async def many() -> list[Any]:
            calls = [
                world.live.call("session::append", {"session_id": session_id, "message": user(f"{number}")})
                for number in range(50)
            ]
            return await asyncio.gather(*calls)

        answers = world.run(many())
        world.settle()
        received = [envelope["payload"]["entry_id"] for envelope in got[1:]]
        assert received == [answer["entry_id"] for answer in answers]
        assert world.said(session_id) == [f"{number}" for number in range(50)]

    def test_an_update_of_what_is_not_durable_yet(self, new_world: Any) -> None:
        world: World = new_world()
        session_id = world.session()

        async def both() -> Any:
            append = {"session_id": session_id, "message": user("a"), "entry_id": "e"}
            update = {"session_id": session_id, "entry_id": "e", "content": text("b")}
            calls = (("append", append), ("update-message", update), ("append", append))
            return await asyncio.gather(*(world.live.call(f"session::{name}", data) for name, data in calls))

        first, updated, again = world.run(both())
        assert again == first
        assert updated == {"updated": True, "revision": 1}
