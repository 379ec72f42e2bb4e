"""Branches: fork and set-active-leaf."""

from __future__ import annotations

from typing import Any

import pytest

from tests.live_world import World, assistant, text, user


class TestFork:
    """A fork is a session of its own with copies of the path to an entry."""

    @pytest.fixture
    def source(self, world: World) -> str:
        session_id = world.session(title="T", description="D", metadata={"owner": "u_1"})
        world.append(session_id, user("a"), origin={"o": 1})
        world.call("append", session_id=session_id, custom={"custom_type": "mark", "data": {"x": 1}})
        answer = world.append(session_id, assistant("b"))
        world.call("update-message", session_id=session_id, entry_id=answer, content=text("bb"))
        world.append(session_id, user("c"))
        world.call("set-status", session_id=session_id, status="working")
        return session_id

    def entries(self, world: World, session_id: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = world.call("store::list-entries", session_id=session_id)["entries"]
        return entries

    def test_copies_the_path(self, world: World, source: str) -> None:
        entries = self.entries(world, source)
        head = world.live.last_seq
        fork = world.call("fork", session_id=source, entry_id=entries[2]["id"])
        copies = self.entries(world, fork["session_id"])
        assert world.said(fork["session_id"], include_custom=True) == ["a", "<mark>", "bb"]
        assert not {entry["id"] for entry in entries} & {entry["id"] for entry in copies}
        assert [entry["parent_id"] for entry in copies] == [None, copies[0]["id"], copies[1]["id"]]
        assert [entry["revision"] for entry in copies] == [0, 0, 0]
        assert [entry["timestamp"] for entry in copies] == [entry["timestamp"] for entry in entries[:3]]
        meta = fork["meta"]
        assert meta == {
            "session_id": fork["session_id"],
            "title": "T",
            "description": "D",
            "status": "idle",
            "metadata": {"owner": "u_1"},
            "forked_from": source,
            "created_at": meta["created_at"],
            "updated_at": meta["created_at"],
            "message_count": 2,
        }
        assert world.events(after=head) == [
            (
                "created",
                {
                    "session_id": fork["session_id"],
                    "title": "T",
                    "description": "D",
                    "status": "idle",
                    "forked_from": source,
                    "created_at": meta["created_at"],
                },
            )
        ]

    def test_title(self, world: World, source: str) -> None:
        entry_id = self.entries(world, source)[0]["id"]
        titles = [
            world.call("fork", session_id=source, entry_id=entry_id, title=title)["meta"]["title"]
            for title in ("new", "", None)
        ]
        assert titles == ["new", "", "T"]

    def test_is_independent(self, world: World, source: str) -> None:
        entries = self.entries(world, source)
        fork = world.call("fork", session_id=source, entry_id=entries[-1]["id"])["session_id"]
        world.append(fork, user("only here"))
        copy = self.entries(world, fork)[0]["id"]
        world.call("update-message", session_id=fork, entry_id=copy, content=text("changed"))
        assert world.said(source) == ["a", "bb", "c"]
        assert world.said(fork) == ["changed", "bb", "c", "only here"]
        world.reopen()
        assert world.said(fork) == ["changed", "bb", "c", "only here"]

    def test_refusals(self, world: World, source: str) -> None:
        assert world.refused("fork", session_id="nope", entry_id="nope") == "not_found"
        assert world.refused("fork", session_id=source, entry_id="nope") == "entry_not_found"
        assert world.refused("fork", session_id=source) == "invalid_request"


class TestSetActiveLeaf:
    """The active path ends at another entry; there is no event, and no time changes."""

    def test_switch(self, world: World) -> None:
        session_id = world.session()
        first = world.append(session_id, user("a"))
        world.append(session_id, user("b"))
        before = world.call("get", session_id=session_id)
        head = world.live.last_seq
        answer = world.call("set-active-leaf", session_id=session_id, entry_id=first)
        assert answer == {"active_leaf": first}
        assert world.said(session_id) == ["a"]
        assert world.call("get", session_id=session_id) == before
        assert world.events(after=head) == []
        world.append(session_id, user("c"))
        assert world.said(session_id) == ["a", "c"]

    def test_survives_a_restart(self, world: World) -> None:
        session_id = world.session()
        first = world.append(session_id, user("a"))
        world.append(session_id, user("b"))
        world.call("set-active-leaf", session_id=session_id, entry_id=first)
        world.reopen()
        assert world.said(session_id) == ["a"]

    def test_refusals(self, world: World) -> None:
        session_id = world.session()
        assert world.refused("set-active-leaf", session_id="nope", entry_id="x") == "not_found"
        assert world.refused("set-active-leaf", session_id=session_id, entry_id="x") == "entry_not_found"


class TestManyBranches:
    """Paths are right for any branches, and after any rebuild of the index."""

    def test_any_tree(self, world: World) -> None:
        session_id = world.session()
        parents: dict[str, str | None] = {}
        ids: list[str] = []
        for number in range(120):
            parent = ids[(number * 7919) % len(ids)] if number % 3 == 0 and ids else None
            made = world.call(
                "append", session_id=session_id, message=user(f"{number}"), entry_id=f"n{number}", parent_id=parent
            )
            ids.append(made["entry_id"])
            parents[made["entry_id"]] = made["parent_id"]

        def path(entry_id: str | None) -> list[str]:
            return [*path(parents[entry_id]), entry_id.removeprefix("n")] if entry_id is not None else []

        for _ in range(2):
            for entry_id in ids:
                assert world.said(session_id, from_entry_id=entry_id) == path(entry_id)
            world.close()
            for name in world.folder.joinpath(".store").glob("index.db*"):
                name.unlink()
            world.live = world._start()
