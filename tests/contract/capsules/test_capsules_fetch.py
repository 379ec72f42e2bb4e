"""moss.fetch and moss.fetch_many: addressing, peeking, partial success."""

from __future__ import annotations

from typing import Any

from tests.capsule_world import GOOD, World


class TestAddressing:
    """Exactly one way: an id, or a name with its workspace. The same for every tool that takes an address."""

    TOOLS = ("fetch", "update", "delete", "restore", "append", "history")

    def arguments(self, verb: str) -> dict[str, Any]:
        more: dict[str, dict[str, Any]] = {
            "update": {"title": "x"},
            "append": {"section": "Decisions", "content": "- x"},
        }
        return more.get(verb, {})

    def test_id_with_anything_else_is_ambiguous(self, world: World) -> None:
        for verb in self.TOOLS:
            for more in ({"name": "a"}, {"workspace": "w"}, {"name": "a", "workspace": "w"}):
                error = world.refused(verb, id="01ARZ3NDEKTSV4RRFFQ69G5FAV", **more, **self.arguments(verb))

                assert (error["code"], error["status"]) == ("AMBIGUOUS_ADDRESSING", 400), (verb, more)

    def test_neither_is_invalid(self, world: World) -> None:
        given: dict[str, str]
        for verb in self.TOOLS:
            for given in ({}, {"workspace": "w"}, {"id": ""}, {"name": "  "}):
                error = world.refused(verb, **given, **self.arguments(verb))

                assert error["code"] == "INVALID_REQUEST", (verb, given)

    def test_unknown_is_404(self, world: World) -> None:
        """The details have the identifier as it was given."""
        world.store("a", workspace="other")
        for verb in self.TOOLS:
            by_name = world.refused(verb, name="A", **self.arguments(verb))
            by_id = world.refused(verb, id="nope", **self.arguments(verb))

            assert (by_name["code"], by_name["status"]) == ("NOT_FOUND", 404), verb
            assert by_name["details"] == {"identifier": "default/A"}
            assert by_id["details"] == {"identifier": "nope"}

    def test_blank_fields_were_not_given(self, world: World) -> None:
        """Clients that fill in every field address a capsule unambiguously."""
        capsule_id = world.store("a")

        assert world.ok("fetch", id=capsule_id, name="", workspace="")["name"] == "a"
        assert world.ok("fetch", id="", name="a", workspace=" ")["id"] == capsule_id

    def test_names_are_compared_normalised(self, world: World) -> None:
        capsule_id = world.store("My  Task", workspace="My Project")

        assert world.ok("fetch", name=" my task ", workspace="MY  PROJECT")["id"] == capsule_id


class TestFetch:
    def test_is_flat(self, world: World) -> None:
        """Summary, text and link in one object."""
        capsule_id = world.store("a")
        item = world.ok("fetch", id=capsule_id)

        assert item["capsule_text"] == GOOD
        assert item["task_link"] == item["fetch_key"] == {"moss_capsule": "a", "moss_workspace": "default"}

    def test_peeks(self, world: World) -> None:
        world.store("a")

        assert "capsule_text" not in world.ok("fetch", name="a", include_text=False)

    def test_deleted_capsules_on_request(self, world: World) -> None:
        """Not found by default; of several deleted ones with a name, the last; a live one comes first."""
        first, second = "", ""
        for _ in range(2):
            first, second = second, world.store("a")
            world.ok("delete", id=second)

        assert world.refused("fetch", name="a")["code"] == "NOT_FOUND"
        assert world.refused("fetch", id=first)["code"] == "NOT_FOUND"
        assert world.ok("fetch", id=first, include_deleted=True)["deleted_at"] > 0
        assert world.ok("fetch", name="a", include_deleted=True)["id"] == second
        live = world.store("a")
        assert world.ok("fetch", name="a", include_deleted=True)["id"] == live


class TestFetchMany:
    def test_in_the_order_asked(self, world: World) -> None:
        ids = {name: world.store(name) for name in ("a", "b", "c")}
        answer = world.ok("fetch_many", items=[{"name": "c"}, {"id": ids["a"]}, {"name": "B", "workspace": "Default"}])

        assert [item["name"] for item in answer["items"]] == ["c", "a", "b"]
        assert answer["errors"] == []
        assert all(item["capsule_text"] == GOOD for item in answer["items"])
        assert all(item["task_link"] == item["fetch_key"] for item in answer["items"])

    def test_a_bad_reference_is_an_entry(self, world: World) -> None:
        """It is listed in `errors`, and the others are fetched."""
        world.store("a")
        refs: list[Any] = [
            {"name": "missing"},
            {"name": "a"},
            {"id": "x", "name": "a"},
            {},
            {"id": 5},
            {"nmae": "a"},
            "a",
            None,
        ]
        answer = world.ok("fetch_many", items=refs)

        assert [item["name"] for item in answer["items"]] == ["a"]
        assert [error["ref"] for error in answer["errors"]] == [ref for ref in refs if ref != {"name": "a"}]
        assert [error["code"] for error in answer["errors"]] == [
            "NOT_FOUND",
            "AMBIGUOUS_ADDRESSING",
            *["INVALID_REQUEST"] * 5,
        ]
        assert all(set(error) == {"ref", "code", "message"} for error in answer["errors"])

    def test_a_huge_reference_is_repeated_in_part(self, world: World) -> None:
        """The answer about a missing capsule stays small."""
        (error,) = world.ok("fetch_many", items=[{"name": "x" * 100_000}])["errors"]

        assert error["ref"]["name"].startswith("xxx")
        assert len(str(error)) < 8000

    def test_at_most_fifty(self, world: World) -> None:
        world.store("a")

        assert len(world.ok("fetch_many", items=[{"name": "a"}] * 50)["items"]) == 50
        assert world.refused("fetch_many", items=[{"name": "a"}] * 51)["details"]["field"] == "items"
        assert world.ok("fetch_many", items=[]) == {"items": [], "errors": []}

    def test_peeks_and_sees_deleted_ones(self, world: World) -> None:
        world.store("a")
        world.ok("delete", name="a")

        (item,) = world.ok("fetch_many", items=[{"name": "a"}], include_deleted=True, include_text=False)["items"]
        assert "capsule_text" not in item
        assert "deleted_at" in item
