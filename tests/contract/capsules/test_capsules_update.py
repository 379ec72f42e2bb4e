"""moss.update, moss.delete and moss.restore, with the guard against lost changes."""

from __future__ import annotations

import time
from typing import Any

from tests.capsule_world import GOOD, World, capsule_text


class TestUpdate:
    def test_changes_what_is_given(self, world: World) -> None:
        """Other fields stay; the answer has id and link."""
        capsule_id = world.store("a", tags=["x"], source="codex")
        answer = world.ok("update", name="a", title="New", run_id="r1")

        link = {"moss_capsule": "a", "moss_workspace": "default"}
        assert answer == {"id": capsule_id, "task_link": link, "fetch_key": link}
        item = world.ok("fetch", name="a")
        assert (item["title"], item["run_id"], item["tags"], item["source"]) == ("New", "r1", ["x"], "codex")
        assert item["capsule_text"] == GOOD

    def test_a_new_text_is_measured(self, world: World) -> None:
        world.store("a")
        text = capsule_text("something rather different")
        world.ok("update", name="a", capsule_text=text)

        item = world.ok("fetch", name="a")
        assert item["capsule_text"] == text
        assert item["capsule_chars"] == len(text)
        assert item["tokens_estimate"] == -(-len(text.split()) * 13 // 10)

    def test_empty_clears(self, world: World) -> None:
        """Empty values clear labels; a title falls back to the name."""
        world.store("a", title="T", tags=["x"], source="codex", phase="design")
        world.ok("update", name="a", title="", tags=[], source="", phase=" ")

        item = world.ok("fetch", name="a")
        assert item["title"] == "a"
        assert not {"tags", "source", "phase"} & set(item)

    def test_name_and_workspace_cannot_change(self, world: World) -> None:
        """Name and workspace are the address, not fields of an update."""
        world.store("a")

        assert world.refused("update", name="a", new_name="b")["details"]["field"] == "new_name"

    def test_a_change_of_labels_is_not_linted(self, world: World) -> None:
        world.ok("store", capsule_text="thin", name="a", allow_thin=True)
        world.ok("update", name="a", title="Still thin")

    def test_deleted_capsules_are_not_there(self, world: World) -> None:
        world.store("a")
        world.ok("delete", name="a")

        assert world.refused("update", name="a", title="x")["code"] == "NOT_FOUND"

    CASES: tuple[tuple[dict[str, Any], str], ...] = (
        ({"id": "x", "name": "a"}, "AMBIGUOUS_ADDRESSING"),
        ({"name": "missing"}, "INVALID_REQUEST"),
        ({"name": "missing", "capsule_text": "x" * 12_001}, "NOT_FOUND"),
        ({"name": "a", "capsule_text": "x" * 12_001}, "CAPSULE_TOO_LARGE"),
        ({"name": "a", "capsule_text": "x"}, "CAPSULE_TOO_THIN"),
        ({"name": "missing", "capsule_text": " "}, "NOT_FOUND"),
        ({"name": "a", "capsule_text": " "}, "CAPSULE_TOO_THIN"),
        ({"name": "a", "capsule_text": " ", "allow_thin": True}, "CAPSULE_TOO_THIN"),
        ({"name": "a", "allow_thin": True}, "INVALID_REQUEST"),
        ({"name": "nope", "if_updated_at": 1, "if_version": 1}, "INVALID_REQUEST"),
    )

    def test_order_of_checks(self, world: World) -> None:
        """Address, no fields, 404, 413, 422."""
        world.store("a")
        for arguments, code in self.CASES:
            assert world.refused("update", **arguments)["code"] == code, arguments
        assert world.ok("fetch", name="a")["capsule_text"] == GOOD


class TestDelete:
    def test_is_soft(self, world: World) -> None:
        capsule_id = world.store("a")

        assert world.ok("delete", name="a") == {"deleted": True, "id": capsule_id}
        assert world.refused("delete", name="a")["code"] == "NOT_FOUND"
        item = world.ok("fetch", id=capsule_id, include_deleted=True)
        assert item["capsule_text"] == GOOD
        assert item["deleted_at"] >= item["created_at"]


class TestRestore:
    def test_brings_back(self, world: World) -> None:
        capsule_id = world.store("a", tags=["x"])
        before = world.ok("fetch", name="a")
        world.ok("delete", name="a")
        answer = world.ok("restore", name="A")

        link = {"moss_capsule": "a", "moss_workspace": "default"}
        assert answer == {"restored": True, "id": capsule_id, "task_link": link, "fetch_key": link}
        assert world.ok("fetch", name="a") == before
        assert world.names(tag="x") == ["a"]

    def test_the_last_that_was_deleted(self, world: World) -> None:
        for about in ("first", "second"):
            world.store("a", capsule_text(about))
            world.ok("delete", name="a")
        world.ok("restore", name="a")

        assert "second" in world.ok("fetch", name="a")["capsule_text"]

    def test_not_over_a_live_capsule(self, world: World) -> None:
        world.store("a")
        world.ok("delete", name="a")
        world.store("a")

        assert world.refused("restore", name="a")["code"] == "NAME_ALREADY_EXISTS"

    def test_what_is_not_deleted_is_not_found(self, world: World) -> None:
        capsule_id = world.store("a")

        assert world.refused("restore", name="a")["code"] == "NOT_FOUND"
        assert world.refused("restore", id=capsule_id)["code"] == "NOT_FOUND"


class TestCompareAndSet:
    """A change with `if_updated_at` or `if_version` is refused when the capsule has changed since it was read."""

    CHANGES: tuple[tuple[str, dict[str, Any]], ...] = (
        ("update", {"title": "x"}),
        ("append", {"section": "Decisions", "content": "- x"}),
        ("delete", {}),
    )

    def test_a_stale_write_is_refused(self, world: World) -> None:
        """A stale write within the same second is refused, too."""
        world.store("a")
        read = world.ok("fetch", name="a")["updated_at"]
        world.ok("update", name="a", title="someone else", if_updated_at=read)
        current = world.ok("fetch", name="a")
        for verb, arguments in self.CHANGES:
            error = world.refused(verb, name="a", if_updated_at=read, **arguments)

            assert (error["code"], error["status"]) == ("CONFLICT", 409), verb
            assert error["details"] == {"updated_at": current["updated_at"], "version": 2}
        assert world.ok("fetch", name="a") == current
        world.ok("delete", name="a", if_updated_at=current["updated_at"])

    def test_every_change_counts(self, world: World) -> None:
        """Each tool's change makes a new version, and a write with an older one is refused."""
        world.store("a")
        read = [world.ok("fetch", name="a")]
        for verb, arguments in (
            ("update", {"title": "x"}),
            ("append", {"section": "Risks", "content": "- x"}),
            ("store", {"capsule_text": GOOD, "mode": "replace"}),
        ):
            world.ok(verb, name="a", **arguments)
            read.append(world.ok("fetch", name="a"))

        assert [item["version"] for item in read] == [1, 2, 3, 4]
        for stale in read[:-1]:
            refused = world.refused("update", name="a", title="y", if_version=stale["version"])
            assert refused["code"] == "CONFLICT"
        world.ok("update", name="a", title="y", if_version=read[-1]["version"])

    def test_a_fresh_reader_is_never_refused(self, world: World) -> None:
        """Guarded changes in a row succeed, each with the `updated_at` that was read just before."""
        world.store("a")
        for verb, arguments in self.CHANGES:
            read = world.ok("fetch", name="a")["updated_at"]
            assert read <= time.time()
            world.ok(verb, name="a", if_updated_at=read, **arguments)

    def test_by_version(self, world: World) -> None:
        world.store("a")
        world.ok("update", name="a", title="x", if_version=1)

        assert world.refused("update", name="a", title="y", if_version=1)["code"] == "CONFLICT"
        world.ok("update", name="a", title="y", if_version=2)

    def test_after_the_address_before_the_text(self, world: World) -> None:
        world.store("a")

        assert world.refused("update", name="b", title="x", if_updated_at=1)["code"] == "NOT_FOUND"
        assert world.refused("update", name="a", capsule_text="thin", if_updated_at=1)["code"] == "CONFLICT"

    def test_after_a_storm_of_changes(self, world: World) -> None:
        """After many changes in one second the last `updated_at` is accepted, an earlier one is refused."""
        world.store("a")
        for number in range(80):
            world.ok("update", name="a", title=str(number))
        current = world.ok("fetch", name="a")

        assert (
            world.refused("update", name="a", title="x", if_updated_at=current["updated_at"] - 1)["code"] == "CONFLICT"
        )
        world.ok("update", name="a", title="x", if_updated_at=current["updated_at"])
        assert world.refused("update", name="a", title="y", if_updated_at=current["updated_at"])["code"] == "CONFLICT"
