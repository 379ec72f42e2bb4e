"""Trigger types: what bindings accept, what they let through, and replay."""

from __future__ import annotations

from typing import Any

import pytest

from backstory.toolsets.live import LiveError
from tests.live_world import World, assistant, custom, settled, text, user

TYPES = ["created", "message-added", "message-updated", "status-changed", "meta-updated", "deleted"]


def refusal(world: World, trigger_type: str, config: Any) -> str:
    with pytest.raises(LiveError) as caught:
        world.bind(f"session::{trigger_type}", config)
    return caught.value.code


def change_everything(world: World, **fields: Any) -> str:
    """One event of every type."""
    session_id = world.session(**fields)
    entry_id = world.append(session_id, assistant("a"))
    world.call("update-message", session_id=session_id, entry_id=entry_id, content=text("b"))
    world.call("set-status", session_id=session_id, status="done")
    world.call("set-meta", session_id=session_id, title="t")
    world.call("delete", session_id=session_id)
    return session_id


class TestRegistration:
    """A filter that the type does not have, or that is malformed, is refused when the binding is made."""

    def test_the_types(self, world: World) -> None:
        ids = [kind.id for kind in world.live.trigger_types()]
        assert sorted(ids) == sorted(f"session::{name}" for name in [*TYPES, "store::events"])

    def test_unknown_keys(self, world: World) -> None:
        for name in TYPES:
            assert refusal(world, name, {"owner": "u"}) == "invalid_request"
            assert refusal(world, name, {"sessionid": "u", "metadata": {}}) == "invalid_request"

    def test_roles_only_for_messages(self, world: World) -> None:
        for name in ["created", "status-changed", "meta-updated", "deleted", "store::events"]:
            assert refusal(world, name, {"roles": ["user"]}) == "invalid_request"

    def test_malformed(self, world: World) -> None:
        for name, config in [
            ("created", {"session_id": "s"}),
            ("message-added", {"roles": ["system"]}),
            ("message-added", {"roles": "user"}),
            ("message-added", {"roles": [1]}),
            ("message-added", {"session_id": 1}),
            ("deleted", {"metadata": []}),
            ("deleted", {"after": -1}),
            ("deleted", {"after": True}),
            ("deleted", {"after": "1"}),
            ("deleted", []),
            ("deleted", "x"),
            ("store::events", {"session_id": "s"}),
            ("store::events", {"metadata": {}}),
            ("unheard-of", {}),
        ]:
            assert refusal(world, name, config) == "invalid_request"

    def test_nothing_given(self, world: World) -> None:
        for config in [None, {}, {"metadata": None, "after": None}]:
            got = world.bind("session::created", config)
            world.session()
            world.settle()
            assert len(got) == 1


