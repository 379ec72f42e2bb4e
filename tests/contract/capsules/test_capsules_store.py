"""moss.store: the order of its checks, the stored capsule, and the answer."""

from __future__ import annotations

import re
import time
from typing import Any

from tests.capsule_world import GOOD, World, capsule_text

TOO_LONG = GOOD + "x" * 12_000


class TestStore:
    def test_a_named_capsule(self, world: World) -> None:
        """The answer has the id and, under both keys, the link with the raw names."""
        answer = world.ok("store", capsule_text=GOOD, name="Auth Flow", workspace="StartupA")

        link = {"moss_capsule": "Auth Flow", "moss_workspace": "StartupA"}
        assert answer == {"id": answer["id"], "task_link": link, "fetch_key": link, "created": True}
        assert re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", answer["id"])

    def test_a_capsule_without_a_name(self, world: World) -> None:
        """Its link is the id. There can be any number of them."""
        first, second = world.ok("store", capsule_text=GOOD), world.ok("store", capsule_text=GOOD)

        assert first["task_link"] == first["fetch_key"] == {"moss_id": first["id"]}
        assert first["id"] != second["id"]

    def test_keeps_everything_as_given(self, world: World) -> None:
        """The text is kept to the last character, names raw, labels in their order."""
        text = "\ufeff  " + GOOD.replace("\n", "\r\n") + "\t\u2028 \U0001f468\u200d\U0001f4bb \x00 "
        before = int(time.time())
        world.ok(
            "store",
            capsule_text=text,
            allow_thin=True,
            name="  Été\tPlan ",
            workspace=" My  Project ",
            title=" T ",
            tags=["b", "a", "b"],
            source="codex",
            run_id="run-1",
            phase="design",
            role="architect",
            source_session="session:abc",
        )

        item = world.ok("fetch", name="été plan", workspace="my project", raw=True)
        created = item.pop("created_at")
        assert before <= created <= int(time.time())
        assert item.pop("version") == 1
        del item["id"], item["task_link"], item["fetch_key"]
        assert item == {
            "workspace": " My  Project ",
            "workspace_norm": "my project",
            "name": "  Été\tPlan ",
            "name_norm": "été plan",
            "title": " T ",
            "capsule_text": text,
            "capsule_chars": len(text),
            "tokens_estimate": -(-len(text.split()) * 13 // 10),
            "tags": ["b", "a", "b"],
            "source": "codex",
            "run_id": "run-1",
            "phase": "design",
            "role": "architect",
            "source_session": "session:abc",
            "updated_at": created,
        }

    def test_defaults(self, world: World) -> None:
        """The title is the raw name, the workspace "default", and null fields are absent."""
        world.store("Auth")

        assert set(world.ok("fetch", name="auth")) == {
            "id",
            "workspace",
            "workspace_norm",
            "name",
            "name_norm",
            "title",
            "capsule_text",
            "capsule_chars",
            "tokens_estimate",
            "created_at",
            "updated_at",
            "task_link",
            "fetch_key",
            "version",
        }
        assert world.ok("fetch", name="auth")["title"] == "Auth"
        assert world.ok("fetch", name="auth")["workspace"] == "default"

    def test_a_blank_workspace_is_the_default(self, world: World) -> None:
        world.store("a", workspace="  ")

        assert world.ok("fetch", name="a")["workspace"] == "default"

    def test_tokens_are_words_times_1_3_rounded_up(self, world: World) -> None:
        for words, tokens in ((1, 2), (3, 4), (10, 13), (77, 101)):
            world.ok("store", capsule_text="word " * words, name="a", allow_thin=True, mode="replace")

            assert world.ok("fetch", name="a")["tokens_estimate"] == tokens

    def test_ids_sort_by_creation(self, world: World) -> None:
        """Ids of one millisecond sort, too."""
        ids = [world.store() for _ in range(50)]

        assert ids == sorted(ids)


class TestOrderOfChecks:
    """Text present, mode, workspace, name, 413, 422, 409: the first of several faults is reported."""

    FAULTS: tuple[tuple[dict[str, Any], str, str | None], ...] = (
        ({"capsule_text": None}, "INVALID_REQUEST", "capsule_text"),
        ({"mode": "maybe"}, "INVALID_REQUEST", "mode"),
        ({"workspace": "w" * 2000}, "INVALID_REQUEST", "workspace"),
        ({"name": "  "}, "INVALID_REQUEST", "name"),
        ({"capsule_text": "x" * 12_001}, "CAPSULE_TOO_LARGE", None),
        ({"capsule_text": "thin"}, "CAPSULE_TOO_THIN", None),
        ({"name": "taken"}, "NAME_ALREADY_EXISTS", None),
    )

    def test_the_first_fault_wins(self, world: World) -> None:
        world.store("taken")
        for first, (_, code, field) in enumerate(self.FAULTS):
            arguments: dict[str, Any] = {"capsule_text": GOOD}
            for fault, _, _ in reversed(self.FAULTS[first:]):
                arguments |= fault

            error = world.refused("store", **arguments)
            assert error["code"] == code
            assert error.get("details", {}).get("field") == field

    def test_the_text_must_be_there(self, world: World) -> None:
        for text in (None, ""):
            error = world.refused("store", capsule_text=text, allow_thin=True)

            assert (error["code"], error["details"]) == ("INVALID_REQUEST", {"field": "capsule_text"})

    def test_a_blank_text_has_no_sections(self, world: World) -> None:
        """It is too thin, also for a quick note: an export of it could not be imported."""
        for allow_thin in (False, True):
            error = world.refused("store", capsule_text=" \n\t\u3000", allow_thin=allow_thin)

            assert (error["code"], error["status"]) == ("CAPSULE_TOO_THIN", 422)
            assert len(error["details"]["missing"]) == 6


class TestHelp:
    def test_an_unknown_field_suggests_the_right_one(self, world: World) -> None:
        error = world.refused("store", text=GOOD)

        assert error["message"] == "unknown field: text (did you mean capsule_text?)"

    def test_a_secret_is_warned_about(self, world: World) -> None:
        """The capsule is stored, with a warning."""
        token = "ghp_" + "a1B2" * 9
        answer = world.ok("store", capsule_text=GOOD + f"\ntoken {token}\n", name="a")

        assert "a secret" in answer["warnings"][0]
        assert "warnings" not in world.ok("store", capsule_text=GOOD, name="b")

    def test_not_found_names_what_is_close(self, world: World) -> None:
        world.store("auth-refactor", workspace="shop")

        assert "shop/auth-refactor" in world.refused("fetch", name="auth-refacto", workspace="shop")["message"]
        assert "shop/auth-refactor" in world.refused("fetch", name="auth-refactor")["message"]
        assert "workspaces that hold capsules: shop" in world.refused("fetch", name="zebra")["message"]


class TestTooLarge:
    def test_is_413_with_both_numbers(self, world: World) -> None:
        """The limit is 12,000 code points; exactly as many are fine. What to do is in the message."""
        error = world.refused("store", capsule_text=TOO_LONG)

        assert (error["code"], error["status"]) == ("CAPSULE_TOO_LARGE", 413)
        assert error["details"] == {"max_chars": 12_000, "actual_chars": len(TOO_LONG)}
        assert "compress" in error["message"]
        world.store(None, TOO_LONG[:12_000])


class TestTooThin:
    def test_is_422_with_what_is_missing(self, world: World) -> None:
        """In canonical order, under both names, and with what each section is for."""
        error = world.refused("store", capsule_text="## Open questions\n?\n## Goal\nx\n## Status\ny\n")

        missing = ["Decisions", "Next actions", "Key locations"]
        assert (error["code"], error["status"]) == ("CAPSULE_TOO_THIN", 422)
        assert error["details"] == {"missing": missing, "missing_sections": missing}
        for word in ("choices made", "what to do next", "files"):
            assert word in error["message"]
        assert "allow_thin" in error["message"]

    def test_can_be_allowed(self, world: World) -> None:
        world.ok("store", capsule_text="just a note", name="note", allow_thin=True)

        assert world.ok("fetch", name="note")["capsule_text"] == "just a note"


class TestNameCollision:
    def test_is_409_with_the_address(self, world: World) -> None:
        """Names are compared normalised."""
        world.store("Auth Flow", workspace="A")
        error = world.refused("store", capsule_text=GOOD, name=" AUTH  flow", workspace="a")

        assert (error["code"], error["status"]) == ("NAME_ALREADY_EXISTS", 409)
        assert error["details"] == {"workspace": "a", "name": " AUTH  flow"}

    def test_other_workspaces_do_not_count(self, world: World) -> None:
        world.store("auth", workspace="a")
        world.store("auth", workspace="b")

    def test_deleted_capsules_do_not_count(self, world: World) -> None:
        world.store("auth")
        world.ok("delete", name="auth")
        world.store("auth")


class TestReplace:
    def test_keeps_id_and_creation(self, world: World) -> None:
        """Everything else is overwritten: labels that are not given again are removed."""
        first = world.store("Auth", tags=["a"], source="codex", run_id="r", title="Old")
        before = world.ok("fetch", id=first)
        answer = world.ok("store", capsule_text=capsule_text("new"), name="auth", workspace="Default", mode="replace")

        assert answer["id"] == first
        assert answer["replaced"] is True
        assert "created" not in answer
        assert answer["fetch_key"] == {"moss_capsule": "auth", "moss_workspace": "Default"}
        after = world.ok("fetch", id=first)
        assert after["created_at"] == before["created_at"]
        assert after["updated_at"] >= before["updated_at"]
        assert after["version"] == before["version"] + 1
        assert (after["title"], after["workspace"]) == ("auth", "Default")
        assert "- new" in after["capsule_text"]
        assert not {"tags", "source", "run_id"} & set(after)

    def test_creates_what_is_not_there(self, world: World) -> None:
        assert world.ok("store", capsule_text=GOOD, name="auth", mode="replace")["created"] is True

    def test_never_revives_a_deleted_capsule(self, world: World) -> None:
        first = world.store("auth")
        world.ok("delete", id=first)
        second = world.ok("store", capsule_text=GOOD, name="auth", mode="replace")

        assert second["created"] is True
        assert second["id"] != first
        assert "deleted_at" in world.ok("fetch", id=first, include_deleted=True)

    def test_without_a_name_it_is_a_store(self, world: World) -> None:
        assert world.ok("store", capsule_text=GOOD, mode="replace")["created"] is True
