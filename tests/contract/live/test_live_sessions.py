"""Sessions: create, ensure, get, list, set-meta, set-status, delete."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pytest

from tests.live_world import World, user


class TestCreate:
    """A new session is idle, has the given fields and defaults for the rest, and is published."""

    def test_defaults(self, world: World) -> None:
        made = world.call("create")
        meta = made["meta"]
        assert re.fullmatch(r"s_[0-9a-f]{32}", made["session_id"])
        assert meta == {
            "session_id": made["session_id"],
            "title": "",
            "description": "",
            "status": "idle",
            "created_at": meta["created_at"],
            "updated_at": meta["created_at"],
            "message_count": 0,
        }

    def test_given(self, world: World) -> None:
        meta = world.call("create", title="T", description="D", metadata={"owner": "u_1", "n": None})["meta"]
        assert (meta["title"], meta["description"], meta["metadata"]) == ("T", "D", {"owner": "u_1", "n": None})

    def test_null_is_omitted_and_unknown_fields_are_ignored(self, world: World) -> None:
        meta = world.call("create", title=None, metadata=None, _caller_worker_id="w")["meta"]
        assert meta["title"] == ""
        assert "metadata" not in meta

    def test_no_request_at_all(self, world: World) -> None:
        assert world.run(world.live.call("session::create", None))["meta"]["status"] == "idle"

    def test_event(self, world: World) -> None:
        meta = world.call("create", title="T", metadata={"owner": "u_1"})["meta"]
        assert world.events() == [
            (
                "created",
                {
                    "session_id": meta["session_id"],
                    "title": "T",
                    "description": "",
                    "status": "idle",
                    "created_at": meta["created_at"],
                },
            )
        ]

    def test_wrong_types(self, world: World) -> None:
        for request_ in [{"title": 1}, {"description": []}, {"metadata": "x"}, {"metadata": []}, [], "x", 1]:
            assert world.refused("create", request_) == "invalid_request"
            assert world.events() == []


class TestEnsure:
    """A session with a chosen id is created once; from then on ensuring it only reads it."""

    def test_creates_then_reads(self, world: World) -> None:
        first = world.call("ensure", session_id="mine", title="T")
        second = world.call("ensure", session_id="mine", title="other", metadata={"a": 1})
        assert (first["created"], second["created"]) == (True, False)
        assert second["meta"] == first["meta"]
        assert [kind for kind, _ in world.events()] == ["created"]

    def test_empty_id(self, world: World) -> None:
        assert world.refused("ensure", session_id="") == "invalid_request"

    def test_id_too_long_for_a_file_name(self, world: World) -> None:
        assert world.refused("ensure", session_id="x" * 300) == "invalid_request"
        assert world.refused("ensure", session_id="é" * 60) == "invalid_request"

    def test_id_that_is_no_text(self, world: World) -> None:
        assert world.refused("ensure", session_id="\ud800") == "invalid_request"
        assert world.refused("get", session_id="\ud800") == "invalid_request"

    def test_any_id_stays_in_the_folder(self, world: World) -> None:
        ids = ("../../etc/passwd", ".", "..", "a/b", "sp ace", "ünï", "nul\0", "%41", "C:\\x")
        for session_id in ids:
            world.call("ensure", session_id=session_id)
            world.append(session_id)
        world.reopen()
        for session_id in ids:
            assert world.call("get", session_id=session_id)["meta"]["message_count"] == 1
        assert {path.parent for path in world.home.rglob("*.jsonl")} == {
            world.folder,
            world.folder / ".store" / "journal",
        }


class TestGet:
    """A session's meta, or null."""

    def test_unknown(self, world: World) -> None:
        assert world.call("get", session_id="nope") is None

    def test_known(self, world: World) -> None:
        made = world.call("create", title="T")
        assert world.call("get", session_id=made["session_id"]) == {"meta": made["meta"]}

    def test_id_is_required(self, world: World) -> None:
        for request_ in [{}, {"session_id": None}, {"session_id": 1}]:
            assert world.refused("get", request_) == "invalid_request"


class TestSetMeta:
    """Given fields replace the current ones, metadata as a whole; without a field nothing happens."""

    def test_replaces(self, world: World) -> None:
        session_id = world.session(title="a", description="b", metadata={"x": 1, "y": 2})
        meta = world.call("set-meta", session_id=session_id, title="c", metadata={"x": 3})["meta"]
        assert (meta["title"], meta["description"], meta["metadata"]) == ("c", "b", {"x": 3})
        kind, payload = world.events(after=1)[0]
        assert kind == "meta-updated"
        assert payload == {
            "session_id": session_id,
            "title": "c",
            "description": "b",
            "metadata": {"x": 3},
            "timestamp": meta["updated_at"],
        }

    def test_nothing_given(self, world: World) -> None:
        made = world.call("create", title="a")
        size = world.file(made["session_id"]).stat().st_size
        assert world.call("set-meta", session_id=made["session_id"], title=None) == {"meta": made["meta"]}
        assert len(world.events()) == 1
        assert world.file(made["session_id"]).stat().st_size == size

    def test_empty_values_are_values(self, world: World) -> None:
        session_id = world.session(title="a", metadata={"x": 1})
        meta = world.call("set-meta", session_id=session_id, title="", metadata={})["meta"]
        assert (meta["title"], meta["metadata"]) == ("", {})

    def test_unknown(self, world: World) -> None:
        assert world.refused("set-meta", session_id="nope", title="x") == "not_found"
        assert world.refused("set-meta", session_id="nope") == "not_found"