class TestFilters:
    """All filters given must hold; each matching binding gets the event once."""

    def test_each_type_gets_its_own(self, world: World) -> None:
        got = {name: world.bind(f"session::{name}") for name in TYPES}
        feed = world.bind("session::store::events")
        session_id = change_everything(world, metadata={"owner": "u_1"})
        world.settle()
        assert {name: len(events) for name, events in got.items()} == dict.fromkeys(TYPES, 1)
        assert all(events[0]["session_id"] == session_id for events in got.values())
        assert [envelope["trigger_type"] for envelope in feed] == [f"session::{name}" for name in TYPES]
        assert [envelope["payload"] for envelope in feed] == [events[0] for events in got.values()]
        assert [envelope["seq"] for envelope in feed] == [1, 2, 3, 4, 5, 6]
        assert all(envelope["session_metadata"] == {"owner": "u_1"} for envelope in feed)

    def test_two_bindings_of_one_kind(self, world: World) -> None:
        one, other = world.bind("session::created"), world.bind("session::created")
        world.session()
        world.settle()
        assert one == other
        assert len(one) == 1

    def test_session_id(self, world: World) -> None:
        mine = world.session()
        names = TYPES[1:]
        got = {name: world.bind(f"session::{name}", {"session_id": mine}) for name in names}
        change_everything(world)
        world.append(mine)
        world.settle()
        assert {name: len(events) for name, events in got.items()} == {**dict.fromkeys(names, 0), "message-added": 1}

    def test_roles(self, world: World) -> None:
        session_id = world.session()
        users = world.bind("session::message-added", {"roles": ["user"]})
        customs = world.bind("session::message-added", {"roles": ["custom"]})
        none = world.bind("session::message-added", {"roles": []})
        updates = world.bind("session::message-updated", {"roles": ["assistant"]})
        world.call("append", session_id=session_id, custom={"custom_type": "c"})
        world.append(session_id, custom("c"))
        for message in (user("u"), assistant("a")):
            entry_id = world.append(session_id, message)
            world.call("update-message", session_id=session_id, entry_id=entry_id, content=[])
        world.settle()
        assert [event["message"]["role"] for event in users] == ["user"]
        assert [event["message"]["role"] for event in customs] == ["custom"]
        assert none == []
        assert [event["message"]["role"] for event in updates] == ["assistant"]

    @pytest.mark.parametrize("name", TYPES)
    def test_metadata(self, world: World, name: str) -> None:
        matching = world.bind(f"session::{name}", {"metadata": {"owner": "u_1"}})
        other = world.bind(f"session::{name}", {"metadata": {"owner": "u_2"}})
        any_ = world.bind(f"session::{name}", {"metadata": {}})
        mine = change_everything(world, metadata={"owner": "u_1", "more": [1]})
        change_everything(world)
        world.settle()
        assert [event["session_id"] for event in matching] == [mine]
        assert other == []
        assert len(any_) == 2

    @pytest.mark.parametrize("value", [1, 1.0, True, "1", None, [1], {"a": 1}])
    def test_metadata_is_compared_strictly(self, world: World, value: Any) -> None:
        got = world.bind("session::created", {"metadata": {"v": value}})
        for stored in (1, 1.0, True, "1", None, [1], [1.0], {"a": 1}, {"a": True}):
            world.session(metadata={"v": stored})
        world.session(metadata={"other": 1})
        world.settle()
        assert len(got) == 1

    def test_metadata_of_the_moment(self, world: World) -> None:
        session_id = world.session(metadata={"owner": "a"})
        a = world.bind("session::meta-updated", {"metadata": {"owner": "a"}})
        b = world.bind("session::meta-updated", {"metadata": {"owner": "b"}})
        world.call("set-meta", session_id=session_id, metadata={"owner": "b"})
        world.settle()
        assert (len(a), len(b)) == (0, 1)


class TestBindings:
    """A binding ends when it is unbound or replaced, and one that fails does not affect others."""

    def test_unbind(self, world: World) -> None:
        got: list[Any] = []

        async def scenario() -> None:
            async def deliver(payload: Any, seq: int) -> None:
                got.append(seq)

            unbind = world.live.bind("b", "session::created", {}, deliver)
            await world.live.call("session::create", {})
            await settled()
            unbind()
            unbind()
            await world.live.call("session::create", {})
            await settled()

        world.run(scenario())
        assert got == [1]
        assert world.live.status()["bindings"] == 0

    def test_same_id_replaces(self, world: World) -> None:
        got: list[str] = []

        async def scenario() -> None:
            async def old(payload: Any, seq: int) -> None:
                got.append("old")

            async def new(payload: Any, seq: int) -> None:
                got.append("new")

            world.live.bind("b", "session::created", {}, old)
            world.live.bind("b", "session::created", {}, new)
            await world.live.call("session::create", {})
            await settled()

        world.run(scenario())
        assert got == ["new"]

    def test_one_that_raises(self, world: World) -> None:
        calls: list[int] = []

        async def broken(payload: Any, seq: int) -> None:
            calls.append(seq)
            raise RuntimeError("no")

        world.bind("session::created", {}, broken)
        got = world.bind("session::created")
        world.session()
        world.session()
        world.settle()
        assert calls == [1, 2]
        assert len(got) == 2


