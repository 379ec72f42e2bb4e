"""`session::store::*` and the surface as a whole: names, schemas, errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live_world import World, text, user, without

PUBLIC = (
    "append append-many create delete ensure fork get get-message list messages set-active-leaf set-meta set-status "
    "update-message config-status on-config-change"
).split()
STORE = (
    "delete-active-leaf delete-entries delete-meta get-active-leaf get-entry get-meta list-entries list-metas "
    "publish-events put-entry put-meta set-active-leaf"
).split()


class TestSurface:
    """Every function of the contract is there, with its schemas, and answers nothing but JSON or an error."""

    def test_names(self, world: World) -> None:
        names = [function.id for function in world.live.functions()]
        expected = [f"session::{name}" for name in PUBLIC] + [f"session::store::{name}" for name in STORE]
        assert sorted([*expected, "session::store::replay-events"]) == sorted(names)

    def test_schemas_are_complete(self, world: World) -> None:
        for function in world.live.functions():
            for schema in (function.request_schema, function.response_schema):
                assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
                references = set(find_references(schema))
                assert references <= {f"#/definitions/{name}" for name in schema.get("definitions", {})}
        append = next(function for function in world.live.functions() if function.id == "session::append")
        assert append.request_schema["required"] == ["session_id"]
        assert append.request_schema["definitions"].keys() == {
            "AgentMessage",
            "ContentBlock",
            "CustomPayload",
            "ErrorKind",
            "StopReason",
            "Usage",
        }

    def test_unknown_function(self, world: World) -> None:
        with pytest.raises(KeyError):
            world.call("unheard-of")

    def test_nonsense_is_refused(self, world: World) -> None:
        for name in [*PUBLIC, *(f"store::{name}" for name in STORE)]:
            for data in [[], "x", 1, True, {"session_id": 5, "entry_id": 5, "meta": 5, "events": 5, "id": 5}]:
                if isinstance(data, dict) and name in (
                    "create",
                    "list",
                    "config-status",
                    "on-config-change",
                    "store::list-metas",
                ):
                    continue  # it has none of these fields
                assert world.refused(name, data) == "invalid_request"

    def test_errors_say_which_field(self, world: World) -> None:
        with pytest.raises(Exception, match=r"session/invalid_request: message\.role: invalid value 'bot'"):
            world.call("append", session_id="x", message={"role": "bot"})
        with pytest.raises(Exception, match="session/invalid_request: session_id is required"):
            world.call("get")


def find_references(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [schema["$ref"]] if isinstance(schema.get("$ref"), str) else []
        return own + [found for value in schema.values() for found in find_references(value)]
    return [found for value in schema for found in find_references(value)] if isinstance(schema, list) else []


class TestStore:
    """The store as it is: what is put is what is got, and no rule of the domain applies."""

    @pytest.fixture
    def meta(self) -> dict[str, Any]:
        fields = {"session_id": "x", "title": "T", "description": "", "status": "idle", "message_count": 7}
        return {**fields, "created_at": 1, "updated_at": 2, "metadata": {"a": 1}}

    def entry(self, name: str, parent: str | None = None, words: str = "w") -> dict[str, Any]:
        return {
            "kind": "message",
            "id": name,
            "parent_id": parent,
            "timestamp": 5,
            "revision": 3,
            "message": user(words),
        }

    def test_meta(self, world: World, meta: dict[str, Any]) -> None:
        assert world.call("store::get-meta", session_id="x") is None
        assert world.call("store::put-meta", meta=meta) == {"ok": True}
        assert world.call("store::get-meta", session_id="x") == meta
        assert world.call("store::list-metas") == {"metas": [meta]}
        assert world.call("list", metadata={"a": 1})["sessions"] == [meta]
        world.call("store::put-meta", meta={**meta, "title": "U", "metadata": None})
        assert world.call("get", session_id="x")["meta"] == {**without(meta, "metadata"), "title": "U"}
        assert world.call("list", metadata={"a": 1})["sessions"] == []
        assert world.events() == []

    def test_entries(self, world: World, meta: dict[str, Any]) -> None:
        world.call("store::put-meta", meta=meta)
        note = {
            "kind": "custom",
            "id": "n",
            "parent_id": "a",
            "timestamp": 6,
            "revision": 0,
            "custom_type": "c",
            "data": None,
        }
        for entry in (self.entry("a"), note):
            assert world.call("store::put-entry", session_id="x", entry=entry) == {"ok": True}
        assert world.call("store::get-entry", session_id="x", entry_id="n") == note
        assert world.call("store::get-entry", session_id="x", entry_id="q") is None
        assert world.call("store::get-entry", session_id="q", entry_id="n") is None
        assert world.call("store::list-entries", session_id="x") == {"entries": [self.entry("a"), note]}
        assert world.call("store::list-entries", session_id="q") == {"entries": []}
        assert world.call("store::get-active-leaf", session_id="x") == {"entry_id": None}
        world.call("store::set-active-leaf", session_id="x", entry_id="n")
        assert world.call("store::get-active-leaf", session_id="x") == {"entry_id": "n"}
        assert world.said("x", include_custom=True) == ["w", "<c>"]

    def test_children_before_parents(self, world: World, meta: dict[str, Any]) -> None:
        world.call("store::put-entry", session_id="x", entry=self.entry("c", "b", "3"))
        world.call("store::put-entry", session_id="x", entry=self.entry("b", "a", "2"))
        world.call("store::set-active-leaf", session_id="x", entry_id="c")
        assert world.call("get", session_id="x") is None
        world.call("store::put-meta", meta=meta)
        assert world.said("x") == ["2", "3"]
        world.call("store::put-entry", session_id="x", entry=self.entry("a", None, "1"))
        assert world.said("x") == ["1", "2", "3"]
        world.call("store::put-entry", session_id="x", entry=self.entry("c", "a", "moved"))
        assert world.said("x") == ["1", "moved"]
        world.reopen()
        assert world.said("x") == ["1", "moved"]

    def test_deletions(self, world: World, meta: dict[str, Any]) -> None:
        def fill() -> None:
            world.call("store::put-meta", meta=meta)
            world.call("store::put-entry", session_id="x", entry=self.entry("a"))
            world.call("store::set-active-leaf", session_id="x", entry_id="a")

        fill()
        world.call("store::delete-active-leaf", session_id="x")
        assert world.call("store::get-active-leaf", session_id="x") == {"entry_id": None}
        assert len(world.call("store::list-entries", session_id="x")["entries"]) == 1
        fill()
        world.call("store::delete-entries", session_id="x")
        world.reopen()
        assert world.call("store::list-entries", session_id="x") == {"entries": []}
        assert world.call("store::get-meta", session_id="x") == meta
        fill()
        world.call("store::delete-meta", session_id="x")
        world.reopen()
        assert world.call("get", session_id="x") is None
        assert len(world.call("store::list-entries", session_id="x")["entries"]) == 1
        world.call("store::delete-entries", session_id="x")
        world.call("store::delete-active-leaf", session_id="x")
        assert not world.file("x").exists()
        for name in ("delete-meta", "delete-entries", "delete-active-leaf"):
            assert world.call(f"store::{name}", session_id="x") == {"ok": True}
        world.crash_and_reopen()
        assert world.call("list") == {"sessions": []}
        assert world.events() == []


class TestPublishEvents:
    """Events of an instance that stored its change itself reach all subscribers, numbered like any other."""

    def test_published(self, world: World) -> None:
        matching = world.bind("session::message-added", {"metadata": {"owner": "a"}, "roles": ["user"]})
        feed = world.bind("session::store::events")
        payload = {"session_id": "x", "entry_id": "e", "parent_id": None, "message": user(), "timestamp": 1}
        good = {"trigger_type": "session::message-added", "payload": payload, "session_metadata": {"owner": "a"}}
        bad = [
            {},
            "x",
            {**good, "trigger_type": "session::store::events"},
            {**good, "payload": 1},
            {**good, "payload": {}},
        ]
        world.session()
        assert world.call("store::publish-events", events=[good, *bad, {**good, "session_metadata": None}]) == {
            "published": 2
        }
        world.settle()
        assert [without(event, "seq") for event in matching] == [payload]
        assert [envelope["seq"] for envelope in feed] == [1, 2, 3]
        assert world.call("store::publish-events", events=[]) == {"published": 0}
        world.reopen()
        assert [kind for kind, _ in world.events()] == ["created", "message-added", "message-added"]

    def test_replay_events(self, world: World) -> None:
        session_id = world.session(metadata={"a": 1})
        entry_id = world.append(session_id)
        world.call("update-message", session_id=session_id, entry_id=entry_id, content=text("b"))
        page = world.call("store::replay-events", after=1, limit=1)
        assert [envelope["seq"] for envelope in page["events"]] == [2]
        assert page["head"] == 3
        rest = world.call("store::replay-events", after=2)
        assert rest["store"] == page["store"]
        (envelope,) = rest["events"]
        assert envelope["session_metadata"] == {"a": 1}
        assert world.call("store::replay-events", after=99)["events"] == []


class TestIds:
    """An id that can name no file is refused, by every function that could begin a session."""

    @pytest.mark.parametrize("session_id", ["", "x" * 300, "\x00" * 90])
    def test_refused(self, world: World, session_id: str) -> None:
        meta = {"session_id": session_id, "title": "", "description": "", "status": "idle"}
        meta |= {"created_at": 1, "updated_at": 1, "message_count": 0}
        entry = {"kind": "message", "id": "e", "timestamp": 1, "message": user("a")}
        assert world.refused("ensure", session_id=session_id) == "invalid_request"
        assert world.refused("store::put-meta", meta=meta) == "invalid_request"
        assert world.refused("store::put-entry", session_id=session_id, entry=entry) == "invalid_request"
        assert world.refused("store::set-active-leaf", session_id=session_id, entry_id="e") == "invalid_request"
        assert world.call("store::list-metas") == {"metas": []}
        world.reopen()
        assert world.live.status()["problems"] == {}
