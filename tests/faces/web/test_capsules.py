from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backstory.library import Library
from tests.capsule_world import capsule_text

from .conftest import WebServer, wait_until

TEXT = "\n\n".join(
    f"## {section}\n\nThe {section.lower()} of the **turnip** project."
    for section in ("Objective", "Current status", "Decisions", "Next actions", "Key locations", "Open questions")
)


@pytest.fixture
def client(site: WebServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, timeout=60) as client:
        yield client


@pytest.fixture
def turnip(library: Library) -> str:
    """The address of a capsule in three versions."""
    library.call(
        "moss.store", {"capsule_text": TEXT, "workspace": "farm", "name": "turnip", "mode": "replace", "tags": ["root"]}
    )
    for word in ("second", "third"):
        library.call("moss.update", {"workspace": "farm", "name": "turnip", "capsule_text": f"{TEXT}\n{word}"})
    return "/capsules/farm/turnip"


def token_of(client: httpx.Client, path: str = "/capsules") -> str:
    found = re.search(r'name="form_token" value="([^"]+)"', client.get(path).text)
    assert found is not None
    return found[1]


def form(client: httpx.Client, **fields: str) -> dict[str, str]:
    return {"form_token": token_of(client), **fields}


class TestReading:
    def test_the_list_is_by_workspace(self, client: httpx.Client, turnip: str) -> None:
        data = client.get("/capsules.json", params={"workspace": "farm"}).json()
        assert [item["address"] for item in data["items"]] == [turnip]
        counts = {workspace["name"]: workspace["count"] for workspace in data["workspaces"]}
        assert counts["farm"] == 1
        assert "turnip" in client.get("/capsules?workspace=farm").text

    def test_searches_their_texts(self, client: httpx.Client, turnip: str) -> None:
        page = client.get("/capsules.json", params={"q": "turnip project"}).json()
        assert [item["name"] for item in page["items"]] == ["turnip"]
        assert page["items"][0]["snippet"]

    def test_a_capsule_is_rendered_with_its_history(self, client: httpx.Client, turnip: str) -> None:
        page = client.get(turnip).text
        assert "<strong>turnip</strong>" in page
        data = client.get(f"{turnip}.json").json()
        assert [version["version"] for version in data["versions"]] == [
            data["version"],
            data["version"] - 1,
            *range(data["version"] - 2, data["version"] - len(data["versions"]), -1),
        ]

    def test_a_version_shows_its_changes(self, client: httpx.Client, turnip: str) -> None:
        version = client.get(f"{turnip}.json").json()["version"]
        data = client.get(f"{turnip}.json", params={"version": version}).json()
        changes = [tuple(line.values()) for line in data["diff"]["lines"] if line["kind"] != "same"]
        assert changes == [("removed", "second"), ("added", "third")]
        assert 'class="added"><i>+ </i>third' in client.get(turnip, params={"version": version}).text

    def test_the_markdown_can_be_downloaded(self, client: httpx.Client, turnip: str) -> None:
        answer = client.get(f"{turnip}.md")
        assert answer.text.startswith("## Objective")
        assert "turnip.md" in answer.headers["content-disposition"]

    @pytest.mark.parametrize(
        ("workspace", "name"),
        [
            *(("org/repo", "a/b"), ("ünïcode", "grüße & co"), ("farm", "50% off?")),
            *(("ends", "notes.json"), ("ends", "notes.md"), ("ends", "notes/edit")),
            *(("farm", "a/../b"), ("farm", ".."), ("farm/../barn", "c"), (".", "d")),
        ],
    )
    def test_names_of_any_kind_have_an_address(
        self, client: httpx.Client, library: Library, workspace: str, name: str
    ) -> None:
        stored = {"capsule_text": TEXT, "workspace": workspace, "name": name, "mode": "replace"}
        library.call("moss.store", stored)
        items = client.get("/capsules.json", params={"workspace": workspace}).json()["items"]
        address = next(item["address"] for item in items if item["name"] == name)
        assert client.get(f"{address}.json").json()["capsule"]["name"] == name
        assert client.get(address).headers["content-type"].startswith("text/html")

    def test_one_without_a_name_has_the_address_of_its_id(self, client: httpx.Client, library: Library) -> None:
        id = library.call("moss.store", {"capsule_text": TEXT, "workspace": "nameless"})["id"]
        assert client.get(f"/capsules/nameless/{id}").status_code == 200

    @pytest.mark.parametrize("path", ["/capsules/farm/nothing", "/capsules/farm/turnip?version=99", "/capsules/x"])
    def test_what_is_not_there_is_not_found(self, client: httpx.Client, turnip: str, path: str) -> None:
        assert client.get(path).status_code == 404

    def test_markup_in_a_capsule_is_text(self, client: httpx.Client, library: Library) -> None:
        hostile = f"{TEXT}\n<script>alert(1)</script>"
        library.call("moss.store", {"capsule_text": hostile, "name": "<script>", "mode": "replace"})
        page = client.get("/capsules/default/%3Cscript%3E").text
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)" in page