class TestSetStatus:
    """A changed status is published; the same one again is a no-op. Only an error keeps its reason."""

    def test_change(self, world: World) -> None:
        session_id = world.session()
        assert world.call("set-status", session_id=session_id, status="working", reason="why") == {
            "status": "working",
            "previous_status": "idle",
        }
        meta = world.call("get", session_id=session_id)["meta"]
        assert "status_reason" not in meta
        assert world.events(after=1) == [
            (
                "status-changed",
                {
                    "session_id": session_id,
                    "status": "working",
                    "previous_status": "idle",
                    "timestamp": meta["updated_at"],
                },
            )
        ]

    def test_reason_of_an_error(self, world: World) -> None:
        session_id = world.session()
        world.call("set-status", session_id=session_id, status="error", reason="boom")
        assert world.call("get", session_id=session_id)["meta"]["status_reason"] == "boom"
        assert world.events(after=1)[0][1]["status_reason"] == "boom"
        world.call("set-status", session_id=session_id, status="error", reason="other")
        assert world.call("get", session_id=session_id)["meta"]["status_reason"] == "boom"
        world.call("set-status", session_id=session_id, status="done")
        assert "status_reason" not in world.call("get", session_id=session_id)["meta"]
        assert [kind for kind, _ in world.events(after=1)] == ["status-changed", "status-changed"]

    def test_unchanged(self, world: World) -> None:
        session_id = world.session()
        same = world.call("set-status", session_id=session_id, status="idle")
        assert same == {"status": "idle", "previous_status": "idle"}
        assert len(world.events()) == 1

    def test_refusals(self, world: World) -> None:
        session_id = world.session()
        assert world.refused("set-status", session_id="nope", status="done") == "not_found"
        assert world.refused("set-status", session_id="nope", status="paused") == "invalid_request"
        assert world.refused("set-status", session_id=session_id) == "invalid_request"


class TestDelete:
    """A deleted session is gone with its entries and its file; forks of it live on."""

    def test_delete(self, world: World) -> None:
        session_id = world.session(metadata={"owner": "u_1"})
        entry_id = world.append(session_id)
        fork = world.call("fork", session_id=session_id, entry_id=entry_id)["session_id"]
        assert world.call("delete", session_id=session_id) == {"deleted": True}
        assert world.call("get", session_id=session_id) is None
        assert world.call("get-message", session_id=session_id, entry_id=entry_id) is None
        assert world.refused("messages", session_id=session_id) == "not_found"
        assert not world.file(session_id).exists()
        assert world.said(fork) == ["hello"]
        kind, payload = world.events()[-1]
        assert (kind, sorted(payload)) == ("deleted", ["session_id", "timestamp"])

    def test_unknown(self, world: World) -> None:
        assert world.call("delete", session_id="nope") == {"deleted": False}
        assert world.events() == []

    def test_ensured_again_it_starts_empty(self, world: World) -> None:
        world.call("ensure", session_id="mine", title="old")
        world.append("mine", entry_id="e1")
        world.call("delete", session_id="mine")
        again = world.call("ensure", session_id="mine")
        assert (again["created"], again["meta"]["title"], again["meta"]["message_count"]) == (True, "", 0)
        assert world.call("messages", session_id="mine") == {"messages": []}
        world.append("mine", user("new"), entry_id="e1")
        world.reopen()
        assert world.said("mine") == ["new"]


def pages(world: World, **fields: Any) -> list[str]:
    """All session ids, page by page."""
    ids: list[str] = []
    cursor = None
    while True:
        page = world.call("list", cursor=cursor, **fields)
        ids += [meta["session_id"] for meta in page["sessions"]]
        cursor = page.get("next_cursor")
        if cursor is None:
            return ids