class TestReplay:
    """Every event has a number, and everything after a number can be had again, also after a restart."""

    def test_after(self, world: World) -> None:
        """Of a session that was deleted meanwhile the numbers, types and the id are left."""
        session_id = change_everything(world)
        world.reopen()
        assert world.live.last_seq == 6
        late = world.bind("session::store::events", {"after": 2})
        kept = world.session(title="kept")
        world.settle()
        assert [(envelope["seq"], envelope["trigger_type"]) for envelope in late[:3]] == [
            (3, "session::message-updated"),
            (4, "session::status-changed"),
            (5, "session::meta-updated"),
        ]
        assert [envelope["payload"] for envelope in late[:3]] == [
            {"session_id": session_id, "deleted": True, "seq": number} for number in (3, 4, 5)
        ]
        assert late[3]["payload"].keys() == {"session_id", "timestamp", "seq"}
        assert [envelope["seq"] for envelope in late] == [3, 4, 5, 6, 7]
        assert (late[4]["payload"]["session_id"], late[4]["payload"]["title"]) == (kept, "kept")

    def test_with_filters(self, world: World) -> None:
        first = world.session(metadata={"owner": "a"})
        world.append(first)
        world.append(world.session(metadata={"owner": "b"}))
        got = world.bind("session::message-added", {"after": 0, "metadata": {"owner": "a"}})
        world.settle()
        assert [event["session_id"] for event in got] == [first]

    def test_filters_after_a_deletion(self, world: World) -> None:
        """Blank events match no filter on role or metadata; the deletion itself passes every metadata filter."""
        session_id = change_everything(world, metadata={"owner": "a"})
        mine = {"after": 0, "session_id": session_id}
        all_of_it = world.bind("session::message-added", mine)
        by_role = world.bind("session::message-added", {**mine, "roles": ["assistant"]})
        by_owner = world.bind("session::message-added", {**mine, "metadata": {"owner": "a"}})
        deletions = [
            world.bind("session::deleted", {"after": 0, "metadata": metadata})
            for metadata in ({"owner": "a"}, {"b": 1})
        ]
        world.settle()
        assert [len(got) for got in (all_of_it, by_role, by_owner, *deletions)] == [1, 0, 0, 1, 1]

    def test_replayed_events_are_the_events(self, world: World) -> None:
        received = world.bind("session::store::events")
        session_id = world.session(metadata={"owner": "a"}, title="T", description="D")
        entry_id = world.append(session_id, assistant("a"))
        world.call("update-message", session_id=session_id, entry_id=entry_id, content=text("b"))
        world.call("set-status", session_id=session_id, status="error", reason="r")
        world.call("set-meta", session_id=session_id, title="t")
        world.call("append-many", session_id=world.session(), messages=[user(), assistant()], origin={"o": 1})
        world.settle()
        world.reopen()
        again = world.bind("session::store::events", {"after": 0})
        world.settle()
        assert len(again) == 8
        assert again == received

    def test_a_number_that_is_not_there_yet(self, world: World) -> None:
        assert refusal(world, "created", {"after": 5}) == "invalid_cursor"

    def test_in_the_middle_of_a_batch(self, world: World) -> None:
        session_id = world.session()
        world.call("append-many", session_id=session_id, messages=[user("a"), user("b"), user("c")])
        got = world.bind("session::message-added", {"after": 3})
        world.settle()
        assert [event["seq"] for event in got] == [4]

    def test_follow(self, world: World) -> None:
        mine = change_everything(world)
        change_everything(world)

        async def scenario() -> list[tuple[str, str]]:
            found = []
            async for event in world.live.follow({"session_id": mine}, after=0):
                found.append((event.trigger_type.removeprefix("session::"), event.payload["session_id"]))
                if len(found) == len(TYPES):
                    break
            return found

        assert world.run(scenario()) == [(name, mine) for name in TYPES]
