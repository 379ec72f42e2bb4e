"""moss.latest, moss.list and moss.inventory: summaries in exact order, without text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.capsule_world import GOOD, World

SUMMARY = {
    "id",
    "workspace",
    "workspace_norm",
    "name",
    "name_norm",
    "title",
    "capsule_chars",
    "tokens_estimate",
    "created_at",
    "updated_at",
}


class TestLatest:
    def test_is_a_summary(self, world: World) -> None:
        """It has a link, and the text only on request."""
        world.store("a")
        item = world.ok("latest")["item"]

        assert set(item) == SUMMARY | {"task_link", "fetch_key", "version"}
        assert world.ok("latest", include_text=True)["item"]["capsule_text"] == GOOD

    def test_of_nothing_is_null(self, world: World) -> None:
        world.store("a", workspace="other")

        assert world.ok("latest") == {"item": None}

    def test_is_the_last_change(self, world: World) -> None:
        """The order of changes is exact within one second, too."""
        names = [f"n{number}" for number in range(12)]
        for name in names:
            world.store(name)
            assert world.ok("latest")["item"]["name"] == name
        for name in (names[3], names[0], names[11], names[0], names[0], names[5]):
            world.ok("update", name=name, title="x")
            assert world.ok("latest")["item"]["name"] == name
        world.store("new")
        assert world.ok("latest")["item"]["name"] == "new"

    def test_deleted_capsules_on_request(self, world: World) -> None:
        world.store("a")
        world.store("b")
        world.ok("delete", name="b")

        assert world.ok("latest")["item"]["name"] == "a"
        assert world.ok("latest", include_deleted=True)["item"]["name"] == "b"

    def test_of_a_run(self, world: World) -> None:
        world.store("a", run_id="r1", phase="design", role="architect")
        world.store("b", run_id="r1", phase="review")
        world.store("c", run_id="r2", phase="design")

        assert world.ok("latest", run_id="r1")["item"]["name"] == "b"
        assert world.ok("latest", run_id="r1", phase="design")["item"]["name"] == "a"
        assert world.ok("latest", role="architect")["item"]["name"] == "a"
        assert world.ok("latest", run_id="r3") == {"item": None}


class TestPages:
    """The same for `list` and `inventory`."""

    @pytest.mark.parametrize("verb", ["list", "inventory"])
    def test_shape(self, world: World, verb: str) -> None:
        """Summaries only, newest first; ties by id, descending."""
        for name in "abc":
            world.store(name)
        world.ok("update", name="a", source="x")
        page = world.ok(verb, limit=2)

        assert set(page) == {"items", "pagination", "sort"}
        assert page["sort"] == "updated_at_desc"
        assert page["pagination"] == {"limit": 2, "offset": 0, "has_more": True, "total": 3}
        assert [item["name"] for item in page["items"]] == ["a", "c"]
        assert set(page["items"][1]) == SUMMARY
        rest = world.ok(verb, limit=2, offset=2)
        assert [item["name"] for item in rest["items"]] == ["b"]
        assert rest["pagination"]["has_more"] is False

    @pytest.mark.parametrize(("verb", "default", "most"), [("list", 20, 100), ("inventory", 100, 500)])
    def test_limits_are_clamped(self, world: World, verb: str, default: int, most: int) -> None:
        """A limit below 1 is the default, a negative offset is 0, and no number is too large."""
        for given, used in ((None, default), (0, default), (-5, default), (1, 1), (most, most), (10**30, most)):
            assert world.ok(verb, limit=given)["pagination"]["limit"] == used
        assert world.ok(verb, offset=-3)["pagination"]["offset"] == 0
        assert world.ok(verb, offset=10**30)["items"] == []

    @pytest.mark.parametrize("verb", ["list", "inventory"])
    def test_displayed_times_never_grow(self, world: World, verb: str) -> None:
        """Several changes within one second keep their order."""
        for name in "abcd":
            world.store(name)
        for name in "aabacdda":
            world.ok("update", name=name, title="x")
        times = [item["updated_at"] for item in world.ok(verb)["items"]]

        assert times == sorted(times, reverse=True)
        assert world.names(verb) == ["a", "d", "c", "b"]

    @pytest.mark.parametrize("verb", ["list", "inventory"])
    def test_deleted_capsules_on_request(self, world: World, verb: str) -> None:
        world.store("a")
        world.ok("delete", name="a")

        assert world.names(verb) == []
        (item,) = world.ok(verb, include_deleted=True)["items"]
        assert item["deleted_at"] > 0


class TestList:
    def test_is_of_one_workspace(self, world: World) -> None:
        """Without a workspace, or with a blank one, it is the default one."""
        world.store("a")
        world.store("b", workspace="Other One")

        assert world.names("list") == ["a"]
        assert world.names("list", workspace="  ") == ["a"]
        assert world.names("list", workspace=" OTHER  one") == ["b"]

    def test_of_a_run(self, world: World) -> None:
        world.store("a", run_id="r1", phase="design")
        world.store("b", run_id="r1", phase="review")

        assert world.names("list", run_id="r1") == ["b", "a"]
        assert world.names("list", run_id="r1", phase="design") == ["a"]
        assert world.names("list", role="nobody") == []


class TestInventory:
    CASES: tuple[tuple[dict[str, Any], list[str]], ...] = (
        ({}, ["e", "Auth_b", "auth-a", "d", "auth"]),
        ({"workspace": "PROJECT  x"}, ["Auth_b", "auth-a"]),
        ({"tag": "red"}, ["Auth_b", "d"]),
        ({"tag": "Red"}, ["auth-a"]),
        ({"tag": "re"}, []),
        ({"name_prefix": "AUTH"}, ["Auth_b", "auth-a", "auth"]),
        ({"name_prefix": "auth_"}, ["Auth_b"]),
        ({"name_prefix": "%"}, []),
        ({"name_prefix": " "}, ["e", "Auth_b", "auth-a", "d", "auth"]),
        ({"workspace": "project x", "tag": "red"}, ["Auth_b"]),
        ({"workspace": "default", "tag": "red", "name_prefix": "d"}, ["d"]),
        ({"workspace": "default", "tag": "red", "name_prefix": "x"}, []),
        ({"workspace": ""}, ["e", "d", "auth"]),
        ({"run_id": "r"}, ["e"]),
        ({"run_id": "r", "tag": "red"}, []),
    )

    def test_all_filters_must_hold(self, world: World) -> None:
        """Workspace and name prefix normalised, tag exact; `%` and `_` are letters like any other."""
        world.store("auth", tags=["blue"])
        world.store("d", tags=["red", "red", "blue"])
        world.store("auth-a", workspace="Project X", tags=["Red"])
        world.store("Auth_b", workspace="Project X", tags=["red"])
        world.store("e", run_id="r")

        for filters, names in self.CASES:
            page = world.ok("inventory", **filters)
            assert [item["name"] for item in page["items"]] == names, filters
            assert page["pagination"]["total"] == len(names)

    def test_name_prefixes_in_any_script(self, world: World) -> None:
        for name in ("éa", "éb", "ê", "\ud7ffx", "\U0010ffff"):
            world.store(name)

        assert world.names(name_prefix="É") == ["éb", "éa"]
        assert world.names(name_prefix="\ud7ff") == ["\ud7ffx"]
        assert world.names(name_prefix="\U0010ffff") == ["\U0010ffff"]
