"""Messages: append, append-many, update-message, messages, get-message."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest

from tests.live_world import World, assistant, custom, result, text, user


class TestAppend:
    """An entry is chained to the leaf or to a given parent, becomes the leaf, and is published."""

    def test_chain(self, world: World) -> None:
        session_id = world.session()
        first = world.call("append", session_id=session_id, message=user("a"))
        second = world.call("append", session_id=session_id, message=assistant("b"), origin={"turn_id": 1})
        assert re.fullmatch(r"e_[0-9a-f]{32}", first["entry_id"])
        assert first == {"entry_id": first["entry_id"], "parent_id": None, "timestamp": first["timestamp"]}
        assert second["parent_id"] == first["entry_id"]
        meta = world.call("get", session_id=session_id)["meta"]
        assert (meta["message_count"], meta["updated_at"]) == (2, second["timestamp"])
        assert world.events(after=1) == [
            ("message-added", {"session_id": session_id, **first, "message": user("a")}),
            (
                "message-added",
                {"session_id": session_id, **second, "message": assistant("b"), "origin": {"turn_id": 1}},
            ),
        ]

    def test_custom_entry(self, world: World) -> None:
        session_id = world.session()
        made = world.call("append", session_id=session_id, custom={"custom_type": "compaction"})
        assert world.call("get", session_id=session_id)["meta"]["message_count"] == 0
        assert world.events(after=1) == [
            ("message-added", {"session_id": session_id, **made, "custom": {"custom_type": "compaction", "data": None}})
        ]
        assert world.call("get-message", session_id=session_id, entry_id=made["entry_id"])["entry"] == {
            "kind": "custom",
            "id": made["entry_id"],
            "parent_id": None,
            "timestamp": made["timestamp"],
            "revision": 0,
            "custom_type": "compaction",
            "data": None,
        }

    def test_existing_entry_is_a_total_no_op(self, world: World) -> None:
        session_id = world.session()
        first = world.call("append", session_id=session_id, message=user("a"), entry_id="mine")
        world.append(session_id, user("b"))
        size = world.file(session_id).stat().st_size
        again = world.call("append", session_id=session_id, message=user("c"), entry_id="mine", parent_id="nope")
        assert again == first
        assert world.said(session_id) == ["a", "b"]
        assert len(world.events()) == 3
        assert world.file(session_id).stat().st_size == size

    def test_parent_starts_a_branch_and_moves_the_leaf(self, world: World) -> None:
        session_id = world.session()
        root = world.append(session_id, user("root"))
        world.append(session_id, user("left"))
        world.append(session_id, user("right"), parent_id=root)
        assert world.said(session_id) == ["root", "right"]
        world.append(session_id, user("more"))
        assert world.said(session_id) == ["root", "right", "more"]
        assert world.call("get", session_id=session_id)["meta"]["message_count"] == 4

    def test_order_of_checks(self, world: World) -> None:
        session_id = world.session()
        world.append(session_id, entry_id="mine")
        both: dict[str, Any] = {"message": user(), "custom": {"custom_type": "c"}}
        assert world.refused("append", session_id="nope") == "not_found"
        assert world.refused("append", session_id="nope", **both) == "not_found"
        assert world.refused("append", session_id=session_id) == "invalid_request"
        assert world.refused("append", session_id=session_id, entry_id="mine", **both) == "invalid_request"
        assert world.refused("append", session_id=session_id, message=None, custom=None) == "invalid_request"
        assert world.refused("append", session_id=session_id, message=user(), parent_id="nope") == "parent_not_found"
        assert world.refused("append", session_id="nope", message={"role": "bot"}) == "invalid_request"
        assert len(world.events()) == 2

    def test_malformed_messages(self, world: World) -> None:
        session_id = world.session()
        for message in [
            {},
            {"role": "system", "content": [], "timestamp": 1},
            {"role": "user", "content": []},
            {"role": "user", "content": "hi", "timestamp": 1},
            {"role": "user", "content": [], "timestamp": "1"},
            {"role": "user", "content": [], "timestamp": True},
            {"role": "user", "content": [], "timestamp": 10.0},
            {"role": "user", "content": [], "timestamp": 2**63},
            {"role": "user", "content": [{"type": "video"}], "timestamp": 1},
            {"role": "user", "content": [{"type": "text"}], "timestamp": 1},
            {"role": "user", "content": [{"type": "function_result", "function_call_id": "x"}], "timestamp": 1},
            {"role": "assistant", "content": [], "timestamp": 1},
            assistant(stop_reason="stopped"),
            assistant(error_kind="odd"),
            assistant(usage={"input": -1}),
            assistant(usage={"input": 1.5}),
            assistant(warnings="w"),
            result(is_error="no"),
            custom(display=1),
        ]:
            assert world.refused("append", session_id=session_id, message=message) == "invalid_request", message
            assert world.refused("append-many", session_id=session_id, messages=[user(), message]) == "invalid_request"
        assert len(world.events()) == 1

    @pytest.mark.parametrize("details", [{"x": object()}, "\ud800"])
    def test_what_is_no_json(self, world: World, details: Any) -> None:
        session_id = world.session()
        assert world.refused("append", session_id=session_id, message=result(details=details)) == "invalid_request"
        assert world.said(session_id) == []

    def test_nested_without_end(self, world: World) -> None:
        session_id = world.session()
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        assert world.refused("append", session_id=session_id, message=result(details=deep)) == "invalid_request"

    def test_nested_deeply(self, world: World) -> None:
        session_id = world.session()
        deep: list[Any] = []
        for _ in range(200):
            deep = [deep]
        entry_id = world.append(session_id, result(details=deep))
        entry = world.call("get-message", session_id=session_id, entry_id=entry_id)["entry"]
        assert entry["message"]["details"] == deep


class TestShapes:
    """Omitted fields stay omitted, except where the contract writes null; null equals omitted."""

    def stored(self, world: World, message: dict[str, Any]) -> dict[str, Any]:
        session_id = world.session()
        entry_id = world.append(session_id, message)
        (item,) = world.call("messages", session_id=session_id)["messages"]
        entry: dict[str, Any] = world.call("get-message", session_id=session_id, entry_id=entry_id)["entry"]
        assert entry["message"] == item["message"] == world.events()[-1][1]["message"]
        message_: dict[str, Any] = item["message"]
        return message_

    def test_nothing_is_lost(self, world: World) -> None:
        blocks = [
            {"type": "text", "text": "a\u2028b \U0001f600"},
            {"type": "image", "mime": "image/png", "data": "AAAA"},
            {"type": "thinking", "text": "hm", "signature": "s"},
            {"type": "function_call", "id": "c", "function_id": "f", "arguments": {"x": [1, 1.0, None]}},
            {"type": "function_result", "function_call_id": "c", "content": text("r"), "is_error": False},
        ]
        usage: dict[str, Any] = {
            "input": 1,
            "output": 2,
            "cache_read": 3,
            "cache_write": 4,
            "reasoning": 5,
            "cost_usd": 0.5,
        }
        more: dict[str, Any] = {
            "native_stop_reason": "x",
            "error_message": "m",
            "error_kind": "transient",
            "warnings": ["w"],
        }
        message = {**assistant(usage=usage, **more), "content": blocks}
        assert self.stored(world, message) == message

    def test_nulls_are_dropped(self, world: World) -> None:
        nulls: dict[str, Any] = {
            "native_stop_reason": None,
            "error_message": None,
            "error_kind": None,
            "warnings": None,
            "usage": None,
        }
        assert self.stored(world, assistant(**nulls)) == assistant()
        assert self.stored(world, custom(display=None, details=None)) == custom()
        block = {"type": "thinking", "text": "t", "signature": None}
        assert self.stored(world, {**user(), "content": [block]})["content"] == [{"type": "thinking", "text": "t"}]

    def test_nulls_that_are_written(self, world: World) -> None:
        assert self.stored(world, result()) == result(details=None, is_error=False)
        assert self.stored(world, result(is_error=None)) == result(details=None, is_error=False)
        call = {"type": "function_call", "id": "c", "function_id": "f"}
        assert self.stored(world, {**user(), "content": [call]})["content"] == [{**call, "arguments": None}]


class TestAppendMany:
    """A batch is chained in order, has one time, and gives one event per message."""

    def test_batch(self, world: World) -> None:
        session_id = world.session()
        root = world.append(session_id, user("root"))
        made = world.call("append-many", session_id=session_id, messages=[user("a"), assistant("b")], origin={"t": 1})
        assert made["last_entry_id"] == made["entry_ids"][-1]
        assert world.said(session_id) == ["root", "a", "b"]
        told = [payload for _, payload in world.events(after=2)]
        assert [payload["entry_id"] for payload in told] == made["entry_ids"]
        assert [payload["parent_id"] for payload in told] == [root, made["entry_ids"][0]]
        assert len({payload["timestamp"] for payload in told}) == 1
        assert all(payload["origin"] == {"t": 1} for payload in told)
        assert world.call("get", session_id=session_id)["meta"]["message_count"] == 3

    def test_is_one_write(self, world: World) -> None:
        session_id = world.session()
        world.call("append-many", session_id=session_id, messages=[user("a")] * 3)
        first = world.file(session_id).read_text().splitlines()[1]
        assert '"records":5' in first

    def test_order_of_checks(self, world: World) -> None:
        session_id = world.session()
        assert world.refused("append-many", session_id="nope", messages=[]) == "not_found"
        assert world.refused("append-many", session_id=session_id, messages=[], parent_id="nope") == "empty_batch"
        refused = world.refused("append-many", session_id=session_id, messages=[user()], parent_id="nope")
        assert refused == "parent_not_found"
        assert world.refused("append-many", session_id=session_id) == "invalid_request"


class TestUpdateMessage:
    """The content is replaced as a whole and the revision counts up; the rest of the entry stays as it was."""

    def test_replaces(self, world: World) -> None:
        session_id = world.session()
        made = world.call("append", session_id=session_id, message=assistant(""), origin={"by": "append"})
        ids = {"session_id": session_id, "entry_id": made["entry_id"]}
        assert world.call("update-message", **ids, content=text("a")) == {"updated": True, "revision": 1}
        assert world.call("update-message", **ids, content=text("ab"), origin={"by": "update"}) == {
            "updated": True,
            "revision": 2,
        }
        entry = world.call("get-message", **ids)["entry"]
        assert (entry["revision"], entry["timestamp"], entry["origin"]) == (2, made["timestamp"], {"by": "append"})
        assert entry["message"] == assistant("ab")
        meta = world.call("get", session_id=session_id)["meta"]
        assert meta["message_count"] == 1
        last = world.events()[-2:]
        assert "origin" not in last[0][1]
        assert last[1] == (
            "message-updated",
            {
                **ids,
                "message": assistant("ab"),
                "revision": 2,
                "origin": {"by": "update"},
                "timestamp": meta["updated_at"],
            },
        )

    def test_expected_revision(self, world: World) -> None:
        session_id = world.session()
        ids = {"session_id": session_id, "entry_id": world.append(session_id)}
        world.call("update-message", **ids, content=text("a"), expected_revision=0)
        stale = world.call("update-message", **ids, content=text("b"), expected_revision=0, details={"x": 1})
        assert stale == {"updated": False, "revision": 1}
        assert world.said(session_id) == ["a"]
        assert len(world.events()) == 3

    def test_details(self, world: World) -> None:
        session_id = world.session()
        for message in (result(details={"old": 1}), custom()):
            ids = {"session_id": session_id, "entry_id": world.append(session_id, message)}
            world.call("update-message", **ids, content=[], details={"new": 1})
            assert world.call("get-message", **ids)["entry"]["message"]["details"] == {"new": 1}
            world.call("update-message", **ids, content=[], details=None)
            assert world.call("get-message", **ids)["entry"]["message"]["details"] == {"new": 1}

    def test_order_of_checks(self, world: World) -> None:
        session_id = world.session()
        note = world.call("append", session_id=session_id, custom={"custom_type": "c"})["entry_id"]
        entry_id = world.append(session_id)

        def refused(session: str, entry: str, **fields: Any) -> str:
            return world.refused("update-message", session_id=session, entry_id=entry, content=[], **fields)

        assert refused("nope", "nope") == "not_found"
        assert refused(session_id, "nope", details=1) == "entry_not_found"
        assert refused(session_id, note, expected_revision=7) == "invalid_entry_kind"
        assert refused(session_id, entry_id, details={"x": 1}) == "details_not_supported"
        assert refused(session_id, entry_id, expected_revision=-1) == "invalid_request"
        assert refused(session_id, entry_id, expected_revision=True) == "invalid_request"

    def test_an_entry_that_is_not_the_last(self, world: World) -> None:
        session_id = world.session()
        first = world.append(session_id, user("a"))
        world.append(session_id, user("b"))
        for revision in (1, 2):
            answer = world.call("update-message", session_id=session_id, entry_id=first, content=text(f"a{revision}"))
            assert answer == {"updated": True, "revision": revision}
        assert world.said(session_id) == ["a2", "b"]


class TestMessages:
    """The active path, oldest first, in pages."""

    @pytest.fixture
    def session_id(self, world: World) -> str:
        session_id = world.session()
        world.append(session_id, user("u1"))
        world.call("append", session_id=session_id, custom={"custom_type": "mark", "data": [1]})
        world.append(session_id, assistant("a1"))
        world.append(session_id, result("r1"))
        world.append(session_id, custom("c1"))
        world.append(session_id, user("u2"))
        return session_id

    def test_no_leaf(self, world: World) -> None:
        assert world.call("messages", session_id=world.session()) == {"messages": []}

    def test_custom_entries_only_on_request(self, world: World, session_id: str) -> None:
        assert world.said(session_id) == ["u1", "a1", "r1", "c1", "u2"]
        assert world.said(session_id, include_custom=True) == ["u1", "<mark>", "a1", "r1", "c1", "u2"]
        items = world.call("messages", session_id=session_id, include_custom=True)["messages"]
        assert items[1]["custom"] == {"custom_type": "mark", "data": [1]}
        assert all(("message" in item) != ("custom" in item) for item in items)

    def test_roles(self, world: World, session_id: str) -> None:
        assert world.said(session_id, roles=["user"]) == ["u1", "u2"]
        assert world.said(session_id, roles=["custom", "function_result"], include_custom=True) == ["r1", "c1"]
        assert world.said(session_id, roles=[], include_custom=True) == []
        assert world.refused("messages", session_id=session_id, roles=["system"]) == "invalid_request"

    def test_pages(self, world: World, session_id: str) -> None:
        for limit in [1, 2, 3, 5, 6]:
            for fields in [{}, {"include_custom": True}, {"roles": ["user", "assistant"]}]:
                whole = world.call("messages", session_id=session_id, **fields)["messages"]
                found: list[Any] = []
                page: dict[str, Any] = {"next_cursor": None}
                while "next_cursor" in page:
                    page = world.call(
                        "messages", session_id=session_id, limit=limit, cursor=page["next_cursor"], **fields
                    )
                    assert len(page["messages"]) <= limit
                    found += page["messages"]
                assert found == whole

    def test_cursor_must_be_on_the_filtered_path(self, world: World, session_id: str) -> None:
        cursor = world.call("messages", session_id=session_id, limit=2)["next_cursor"]
        assert world.refused("messages", session_id=session_id, cursor=cursor, roles=["user"]) == "invalid_cursor"
        root = world.call("messages", session_id=session_id, limit=1)["messages"][0]["entry_id"]
        world.append(session_id, parent_id=root)
        assert world.refused("messages", session_id=session_id, cursor=cursor) == "invalid_cursor"
        for bad in ("", "zzz", base64.b64encode(b'{"e": 1}').decode(), base64.b64encode(b'{"e": "nope"}').decode()):
            assert world.refused("messages", session_id=session_id, cursor=bad) == "invalid_cursor"

    def test_a_cursor_without_a_leaf_is_an_empty_page(self, world: World, session_id: str) -> None:
        cursor = world.call("messages", session_id=session_id, limit=2)["next_cursor"]
        assert world.call("messages", session_id=world.session(), cursor=cursor) == {"messages": []}
        world.call("store::delete-active-leaf", session_id=session_id)
        assert world.call("messages", session_id=session_id, cursor=cursor) == {"messages": []}

    def test_pages_go_on_while_the_session_grows(self, world: World, session_id: str) -> None:
        page = world.call("messages", session_id=session_id, limit=4)
        world.append(session_id, user("u3"))
        rest = world.call("messages", session_id=session_id, cursor=page["next_cursor"])
        assert [item["message"]["content"][0]["text"] for item in rest["messages"]] == ["u2", "u3"]

    def test_another_leaf(self, world: World) -> None:
        session_id = world.session()
        first = world.append(session_id, user("a"))
        second = world.append(session_id, user("b"))
        world.append(session_id, user("c"), parent_id=first)
        assert world.said(session_id, from_entry_id=second) == ["a", "b"]
        assert world.said(session_id) == ["a", "c"]
        assert world.refused("messages", session_id=session_id, from_entry_id="nope") == "entry_not_found"

    def test_unknown(self, world: World) -> None:
        assert world.refused("messages", session_id="nope", from_entry_id="x", cursor="x") == "not_found"


class TestGetMessage:
    """One entry, or null when the session or the entry is unknown."""

    def test_unknown(self, world: World) -> None:
        assert world.call("get-message", session_id="nope", entry_id="x") is None
        assert world.call("get-message", session_id=world.session(), entry_id="x") is None

    def test_known(self, world: World) -> None:
        session_id = world.session()
        made = world.call("append", session_id=session_id, message=user("a"), origin={"o": 1})
        assert world.call("get-message", session_id=session_id, entry_id=made["entry_id"]) == {
            "entry": {
                "kind": "message",
                "id": made["entry_id"],
                "parent_id": None,
                "timestamp": made["timestamp"],
                "revision": 0,
                "origin": {"o": 1},
                "message": user("a"),
            }
        }


class TestLargeNumbers:
    """Unsigned numbers have 64 bits, everywhere they occur; one more is refused."""

    def test_in_a_message(self, world: World) -> None:
        usage = {"input": 2**64 - 1, "output": 2**63, "cache_read": 2**63 + 1}
        session_id = world.session()
        entry_id = world.append(session_id, assistant("x", usage=usage))
        world.reopen()
        stored = world.call("get-message", session_id=session_id, entry_id=entry_id)["entry"]
        assert stored["message"]["usage"] == usage
        message = assistant("x", usage={"input": 2**64})
        assert world.refused("append", session_id=session_id, message=message) == "invalid_request"

    def test_in_values_of_any_kind(self, world: World) -> None:
        """`data` and `details` are any JSON value, of any size."""
        session_id = world.session()
        note = world.call("append", session_id=session_id, custom={"custom_type": "count", "data": 2**64})["entry_id"]
        answer = world.append(session_id, result(details=2**64))
        change = {"session_id": session_id, "entry_id": answer, "content": text("b"), "details": 2**65}
        assert world.call("update-message", **change)["updated"]
        world.reopen()
        assert world.call("get-message", session_id=session_id, entry_id=note)["entry"]["data"] == 2**64
        assert world.call("get-message", session_id=session_id, entry_id=answer)["entry"]["message"]["details"] == 2**65

    def test_as_a_limit(self, world: World) -> None:
        session_id = world.session()
        world.append(session_id, user("a"))
        assert len(world.call("messages", session_id=session_id, limit=2**64 - 1)["messages"]) == 1
        assert len(world.call("list", limit=2**64 - 1)["sessions"]) == 1
        assert world.refused("list", limit=2**64) == "invalid_request"
        assert world.refused("messages", session_id=session_id, limit=2**64) == "invalid_request"

    def test_as_a_revision(self, world: World) -> None:
        session_id = world.session()
        entry = {"kind": "message", "id": "e", "timestamp": 1, "revision": 2**64 - 2, "message": user("a")}
        world.call("store::put-entry", session_id=session_id, entry=entry)
        change = {"session_id": session_id, "entry_id": "e", "content": text("b")}
        assert world.call("update-message", **change, expected_revision=2**63) == {
            "updated": False,
            "revision": 2**64 - 2,
        }
        assert world.call("update-message", **change, expected_revision=2**64 - 2)["revision"] == 2**64 - 1
        world.reopen()
        assert world.call("get-message", session_id=session_id, entry_id="e")["entry"]["revision"] == 2**64 - 1
        assert world.refused("update-message", **change) == "storage"
        assert world.refused("update-message", **change, expected_revision=2**64) == "invalid_request"
        entry["revision"] = 2**64
        assert world.refused("store::put-entry", session_id=session_id, entry=entry) == "invalid_request"