class TestWriting:
    def test_needs_the_token_of_a_page(self, client: httpx.Client, turnip: str) -> None:
        for path, fields in (
            (turnip, {"action": "delete"}),
            (f"{turnip}/edit", {"text": "x"}),
            ("/capsules/new", {"text": "x"}),
            ("/capsules/lint", {"text": "x"}),
            ("/capsules", {"action": "export"}),
        ):
            assert client.post(path, data=fields).status_code == 403
            assert client.post(path, data={**fields, "form_token": "wrong"}).status_code == 403
        file = {"file": ("x.jsonl", b"{}")}
        assert client.post("/capsules", data={"form_token": "wrong"}, files=file).status_code == 403

    def test_refuses_other_origins(self, client: httpx.Client, turnip: str) -> None:
        headers = {"origin": "https://evil.example"}
        assert client.post(turnip, data=form(client, action="delete"), headers=headers).status_code == 403

    def test_an_edit_is_a_new_version(self, client: httpx.Client, turnip: str) -> None:
        before = client.get(f"{turnip}.json").json()
        fields = form(client, text=f"{TEXT}\r\nmore", title="Roots", tags="a, b ,", version=str(before["version"]))
        assert client.post(f"{turnip}/edit", data=fields).headers["location"] == turnip
        after = client.get(f"{turnip}.json").json()
        assert after["version"] == before["version"] + 1
        assert after["text"] == f"{TEXT}\nmore"
        assert (after["capsule"]["title"], after["capsule"]["tags"]) == ("Roots", ["a", "b"])

    def test_a_refused_edit_shows_the_reason_and_keeps_what_was_typed(self, client: httpx.Client, turnip: str) -> None:
        answer = client.post(f"{turnip}/edit", data=form(client, text="## Objective\nonly this"))
        assert answer.status_code == 422
        assert "missing required sections" in answer.text
        assert "only this</textarea>" in answer.text

    def test_an_edit_of_an_old_version_is_refused(self, client: httpx.Client, turnip: str) -> None:
        answer = client.post(f"{turnip}/edit", data=form(client, text=TEXT, version="1"))
        assert answer.status_code == 409
        assert "has changed since you read it" in answer.text

    def test_a_redacted_secret_is_not_overwritten(self, client: httpx.Client, library: Library) -> None:
        secret = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        library.call("moss.store", {"capsule_text": f"{TEXT}\n{secret}", "name": "secret", "mode": "replace"})
        shown = client.get("/capsules/default/secret/edit").text
        assert secret not in shown
        answer = client.post(
            "/capsules/default/secret/edit", data=form(client, text=f"{TEXT}\n[redacted:github-token]")
        )
        assert answer.status_code == 400
        assert "would lose the secret" in answer.text

    def test_a_new_one_is_stored_and_shown(self, client: httpx.Client) -> None:
        assert "## Key locations" in client.get("/capsules/new").text
        fields = form(client, text=TEXT, workspace="farm", name="beet")
        assert client.post("/capsules/new", data=fields).headers["location"] == "/capsules/farm/beet"
        assert "already exists" in client.post("/capsules/new", data=fields).text

    def test_deleting_and_restoring(self, client: httpx.Client, turnip: str) -> None:
        assert client.post(turnip, data=form(client, action="delete")).status_code == 303
        assert "turnip" not in client.get("/capsules?workspace=farm").text
        assert "turnip" in client.get("/capsules?workspace=farm&deleted=1").text
        assert "was deleted" in client.get(turnip).text
        assert client.post(turnip, data=form(client, action="restore")).headers["location"] == turnip
        assert "was deleted" not in client.get(turnip).text

    def test_an_old_version_can_be_made_the_current_one(self, client: httpx.Client, turnip: str) -> None:
        data = client.get(f"{turnip}.json").json()
        client.post(turnip, data=form(client, action="revert", version=str(data["version"] - 1)))
        assert client.get(f"{turnip}.json").json()["text"].endswith("second")

    def test_unknown_actions_are_refused(self, client: httpx.Client, turnip: str) -> None:
        assert client.post(turnip, data=form(client, action="explode")).status_code == 400

    def test_exporting_and_importing(self, client: httpx.Client, library: Library, turnip: str) -> None:
        page = client.post("/capsules", data=form(client, action="export", workspace="farm")).text
        path = re.search(r"\d+ capsules? written to (\S+\.jsonl)", page)
        assert path is not None
        content = Path(path[1]).read_bytes()
        library.call("moss.delete", {"workspace": "farm", "name": "turnip"})
        library.call("moss.purge", {"workspace": "farm"})
        answer = client.post("/capsules", data=form(client, mode="replace"), files={"file": ("farm.jsonl", content)})
        assert re.search(r"\d+ capsules? imported, \d+ already there\.", answer.text)
        assert client.get(turnip).status_code == 200
        assert not list((library.home / "exports").glob("import-*"))

    def test_a_file_that_is_no_export_is_refused_with_the_line(self, client: httpx.Client) -> None:
        record = json.dumps({"id": 5})
        files = {"file": ("x.jsonl", f"{record}\nnonsense\n".encode())}
        page = client.post("/capsules", data=form(client), files=files).text
        assert "Nothing was imported" in page
        assert "line 1:" in page