class TestList:
    """Pages in an order, without gaps or repetition, that hold under changes between them."""

    @pytest.fixture
    def ids(self, world: World) -> list[str]:
        return [
            world.call("ensure", session_id=f"s{number}", metadata={"n": number % 3})["session_id"]
            for number in range(7)
        ]

    def test_orders(self, world: World, ids: list[str]) -> None:
        by_creation = sorted(ids, key=lambda name: (world.call("get", session_id=name)["meta"]["created_at"], name))
        assert pages(world, order="created_asc", limit=2) == by_creation
        assert pages(world, order="created_desc", limit=2) == by_creation[::-1]
        world.append("s2")
        assert pages(world, limit=3)[0] in ("s2", ids[-1])
        assert sorted(pages(world, limit=3)) == ids

    def test_same_time_is_ordered_by_id(self, world: World) -> None:
        meta = world.call("create")["meta"]
        for name in ("b", "a", "c"):
            world.call("store::put-meta", meta={**meta, "session_id": name, "created_at": 5, "updated_at": 5})
        world.call("delete", session_id=meta["session_id"])
        assert pages(world, order="created_asc", limit=1) == ["a", "b", "c"]
        assert pages(world, order="updated_desc", limit=1) == ["c", "b", "a"]

    def test_cursor_outlives_its_session(self, world: World, ids: list[str]) -> None:
        first = world.call("list", order="created_asc", limit=2)
        rest = pages(world, order="created_asc")[2:]
        world.call("delete", session_id=first["sessions"][-1]["session_id"])
        following = world.call("list", order="created_asc", cursor=first["next_cursor"])
        assert [meta["session_id"] for meta in following["sessions"]] == rest
        assert "next_cursor" not in following

    def test_cursor_is_bound_to_its_order(self, world: World, ids: list[str]) -> None:
        cursor = world.call("list", order="created_asc", limit=2)["next_cursor"]
        assert json.loads(base64.b64decode(cursor)).keys() == {"o", "k", "id"}
        assert world.refused("list", order="created_desc", cursor=cursor) == "invalid_cursor"
        assert world.refused("list", cursor=cursor) == "invalid_cursor"

    def test_bad_cursor(self, world: World) -> None:
        keys = ("1", True, 1.0, 2**70)
        wrong = [json.dumps({"o": "updated_desc", "k": key, "id": "a"}).encode() for key in keys]
        encoded = [base64.b64encode(data).decode() for data in (b"{}", b"\xff", *wrong)]
        for cursor in ("", "x", "not base64!", *encoded):
            assert world.refused("list", cursor=cursor) == "invalid_cursor"

    def test_filters(self, world: World, ids: list[str]) -> None:
        world.call("set-status", session_id="s4", status="working")
        assert pages(world, status="working") == ["s4"]
        assert pages(world, status="error") == []
        assert sorted(pages(world, metadata={"n": 1}, limit=1)) == ["s1", "s4"]
        assert pages(world, metadata={"n": 1}, status="working") == ["s4"]
        assert pages(world, metadata={"n": 1, "m": 1}) == []
        assert sorted(pages(world, metadata={})) == ids

    def test_metadata_is_compared_strictly(self, world: World) -> None:
        values = [1, 1.0, True, "1", None, [1], [True], {"a": 1}, {"a": 1.0}]
        for number, value in enumerate(values):
            world.call("ensure", session_id=f"v{number}", metadata={"v": value, "deep": {"x": [value]}})
        world.call("ensure", session_id="none")
        for number, value in enumerate(values):
            assert pages(world, metadata={"v": value}) == [f"v{number}"]
            assert pages(world, metadata={"deep": {"x": [value]}}) == [f"v{number}"]

    def test_limits(self, new_world: Any, tmp_path: Any) -> None:
        config = {"default_list_limit": 2, "max_list_limit": 3, "adapter": {"name": "fs", "config": {"fsync": "off"}}}
        world = new_world(config=config)
        for _ in range(5):
            world.session()
        sizes = [len(world.call("list", limit=limit)["sessions"]) for limit in (None, 0, 1, 3, 100)]
        assert sizes == [2, 1, 1, 3, 3]

    def test_wrong_types(self, world: World) -> None:
        for request_ in [
            {"limit": -1},
            {"limit": True},
            {"limit": 10.0},
            {"limit": "1"},
            {"order": "x"},
            {"status": "x"},
            {"metadata": []},
        ]:
            assert world.refused("list", request_) == "invalid_request"

    def test_many_with_a_common_and_a_rare_pair(self, world: World) -> None:
        for number in range(1200):
            world.call("ensure", session_id=f"{number:05d}", metadata={"app": "web", "owner": number // 400})
        found = pages(world, metadata={"app": "web", "owner": 1}, order="created_asc", limit=150)
        assert found == [f"{number:05d}" for number in range(400, 800)]
        assert len(pages(world, metadata={"app": "web"}, limit=500)) == 1200


class TestManyKeys:
    """Metadata of any number of keys can be asked for."""

    def test_list(self, world: World) -> None:
        many = {f"key-{number}": number for number in range(3000)}
        matching = world.session(metadata={**many, "more": True})
        world.session(metadata={**many, "key-2999": "other"})
        world.session(metadata=many)
        assert [meta["session_id"] for meta in world.call("list", metadata={**many, "more": True})["sessions"]] == [
            matching
        ]
        assert len(world.call("list", metadata=many, status="idle")["sessions"]) == 2
        assert world.call("list", metadata=many, status="done")["sessions"] == []
