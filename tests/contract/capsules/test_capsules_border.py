"""The border: answers leave redacted and stripped, `raw` returns the exact text, and no edit loses what is stored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backstory.config import CapsuleSettings
from backstory.toolsets.capsules.service import Capsules
from backstory.toolsets.capsules.tools import toolset_of
from tests.capsule_world import GOOD, Json, World, capsule_text

TOKEN = "ghp_" + "a1B2" * 9
MARK = "[redacted:github-token]"
ESCAPE = "\x1b[31m"
SECRET = GOOD + f"\nThe token is {TOKEN} {ESCAPE}in red\u202e.\n"
SHOWN = GOOD + f"\nThe token is {MARK} in red.\n"


@pytest.fixture
def secret(world: World) -> World:
    """A world with a capsule that holds a secret, an escape sequence and a bidi override."""
    world.store("a", SECRET)
    return world


class TestEveryAnswer:
    def test_is_redacted_and_stripped(self, served_world: World) -> None:
        """No tool returns the secret or the escape sequence, in the text or in a label."""
        world = served_world
        hostile = f"{TOKEN}{ESCAPE}"
        labels = {"title": hostile, "tags": [hostile], "source": hostile, "run_id": hostile, "workspace": hostile}
        address = {"name": hostile, "workspace": hostile}
        calls: list[tuple[str, Json]] = [
            ("store", {"capsule_text": SECRET, "name": hostile, **labels}),
            ("update", {"capsule_text": SECRET + "more", **address}),
            ("append", {"section": "Decisions", "content": hostile, **address}),
            ("fetch", address),
            ("fetch_many", {"items": [address, {"name": f"missing {hostile}"}]}),
            ("latest", {"workspace": hostile, "include_text": True}),
            ("list", {"workspace": hostile}),
            ("inventory", {}),
            ("search", {"query": "token"}),
            ("compose", {"items": [address]}),
            ("compose", {"items": [address], "format": "json"}),
            ("history", address),
            ("history", {"version": 1, **address}),
            ("fetch", {"name": f"missing {hostile}"}),
            ("export", {}),
            ("delete", address),
            ("restore", address),
            ("delete", address),
            ("purge", {"workspace": hostile}),
        ]
        for verb, arguments in calls:
            answer = world.call(f"moss.{verb}", arguments)
            assert answer.is_error == (arguments == {"name": f"missing {hostile}"}), answer.text
            for leak in (TOKEN, "\x1b", "\\u001b", "\u202e"):
                assert leak not in answer.text, (verb, leak)
                assert leak not in json.dumps(answer.data, ensure_ascii=False), (verb, leak)

    def test_of_fetch_says_what_is_not_shown(self, secret: World) -> None:
        item = secret.ok("fetch", name="a")

        assert item["capsule_text"] == SHOWN
        assert item["capsule_chars"] == len(SECRET)
        (warning,) = item["warnings"]
        assert "1 secret redacted" in warning
        assert "control or invisible characters removed" in warning
        assert "raw" in warning

    def test_without_a_change_has_no_warning(self, world: World) -> None:
        """Line ends are no loss: all of them leave as newlines."""
        world.store("a", GOOD.replace("\n", "\r\n"))
        item = world.ok("fetch", name="a")

        assert item["capsule_text"] == GOOD
        assert "warnings" not in item

    def test_cuts_a_snippet_from_redacted_text(self, world: World) -> None:
        """A part of a secret would not be recognised."""
        world.store("a", GOOD + "x " * 30 + "needle " + "y" * 220 + " " + TOKEN + " z" * 200)
        world.store("b", GOOD + "needle " + "y " * 70 + TOKEN + " z" * 200)
        for item in world.ok("search", query="needle")["items"]:
            assert TOKEN[:12] not in item["snippet"]

    def test_links_by_id_where_names_change(self, world: World) -> None:
        """A link by id resolves, a link by a redacted name would not."""
        capsule_id = world.store(f"task {TOKEN}")
        link = world.ok("fetch", id=capsule_id)["fetch_key"]

        assert link == {"moss_id": capsule_id}

    def test_redacts_names_before_they_are_normalised(self, world: World) -> None:
        """In lower case most rules do not recognise a secret."""
        key = "AKIA" + "Q7W3E5R8T2Y6U4I9"
        capsule_id = world.store(f"Task {key}", workspace=f"W {key}")
        for item in (world.ok("fetch", id=capsule_id), world.ok("inventory")["items"][0]):
            assert item["name_norm"] == "task [redacted:aws-access-key-id]"
            assert item["workspace_norm"] == "w [redacted:aws-access-key-id]"
        assert world.ok("fetch", id=capsule_id, raw=True)["name_norm"] == f"task {key.lower()}"

    def test_follows_the_setting(self, tmp_path: Path) -> None:
        """With `redact = "off"` secrets are shown; hostile characters are stripped all the same."""
        tools = {tool.name: tool for tool in toolset_of(Capsules(tmp_path, CapsuleSettings(), "off")).tools}
        tools["moss.store"].handler({"capsule_text": SECRET, "name": "a"})
        item = tools["moss.fetch"].handler({"name": "a"}).data

        assert item["capsule_text"] == SHOWN.replace(MARK, TOKEN)
        assert "secret" not in item["warnings"][0]


class TestRaw:
    def test_is_the_exact_text(self, secret: World) -> None:
        """Of fetch, fetch_many, latest and history, with names as stored and without a warning."""
        secret.store(f"b {ESCAPE}", SECRET, workspace="w")
        address = {"name": f"b {ESCAPE}", "workspace": "w", "raw": True}
        answers: list[Json] = [
            secret.ok("fetch", **address),
            secret.ok("fetch_many", items=[{"name": f"b {ESCAPE}", "workspace": "w"}], raw=True)["items"][0],
            secret.ok("latest", workspace="w", include_text=True, raw=True)["item"],
            secret.ok("history", version=1, **address)["items"][0],
        ]
        for answer in answers:
            assert answer["capsule_text"] == SECRET
            assert "warnings" not in answer
        assert answers[0]["name"] == f"b {ESCAPE}"

    def test_is_what_an_export_holds(self, secret: World) -> None:
        """A backup is exact, and imports as such."""
        exported = Path(secret.ok("export")["path"])
        record = json.loads(exported.read_bytes().splitlines()[1])

        assert record["capsule_text"] == SECRET
        assert secret.ok("import", path=str(exported))["skipped"] == 1

    def test_is_what_compose_stores(self, secret: World) -> None:
        """The answer is redacted, the stored bundle is not."""
        answer = secret.ok("compose", items=[{"name": "a"}], store_as={"name": "both"})

        assert MARK in answer["bundle_text"]
        assert TOKEN in secret.ok("fetch", name="both", raw=True)["capsule_text"]


class TestEditing:
    """A client fetches a capsule, edits the text and stores it again."""

    def test_of_a_redacted_text_is_refused(self, secret: World) -> None:
        """By update and by store; the capsule keeps its secret, and the message names the cure."""
        edited = secret.ok("fetch", name="a")["capsule_text"] + "More.\n"
        for verb, more in (("update", {}), ("store", {"mode": "replace"})):
            error = secret.refused(verb, name="a", capsule_text=edited, **more)

            assert (error["code"], error["details"]) == ("INVALID_REQUEST", {"field": "capsule_text"}), verb
            assert MARK in error["message"]
            assert "raw: true" in error["message"]
            assert "remove the mark" in error["message"]
        assert secret.ok("fetch", name="a", raw=True)["capsule_text"] == SECRET
        assert secret.ok("history", name="a")["version"] == 1

    def test_of_the_raw_text_keeps_everything(self, secret: World) -> None:
        edited = secret.ok("fetch", name="a", raw=True)["capsule_text"] + "More.\n"
        for verb, more in (("update", {}), ("store", {"mode": "replace"})):
            secret.ok(verb, name="a", capsule_text=edited, **more)

            assert secret.ok("fetch", name="a", raw=True)["capsule_text"] == SECRET + "More.\n"

    def test_without_the_mark_says_what_is_dropped(self, secret: World) -> None:
        """A warning names it, and the history keeps it exactly."""
        answer = secret.ok("update", name="a", capsule_text=capsule_text("clean"))

        (warning,) = answer["warnings"]
        assert "1 secret" in warning
        assert "invisible characters" in warning
        assert "version 1" in warning
        assert secret.ok("history", name="a", version=1, raw=True)["items"][0]["capsule_text"] == SECRET

    def test_of_a_stripped_text_says_what_is_dropped(self, world: World) -> None:
        """Invisible characters leave no mark."""
        world.store("a", GOOD + "zero\u200bwidth")
        edited = world.ok("fetch", name="a")["capsule_text"] + "."
        (warning,) = world.ok("update", name="a", capsule_text=edited)["warnings"]

        assert "control or invisible characters" in warning
        assert (
            world.ok("history", name="a", version=1, raw=True)["items"][0]["capsule_text"] == GOOD + "zero\u200bwidth"
        )

    def test_of_a_text_with_literal_marks(self, world: World) -> None:
        """A mark that is stored literally may stay, but not multiply."""
        world.store("a", GOOD + f"Logs show {MARK}.\n")
        world.ok("update", name="a", capsule_text=GOOD + f"All logs show {MARK}.\n")

        twice = GOOD + f"All logs show {MARK} and {MARK}.\n"
        assert world.refused("update", name="a", capsule_text=twice)["details"] == {"field": "capsule_text"}
        other = GOOD + "All logs show [redacted:jwt].\n"
        assert world.refused("update", name="a", capsule_text=other)["details"] == {"field": "capsule_text"}
        world.ok("update", name="a", capsule_text=GOOD)

    def test_of_labels_is_refused_too(self, world: World) -> None:
        """A redacted title or tag is not stored over the exact one."""
        world.store("a", title=f"token {TOKEN}", tags=["x", TOKEN])
        item = world.ok("fetch", name="a")

        for field in ("title", "tags"):
            error = world.refused("update", name="a", **{field: item[field]})
            assert error["details"] == {"field": field}
        world.ok("update", name="a", tags=["x"])
        assert world.ok("fetch", name="a", raw=True)["title"] == f"token {TOKEN}"

    def test_appending_a_mark_is_refused(self, secret: World) -> None:
        error = secret.refused("append", name="a", section="Decisions", content=f"- use {MARK}")

        assert (error["code"], error["details"]) == ("INVALID_REQUEST", {"field": "content"})
        secret.ok("append", name="a", section="Decisions", content="- rotate it")
        assert TOKEN in secret.ok("fetch", name="a", raw=True)["capsule_text"]

    def test_a_new_capsule_may_hold_a_mark(self, world: World) -> None:
        """It overwrites nothing: transcripts are read redacted, and capsules are distilled from them."""
        (warning,) = world.ok("store", capsule_text=GOOD + MARK, name="a")["warnings"]

        assert MARK in warning

    def test_composed_texts_need_no_check(self, world: World) -> None:
        """They are made of stored texts."""
        world.store("a", GOOD + MARK)
        world.store("both")
        answer = world.ok("compose", items=[{"name": "a"}], store_as={"name": "both", "mode": "replace"})

        assert answer["stored"]["replaced"] is True
        assert MARK in world.ok("fetch", name="both")["capsule_text"]