class TestTwins:
    """Forms and what they do have JSON twins, too."""

    def test_the_form_of_a_new_one(self, client: httpx.Client) -> None:
        data = client.get("/capsules/new.json", params={"workspace": "farm"}).json()
        assert data["address"] is None
        assert data["fields"]["workspace"] == "farm"
        assert data["lint"]["sections"]["Objective"]
        assert data["form_token"] == token_of(client)

    def test_the_form_of_an_edit(self, client: httpx.Client, turnip: str) -> None:
        data = client.get(f"{turnip}/edit.json").json()
        assert data["address"] == turnip
        assert (data["fields"]["text"], data["fields"]["tags"]) == (f"{TEXT}\nthird", "root")
        assert data["fields"]["version"] == str(client.get(f"{turnip}.json").json()["version"])

    def test_storing_answers_the_address(self, client: httpx.Client) -> None:
        token = client.get("/capsules/new.json").json()["form_token"]
        fields = {"form_token": token, "text": TEXT, "workspace": "farm", "name": "leek"}
        answer = client.post("/capsules/new.json", data=fields)
        assert (answer.status_code, answer.json()) == (200, {"address": "/capsules/farm/leek"})
        again = client.post("/capsules/new.json", data=fields)
        assert again.status_code == 409
        assert "already exists" in again.json()["error"]

    def test_a_refused_edit_answers_the_reason_and_the_check(self, client: httpx.Client, turnip: str) -> None:
        answer = client.post(f"{turnip}/edit.json", data=form(client, text="## Objective\nonly this"))
        assert answer.status_code == 422
        assert "missing required sections" in answer.json()["error"]
        assert answer.json()["lint"]["sections"]["Decisions"] is False

    def test_actions_answer_the_address(self, client: httpx.Client, turnip: str) -> None:
        assert client.post(f"{turnip}.json", data=form(client, action="delete")).json() == {
            "address": "/capsules?deleted"
        }
        assert client.post(f"{turnip}.json", data=form(client, action="restore")).json() == {"address": turnip}
        assert client.post(f"{turnip}.json", data=form(client, action="explode")).json()["error"]["code"] == (
            "bad_request"
        )

    def test_the_check_of_a_text(self, client: httpx.Client) -> None:
        lint = client.post("/capsules/lint.json", data=form(client, text="## Goal\nx")).json()["lint"]
        assert (lint["chars"], lint["sections"]["Objective"], lint["sections"]["Decisions"]) == (9, True, False)

    def test_an_export_answers_the_list_with_the_notice(self, client: httpx.Client, turnip: str) -> None:
        answer = client.post("/capsules.json", data=form(client, action="export", workspace="farm")).json()
        assert "written to" in answer["notice"]
        assert answer["total"] > 0

    def test_needs_the_token_of_a_page(self, client: httpx.Client, turnip: str) -> None:
        for path in (f"{turnip}.json", f"{turnip}/edit.json", "/capsules/new.json", "/capsules.json"):
            answer = client.post(path, data={"action": "delete", "text": TEXT, "name": "x"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


class TestLint:
    def test_says_which_sections_are_there(self, client: httpx.Client) -> None:
        part = client.post("/capsules/lint", data=form(client, text="## Goal\nx\n\n## Status\ny")).text
        assert part.count('class="missing"') == 4
        assert "Open questions" in part

    def test_a_text_that_is_too_long_is_marked(self, client: httpx.Client) -> None:
        assert "too long" in client.post("/capsules/lint", data=form(client, text="x" * 13_000)).text


class TestBrowser:
    def test_lint_while_typing_and_saving(
        self, open_page: Callable[..., Any], violations: Callable[[Any], list[str]], turnip: str
    ) -> None:
        page = open_page(f"{turnip}/edit", quiet=False)  # a refused form has a status that browsers log
        text = page.get_by_label("Text, Markdown")
        text.fill("## Objective\n\nonly this")
        page.locator("#lint .missing").nth(4).wait_for()
        assert violations(page) == []
        page.get_by_role("button", name="Save").click()
        page.get_by_role("alert").wait_for()
        text = page.get_by_label("Text, Markdown")
        assert text.input_value() == "## Objective\n\nonly this"
        text.fill(capsule_text("carrots") + "\n" + TEXT)
        page.locator("#lint .missing").first.wait_for(state="detached")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("carrots").first.wait_for()

    def test_what_was_typed_can_be_saved_after_the_server_was_started_anew(
        self, open_page: Callable[..., Any], turnip: str
    ) -> None:
        page = open_page(f"{turnip}/edit", quiet=False)  # a refused check has a status that browsers log
        page.locator("[name=form_token]").evaluate("field => { field.value = 'of the server before' }")
        with page.expect_response("**/edit.json"):
            page.get_by_label("Text, Markdown").fill(capsule_text("radishes"))
        wait_until(page, "document.querySelector('[name=form_token]').value !== 'of the server before'")
        page.get_by_role("button", name="Save").click()
        page.get_by_text("radishes").first.wait_for()

    def test_the_labels_of_the_import_form_are_as_wide_as_it(self, open_page: Callable[..., Any]) -> None:
        page = open_page("/capsules", width=360)
        page.get_by_text("Export and import").click()
        assert page.get_by_text("A file of an export").bounding_box()["height"] < 30

    @pytest.mark.parametrize("path", ["/capsules?deleted", "{address}", "{address}?version={version}"])
    def test_pages_have_no_violations(
        self,
        open_page: Callable[..., Any],
        violations: Callable[[Any], list[str]],
        client: httpx.Client,
        turnip: str,
        path: str,
    ) -> None:
        version = client.get(f"{turnip}.json").json()["version"]
        page = open_page(path.format(address=turnip, version=version), width=360, color_scheme="dark")
        assert violations(page) == []

    def test_everything_works_without_scripts(self, open_page: Callable[..., Any], turnip: str) -> None:
        page = open_page(turnip, java_script_enabled=False)
        page.get_by_role("button", name="Delete").click()
        page.goto(page.url.partition("/capsules")[0] + turnip)
        page.get_by_role("button", name="Restore").click()
        page.get_by_role("link", name="Edit").click()
        page.get_by_label("Title").fill("Changed without scripts")
        page.get_by_role("button", name="Save").click()
        assert page.get_by_role("heading", name="Changed without scripts").is_visible()
