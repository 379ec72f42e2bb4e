"""Controls of every page: keys, copy buttons; and the marks of a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from backstory.library import Library
from backstory.model import session_id
from tests.transcripts import Transcript

from .conftest import WebServer
from .world import World

Open = Callable[..., Any]
FOCUSED = "document.activeElement"


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a session with a compaction, an interrupt and an error of the API."""
    home = tmp_path_factory.mktemp("marks")
    transcript = Transcript("marks")
    transcript.prompt("Count the apples.").answer("There are ten.")
    transcript.prompt("Count the pears.")
    transcript._record("user", message={"role": "user", "content": "[Request interrupted by user]"})
    transcript._record("system", subtype="compact_boundary", content="Conversation compacted")
    transcript._record(
        "user",
        message={"role": "user", "content": "**Summary**: there are ten apples in the basket."},
        isCompactSummary=True,
    )
    transcript.prompt("And the plums?")
    error = [{"type": "text", "text": "API Error: 529 overloaded"}]
    transcript._record(
        "assistant",
        isApiErrorMessage=True,
        message={"id": "msg_x", "type": "message", "role": "assistant", "model": "<synthetic>", "content": error},
    )
    transcript.write(home)
    with Library(home / ".backstory", agents_home=home, environ={}) as library:
        library.sync()
        server = WebServer(library)
        yield f"{server.url}/s/{session_id(f'claude-code/{transcript.id}')}"
        server.stop()


class TestKeys:
    def test_j_and_k_move_among_entries_and_stop_at_the_ends(self, open_page: Open) -> None:
        page = open_page("/?q=pallets")
        page.locator("main").focus()
        entries = page.locator("[data-entry]")
        for key, place in (("j", 0), ("j", 1), ("k", 0), ("k", 0)):
            page.keyboard.press(key)
            assert entries.nth(place).evaluate(f"entry => entry === {FOCUSED}"), (key, place)
        for _ in range(entries.count() + 2):
            page.keyboard.press("j")
        assert entries.last.evaluate(f"entry => entry === {FOCUSED}")

    @pytest.mark.parametrize("key", ["o", "Enter"])
    def test_o_and_enter_open_an_entry(self, key: str, open_page: Open, world: World) -> None:
        page = open_page("/")
        page.locator("main").focus()
        page.keyboard.press("j")
        page.keyboard.press(key)
        page.wait_for_url("**/s/session:**")

    def test_o_opens_and_closes_a_tool_call(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.shop}")
        call = page.locator(".event.tool details").first
        page.locator("main").focus()
        page.keyboard.press("j")
        for is_open in (True, False):
            page.keyboard.press("o")
            assert call.evaluate("call => call.open") is is_open

    def test_g_and_a_letter_open_each_page(self, open_page: Open, site: WebServer) -> None:
        page = open_page("/doctor")
        for letter, path in (("t", "/traces"), ("u", "/usage"), ("l", "/live"), ("c", "/capsules"), ("s", "/")):
            page.keyboard.press("g")
            page.keyboard.press(letter)
            page.wait_for_url(site.url + path)

    def test_the_list_has_all_keys(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.shop}")
        page.locator("main").focus()
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog")
        keys = {key for line in dialog.locator("dt").all() for key in line.inner_text().split()}
        assert keys == {"/", "j", "k", "Enter", "o", "f", "g", "s", "t", "u", "l", "c", "m", "?", "Esc"}
        page.keyboard.press("Escape")
        assert dialog.is_hidden()

    def test_letters_in_a_field_are_text(self, open_page: Open) -> None:
        page = open_page("/")
        page.locator("[name=q]:focus").wait_for()
        page.keyboard.type("jgko?")
        assert page.get_by_role("searchbox").input_value() == "jgko?"


class TestCopying:
    def test_the_command_and_the_session_as_markdown(self, open_page: Open, world: World, site: WebServer) -> None:
        page = open_page(f"/s/{world.shop}")
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        read = "navigator.clipboard.readText()"
        page.get_by_role("button", name="Copy", exact=True).click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate(read) == page.locator(".actions .command code").inner_text()
        page.get_by_role("link", name="Copy as Markdown").click()
        page.get_by_role("link", name="Copied").wait_for()
        assert page.evaluate(read) == httpx.get(f"{site.url}/s/{world.shop}.md").text
        assert page.get_by_role("status").inner_text() == "Copied"

    def test_without_scripts_there_is_no_button_and_markdown_is_a_file(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.shop}", java_script_enabled=False)
        assert page.get_by_role("button", name="Copy", exact=True).count() == 0
        with page.expect_download() as download:
            page.get_by_role("link", name="Copy as Markdown").click()
        assert download.value.suggested_filename.endswith(".md")


class TestMarks:
    def test_a_folded_text_begins_without_marks_of_markdown(self, marked: str) -> None:
        assert '<span class="argument">Summary: there are ten apples in the basket.</span>' in httpx.get(marked).text

    def test_compactions_interrupts_and_errors_are_seen(self, marked: str) -> None:
        text = httpx.get(marked).text
        for mark in ("Conversation compacted", "Interrupted", "Error"):
            assert f'">{mark}</p>' in text, mark
        assert "API Error: 529 overloaded" in text
        kinds = [item["kind"] for turn in httpx.get(f"{marked}.json").json()["turns"] for item in turn["items"]]
        assert {"compaction", "interrupt", "error"} <= set(kinds)

    def test_a_compaction_in_two_records_has_one_mark(self, marked: str, open_page: Open) -> None:
        base, _, path = marked.partition("/s/")
        page = open_page(f"/s/{path}", base=base)
        marks = page.locator(".compaction > .mark-line")
        assert [mark.is_visible() for mark in marks.all()] == [True, False]
        assert page.locator(".compaction > .fold").count() == 1
