"""The bridge: one instance keeps the sessions, others use them as their own."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute

from backstory.config import ConfigError
from backstory.faces.http.api import session_routes
from backstory.faces.http.iii import Engine, iii_socket
from backstory.faces.http.iii import peers as frames
from backstory.toolsets.live import Event, Live, LiveError, journal, types, wire_client
from backstory.toolsets.live.types import is_own_url
from tests.live_world import World, assistant, custom, result, text, user, without

NewWorld = Callable[..., World]


class Main:
    """A main on a real port, in a thread of its own. Its door can be shut while it goes on inside."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.live = Live(home, fetch_config=self._config, environ={})
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.port = 0
        self.run(self.live.start())
        self.open_door()

    replay_mb = 64

    async def _config(self) -> dict[str, Any]:
        return {"adapter": {"name": "fs", "config": {"fsync": "off", "replay_mb": self.replay_mb}}}

    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def call(self, function: str, **fields: Any) -> Any:
        return self.run(self.live.call(f"session::{function}", fields))

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    def open_door(self) -> None:
        self.run(self._open_door())

    async def _open_door(self) -> None:
        app = Starlette(routes=[WebSocketRoute("/", iii_socket(Engine(self.live)))])
        listener = socket.create_server(("127.0.0.1", self.port))
        self.port = listener.getsockname()[1]
        config = uvicorn.Config(app, log_config=None, ws="websockets-sansio", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))
        while not self._server.started:
            await asyncio.sleep(0.005)

    def shut_door(self) -> None:
        async def shut() -> None:
            self._server.should_exit = True
            await self._serving

        self.run(shut())

    def restart(self, home: Path | None = None) -> None:
        self.shut_door()
        self.run(self.live.close())
        self.live = Live(home or self.home, fetch_config=self._config, environ={})
        self.run(self.live.start())
        self.open_door()

    def stop(self) -> None:
        self.shut_door()
        self.run(self.live.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(60)
        self.loop.close()


@pytest.fixture
def main(tmp_path: Path) -> Iterator[Main]:
    running = Main(tmp_path / "main")
    yield running
    running.stop()


Bridge = Callable[[str], World]


@pytest.fixture
def bridge(main: Main, new_world: NewWorld, tmp_path: Path) -> Iterator[Bridge]:
    worlds: list[World] = []

    def connect(name: str, **config: Any) -> World:
        table = {"adapter": {"name": "bridge", "config": {"url": main.url, "timeout_ms": 60_000, **config}}}
        worlds.append(new_world(tmp_path / name, table))
        return worlds[-1]

    yield connect
    for world in worlds:
        world.close()


def connected(world: World) -> World:
    world.until(lambda: world.live.status()["connected"])
    return world


class TestFunctions:
    """Everything works through a bridge as it does at the main, errors included."""

    def test_the_public_functions(self, main: Main, bridge: Bridge) -> None:
        world = bridge("a")
        session_id = world.session(title="T", metadata={"owner": "u"})
        world.call("ensure", session_id="mine")
        first = world.append(session_id, user("1"))
        for message in (assistant("2", usage={"input": 1}), result("3", details={"x": 1}), custom("4")):
            world.append(session_id, message, origin={"o": 1})
        world.call("append", session_id=session_id, custom={"custom_type": "c", "data": [None]})
        world.call("append-many", session_id=session_id, messages=[user("5"), user("6")])
        world.call("update-message", session_id=session_id, entry_id=first, content=text("one"))
        world.call("set-status", session_id=session_id, status="working")
        world.call("set-meta", session_id=session_id, description="D")
        fork = world.call("fork", session_id=session_id, entry_id=first)
        world.call("set-active-leaf", session_id=fork["session_id"], entry_id=world.entry_ids(fork["session_id"])[0])
        for function, fields in (
            ("get", {"session_id": session_id}),
            ("list", {"metadata": {"owner": "u"}}),
            ("messages", {"session_id": session_id, "include_custom": True}),
            ("get-message", {"session_id": session_id, "entry_id": first}),
            ("messages", {"session_id": fork["session_id"]}),
            ("get", {"session_id": "nope"}),
        ):
            assert world.call(function, fields) == main.call(function, **fields)
        assert world.call("delete", session_id="mine") == {"deleted": True}
        assert not (world.home / "live").exists()

    def test_errors(self, bridge: Bridge) -> None:
        world = bridge("a")
        session_id = world.session()
        assert world.refused("messages", session_id="nope") == "not_found"
        assert world.refused("append", session_id=session_id, message=user(), parent_id="x") == "parent_not_found"
        assert world.refused("append-many", session_id=session_id, messages=[]) == "empty_batch"
        assert world.refused("list", cursor="x") == "invalid_cursor"
        assert world.refused("append", session_id=session_id, message={"role": "bot"}) == "invalid_request"
        assert world.refused("append", session_id=session_id, message=result(details=object())) == "invalid_request"

    def test_the_store_is_elsewhere(self, bridge: Bridge) -> None:
        world = bridge("a")
        assert world.refused("store::get-meta", session_id="x") == "storage"
        assert world.refused("store::list-metas") == "storage"
        assert world.refused("store::publish-events", events=[]) == "storage"

    def test_limits_are_its_own(self, main: Main, new_world: NewWorld, tmp_path: Path) -> None:
        table = {
            "adapter": {"name": "bridge", "config": {"url": main.url}},
            "default_list_limit": 2,
            "max_list_limit": 3,
        }
        world = new_world(tmp_path / "b", table)
        session_id = world.session()
        for _ in range(5):
            world.session()
            world.append(session_id)
        for function, name in (("list", "sessions"), ("messages", "messages")):
            sizes = [len(world.call(function, session_id=session_id, limit=limit)[name]) for limit in (None, 0, 2, 100)]
            assert sizes == [2, 1, 2, 3]
        world.close()


class TestEvents:
    """A change at any instance reaches the subscribers of every instance once, in order, through their filters."""

    def test_exactly_once_everywhere(self, main: Main, bridge: Bridge) -> None:
        a, b = connected(bridge("a")), connected(bridge("b"))
        at_main: list[Any] = []

        async def bind() -> None:
            async def deliver(payload: Any, seq: int) -> None:
                at_main.append(payload)

            main.live.bind("m", "session::message-added", {}, deliver)

        main.run(bind())
        at_a, at_b = a.bind("session::message-added"), b.bind("session::message-added")
        only_mine = b.bind("session::message-added", {"metadata": {"owner": "me"}})
        session_id = a.session(metadata={"owner": "me"})
        other = main.call("create", metadata={"owner": "other"})["session_id"]
        for number in range(10):
            a.append(session_id, user(f"a{number}"))
            b.append(session_id, user(f"b{number}"))
            main.call("append", session_id=other, message=user(f"m{number}"))
        for world, got in ((a, at_a), (b, at_b)):
            world.until(lambda got=got: len(got) >= 30)
            world.settle()
        b.until(lambda: len(at_main) >= 30)
        assert at_a == at_b == at_main
        assert Counter(payload["message"]["content"][0]["text"] for payload in at_a).most_common(1)[0][1] == 1
        assert [payload["session_id"] for payload in only_mine] == [session_id] * 20

    def test_two_writers_lose_nothing(self, main: Main, bridge: Bridge) -> None:
        a, b = connected(bridge("a")), connected(bridge("b"))
        session_id = a.session()

        def write(world: World, name: str) -> None:
            async def many() -> None:
                call = world.live.call
                messages = [{"session_id": session_id, "message": user(f"{name}{number}")} for number in range(100)]
                await asyncio.gather(*(call("session::append", message) for message in messages))

            world.run(many())

        threads = [threading.Thread(target=write, args=pair) for pair in ((a, "a"), (b, "b"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        items = main.call("messages", session_id=session_id, limit=500)["messages"]
        words = [item["message"]["content"][0]["text"] for item in items]
        assert sorted(words) == sorted(f"{name}{number}" for name in "ab" for number in range(100))
        assert main.call("get", session_id=session_id)["meta"]["message_count"] == 200

    def test_same_entry_from_two_sides(self, bridge: Bridge) -> None:
        a, b = bridge("a"), bridge("b")
        session_id = a.session()
        first = a.call("append", session_id=session_id, message=user("a"), entry_id="e")
        assert b.call("append", session_id=session_id, message=user("b"), entry_id="e") == first
        assert b.said(session_id) == ["a"]

    def test_catches_up_after_a_lost_connection(self, main: Main, bridge: Bridge) -> None:
        a = connected(bridge("a"))
        got = a.bind("session::message-added")
        session_id = main.call("create")["session_id"]
        main.call("append", session_id=session_id, message=user("before"))
        a.until(lambda: len(got) == 1)
        main.shut_door()
        for number in range(700):
            main.call("append", session_id=session_id, message=user(f"{number}"))
        main.open_door()
        a.until(lambda: len(got) >= 701)
        main.call("append", session_id=session_id, message=user("after"))
        a.until(lambda: len(got) >= 702)
        words = [payload["message"]["content"][0]["text"] for payload in got]
        assert words == ["before", *(f"{number}" for number in range(700)), "after"]

    def test_a_restarted_main_goes_on(self, main: Main, bridge: Bridge) -> None:
        a = connected(bridge("a"))
        got = a.bind("session::created")
        main.call("create", title="1")
        a.until(lambda: len(got) == 1)
        main.restart()
        main.call("create", title="2")
        a.until(lambda: len(got) == 2)
        connected(a)
        a.session(title="3")
        a.until(lambda: len(got) == 3)
        assert [payload["title"] for payload in got] == ["1", "2", "3"]
        assert [payload["seq"] for payload in got] == [1, 2, 3]

    def test_another_store_behind_the_main(self, main: Main, bridge: Bridge, tmp_path: Path) -> None:
        a = connected(bridge("a"))
        a.session(title="old")
        a.until(lambda: a.live.last_seq == 1)
        got = a.bind("session::created")
        main.restart(tmp_path / "other")
        session_id = main.call("create", title="new")["session_id"]
        a.until(lambda: got)
        assert {payload["title"] for payload in got} == {"new"}
        assert a.call("get", session_id=session_id)["meta"]["title"] == "new"

    def test_replay_reaches_back_beyond_the_bridge(self, main: Main, bridge: Bridge) -> None:
        for number in range(5):
            main.call("create", title=f"{number}")
        a = connected(bridge("a"))
        late = a.bind("session::created", {"after": 2})
        a.until(lambda: len(late) == 3)
        assert [payload["title"] for payload in late] == ["2", "3", "4"]
        assert [without(payload, "seq") for _, payload in a.events()]

    def test_deleted_sessions_are_not_in_its_memory(self, main: Main, bridge: Bridge) -> None:
        """It replays recent events by itself; of a deleted session these have no content left."""
        a = connected(bridge("a"))
        session_id = a.session(title="the quokka", metadata={"owner": "quokka"})
        a.append(session_id, user("the quokka"))
        kept = a.session(title="the numbat")
        got = a.bind("session::deleted", {"metadata": {"owner": "quokka"}})
        a.call("delete", session_id=session_id)
        a.until(lambda: got)
        main.shut_door()
        late = a.bind("session::store::events", {"after": 0})
        a.until(lambda: len(late) == 4)
        assert "quokka" not in str(late)
        assert [(envelope["seq"], envelope["payload"]["session_id"]) for envelope in late] == [
            (1, session_id),
            (2, session_id),
            (3, kept),
            (4, session_id),
        ]
        assert late[2]["payload"]["title"] == "the numbat"
        main.open_door()

    def test_bound_before_the_main_was_there(self, main: Main, bridge: Bridge) -> None:
        main.call("create", title="0")
        main.shut_door()
        a = bridge("a")
        late, live = a.bind("session::created", {"after": 0}), a.bind("session::created")
        main.open_door()
        connected(a)
        a.session(title="1")
        a.until(lambda: len(late) == 2)
        assert [payload["title"] for payload in late] == ["0", "1"]
        assert [payload["title"] for payload in live] == ["1"]


def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of 200,000 bytes and pages of 50,000, so that what is large is soon reached."""
    for module in (types, wire_client, frames):
        monkeypatch.setattr(module, "MAX_FRAME_BYTES", 200_000)
    monkeypatch.setattr(wire_client, "_MAX_RECEIVED", 250_000)
    monkeypatch.setattr(types, "PAGE_BYTES", 50_000)
    monkeypatch.setattr(types, "MAX_ENTRY_BYTES", 150_000)


class TestLargeSessions:
    """Everything goes over the wire in messages that fit, and one call does not end another."""

    @pytest.fixture(autouse=True)
    def limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        small_limits(monkeypatch)

    def test_much_was_missed(self, main: Main, bridge: Bridge) -> None:
        a = connected(bridge("a"))
        got = a.bind("session::message-added")
        session_id = main.call("create")["session_id"]
        main.call("append", session_id=session_id, message=user("before"))
        a.until(lambda: len(got) == 1)
        main.shut_door()
        for number in range(20):
            main.call("append", session_id=session_id, message=user(f"{number} " + "x" * 30_000))
        main.call("append-many", session_id=session_id, messages=[user(f"{n} " + "x" * 30_000) for n in range(20, 30)])
        main.open_door()
        a.until(lambda: len(got) >= 31)
        assert [payload["message"]["content"][0]["text"].split()[0] for payload in got[1:]] == [*map(str, range(30))]
        late = a.bind("session::message-added", {"after": 2})
        a.until(lambda: len(late) >= 30)

    def test_pages(self, main: Main, bridge: Bridge) -> None:
        a, b = connected(bridge("a")), connected(bridge("b"))
        session_id = a.session()
        for number in range(20):
            a.append(session_id, user(f"{number} " + "x" * 30_000))

        async def both() -> list[Any]:
            read = a.live.call("session::messages", {"session_id": session_id, "limit": 500})
            writes = [
                a.live.call("session::append", {"session_id": session_id, "message": user("w")}) for _ in range(9)
            ]
            return await asyncio.gather(read, *writes)

        page, *written = a.run(both())
        assert len(written) == 9
        items = list(page["messages"])
        assert 1 <= len(items) < 5
        while cursor := page.get("next_cursor"):
            page = b.call("messages", session_id=session_id, limit=500, cursor=cursor)
            items += page["messages"]
        assert len(items) == 29

    def test_sessions_with_much_metadata(self, main: Main, bridge: Bridge) -> None:
        a = connected(bridge("a"))
        for number in range(10):
            a.session(metadata={"number": number, "note": "x" * 30_000})
        found, page = [], a.call("list", order="created_asc")
        found += page["sessions"]
        assert len(found) < 5
        while cursor := page.get("next_cursor"):
            page = a.call("list", order="created_asc", cursor=cursor)
            found += page["sessions"]
        assert sorted(meta["metadata"]["number"] for meta in found) == [*range(10)]

    def test_an_answer_that_does_not_fit(self, main: Main, bridge: Bridge) -> None:
        """The call fails, and nothing else: the connection goes on."""
        a = connected(bridge("a"))
        session_id = a.session()
        for _ in range(10):
            a.append(session_id, user("x" * 30_000))
        client: Any = a.live._adapter._client  # type: ignore[attr-defined]
        connection = client._connection
        with pytest.raises(wire_client.RemoteError, match="too long to be sent"):
            a.run(client.call("session::store::list-entries", {"session_id": session_id}))
        with pytest.raises(wire_client.RemoteError, match="more than the 200000 that can be sent"):
            a.run(client.call("session::append", {"session_id": session_id, "message": user("x" * 300_000)}))
        assert a.refused("append", session_id=session_id, message=user("x" * 300_000)) == "invalid_request"
        assert a.refused("append", session_id=session_id, message=user("x" * 160_000)) == "invalid_request"
        assert client._connection is connection

    def test_the_state_is_told_in_pages(self, main: Main, bridge: Bridge, tmp_path: Path) -> None:
        a = connected(bridge("a"))
        a.session(title="old")
        a.until(lambda: a.live.last_seq == 1)
        got = a.bind("session::message-added")
        main.shut_door()
        main.run(main.live.close())
        main.live = Live(tmp_path / "other", fetch_config=main._config, environ={})
        main.run(main.live.start())
        for number in range(4):
            session_id = main.call("create", metadata={"note": "x" * 30_000})["session_id"]
            for word in range(6):
                main.call("append", session_id=session_id, message=user(f"{number}.{word} " + "x" * 30_000))
        main.open_door()
        a.until(lambda: len(got) >= 24)
        words = [payload["message"]["content"][0]["text"].split()[0] for payload in got]
        assert words == [f"{number}.{word}" for number in range(4) for word in range(6)]

    def test_a_lost_event_is_not_waited_for(self, main: Main, bridge: Bridge) -> None:
        a = connected(bridge("a"))
        session_id = main.call("create")["session_id"]
        a.until(lambda: a.live.last_seq == 1)
        main.shut_door()
        main.call("append", session_id=session_id, message=user("spoil me"))
        (log,) = (main.home / "live" / ".store" / "journal").iterdir()
        log.write_bytes(log.read_bytes().replace(b"spoil me", b"\xff\xff\xff"))
        main.open_door()
        a.until(lambda: a.live.last_seq == 2)
        assert a.said(session_id)


@pytest.mark.slow
class TestRealSizes:
    """The same with the limits as they are."""

    def test_more_than_fits_one_message(self, main: Main, bridge: Any) -> None:
        main.replay_mb = 500
        main.restart()
        a, b = connected(bridge("a")), connected(bridge("b"))
        got = a.bind("session::message-added")
        session_id = main.call("create")["session_id"]
        main.shut_door()
        for number in range(80):
            main.call("append", session_id=session_id, message=user(f"{number} " + "x" * (1 << 20)))
        main.open_door()
        a.until(lambda: len(got) >= 80)
        connected(b)
        items, page = [], b.call("messages", session_id=session_id, limit=500)
        items += page["messages"]
        while cursor := page.get("next_cursor"):
            page = b.call("messages", session_id=session_id, limit=500, cursor=cursor)
            items += page["messages"]
        assert [item["message"]["content"][0]["text"].split()[0] for item in items] == [*map(str, range(80))]
        assert [payload["message"]["content"][0]["text"].split()[0] for payload in got] == [*map(str, range(80))]


class TestExpired:
    """A position whose events are gone is refused on a bridge as it is at the main, and never skipped past."""

    @pytest.fixture
    def expired(self, main: Main, monkeypatch: pytest.MonkeyPatch) -> int:
        """The number of an event that is no longer kept."""
        monkeypatch.setattr(journal, "SEGMENT_BYTES", 100_000)
        main.replay_mb = 1
        main.restart()
        self.say_much(main)
        return 2

    def say_much(self, main: Main) -> None:
        """So much that the oldest events are dropped."""
        session_id = main.call("create")["session_id"]
        store: Any = main.live._adapter._store  # type: ignore[attr-defined]
        for number in range(40):
            main.call("append", session_id=session_id, message=user(f"{number}" * 25_000))
            main.run(self.save(store))
        assert store.journal.oldest > 3

    async def save(self, store: Any) -> None:
        store._rotate()
        await store.upkeep.save()

    def test_follow(self, expired: int, bridge: Bridge) -> None:
        a = connected(bridge("a"))
        with pytest.raises(LiveError) as caught:
            a.run(a.live.ensure_kept(expired))
        assert caught.value.code == "invalid_cursor"
        a.run(a.live.ensure_kept(a.live.last_seq - 1))

        async def first() -> Event:
            return await anext(a.live.follow(after=expired))

        with pytest.raises(LiveError) as caught:
            a.run(first())
        assert caught.value.code == "invalid_cursor"

    def test_over_http(self, expired: int, bridge: Bridge) -> None:
        a = connected(bridge("a"))
        app = Starlette(routes=session_routes(a.live))
        for where in ({"params": {"after": expired}}, {"headers": {"Last-Event-ID": str(expired)}}):
            answer = a.run(self.get(app, **where))
            assert answer.status_code == 410
            assert answer.json()["error"]["code"] == "invalid_cursor"

    async def get(self, app: Starlette, **where: Any) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            return await client.get("/session/events", **where)

    def test_a_binding(self, expired: int, bridge: Bridge) -> None:
        a = connected(bridge("a"))

        async def bind() -> list[Any]:
            engine = Engine(a.live)
            peer = engine.attach()
            await peer.outbox.get()
            frame = {"type": "registertrigger", "id": "t", "trigger_type": "session::created", "function_id": "f"}
            await engine.receive(peer, json.dumps({**frame, "config": {"after": expired}}))
            return [json.loads(await peer.outbox.get())]

        (answer,) = a.run(bind())
        assert answer["type"] == "triggerregistrationresult"
        assert "session/invalid_cursor" in answer["error"]["message"]

    def test_expired_while_the_bridge_was_away(self, main: Main, expired: int, bridge: Bridge) -> None:
        """Its subscribers get the state instead, and the events after it."""
        a = connected(bridge("a"))
        got = a.bind("session::created")
        main.shut_door()
        self.say_much(main)
        main.open_door()
        connected(a)
        a.until(lambda: len(got) == 2)
        session_id = a.session(title="after")
        a.until(lambda: len(got) == 3)
        assert got[-1]["session_id"] == session_id

    def test_expired_before_the_main_was_there(self, main: Main, expired: int, bridge: Bridge) -> None:
        main.shut_door()
        a = bridge("a")

        async def first() -> Event:
            return await anext(a.live.follow(after=expired))

        threading.Timer(0.2, main.open_door).start()
        with pytest.raises(LiveError) as caught:
            a.run(first())
        assert caught.value.code == "invalid_cursor"


class TestUnreachable:
    """A main that is not there is no reason not to start; calls say so, and work once it is."""

    def test_starts_without_it(self, main: Main, bridge: Any) -> None:
        main.shut_door()
        world = bridge("a", timeout_ms=200)
        with pytest.raises(Exception, match=f"session/storage: the main at {main.url} cannot be reached"):
            world.call("create")
        assert world.live.status()["connected"] is False
        main.open_door()
        connected(world)
        assert self.session_soon(world)

    def session_soon(self, world: World) -> str:
        """A new session, though a busy machine may need longer for it than this bridge waits."""
        until = time.monotonic() + 60
        while True:
            try:
                return world.session()
            except LiveError:
                assert time.monotonic() < until

    def test_waits_for_it_as_long_as_a_call_may_take(self, main: Main, bridge: Any) -> None:
        main.shut_door()
        world = bridge("a")
        opener = threading.Timer(0.3, main.open_door)
        opener.start()
        assert world.session()
        opener.join()


class TestSelfReference:
    """A bridge to itself, also under another name, is refused at boot; one in a circle answers with an error."""

    def test_aliases(self) -> None:
        for url in [
            "ws://127.0.0.1:7717",
            "ws://127.0.0.1:7717/",
            "ws://localhost:7717",
            "ws://LOCALHOST.:7717/",
            "ws://127.0.0.2:7717",
            "ws://[::1]:7717",
            "ws://0.0.0.0:7717",
            f"ws://{socket.gethostname()}:7717",
        ]:
            assert is_own_url(url, ["ws://127.0.0.1:7717"])

    def test_others(self) -> None:
        for url in ("ws://127.0.0.1:7718", "ws://127.0.0.1:7717/other", "ws://192.0.2.1:7717"):
            assert not is_own_url(url, ["ws://127.0.0.1:7717"])

    def test_refused_at_boot(self, tmp_path: Path) -> None:
        async def fetch() -> dict[str, Any]:
            return {"adapter": {"name": "bridge", "config": {"url": "ws://localhost:7717/"}}}

        live = Live(tmp_path, fetch_config=fetch, own_urls=["ws://127.0.0.1:7717"], environ={})
        with pytest.raises(ConfigError, match="is this very server"):
            asyncio.run(live.start())

    def test_a_main_that_is_itself_a_bridge(self, main: Main, bridge: Any) -> None:
        async def reload() -> bool:
            main.live._fetch = self.circle(main.url)
            return await main.live.reload()

        assert main.run(reload())
        # The call waits for a connection that never comes: the whole of its time.
        world = bridge("a", timeout_ms=1_000)
        refusals: list[str] = []
        while not any("does not keep sessions itself" in message for message in refusals):
            assert len(refusals) < 60, refusals  # a busy machine may need longer than one call waits
            with pytest.raises(Exception) as refused:
                world.call("create")
            refusals.append(str(refused.value))

    def circle(self, url: str) -> Any:
        async def fetch() -> dict[str, Any]:
            return {"adapter": {"name": "bridge", "config": {"url": url, "timeout_ms": 300}}}

        return fetch
