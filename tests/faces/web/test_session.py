from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest

from backstory.archive.base import SessionsRequest
from backstory.faces.export import export
from backstory.faces.web import markdown, plain, took
from backstory.faces.web.conversation import ON_PAGE, read_items
from backstory.faces.web.edits import find_diffs
from backstory.library import Library
from backstory.model import InvalidId, session_id
from tests.transcripts import Transcript

from .conftest import Watched, WebServer, wait_until
from .world import CHILD_CALLS, LONG_TURNS, World

Open = Callable[..., Any]
# True for a link that is within the box of the rail.
IN_SIGHT = """link => {
  const [own, rail] = [link, link.closest(".rail")].map((each) => each.getBoundingClientRect());
  return rail.top <= own.top && own.bottom <= rail.bottom;
}"""


class Elements(HTMLParser):
    """The elements and attributes of a piece of HTML, and where its links lead."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.targets: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.targets += [value or "" for name, value in attrs if name == "href"]


def fetch(site: WebServer, id: str, **query: Any) -> Any:
    return httpx.get(f"{site.url}/s/{id}.json", params=query).json()


class TestSessionPage:
    """The data of the page, which is also its JSON twin."""

    def test_a_call_and_its_output_are_one_item(self, site: WebServer, world: World) -> None:
        items = fetch(site, world.shop)["turns"][0]["items"]
        assert [item["kind"] for item in items] == ["user", "tool", "tool", "tool", "agent"]
        bash, edit, _ = (item["tool"] for item in items if item["tool"])
        assert (bash["argument"], bash["failed"], bash["shell"]) == (
            *["pytest tests/test_checkout.py"],
            True,
            *[bash["shell"]],
        )
        assert [line["kind"] for line in edit["diffs"][0]["lines"]] == ["removed", "added", "same"]

    def test_the_rail_has_turns_around_the_place(self, site: WebServer, world: World) -> None:
        """A hundred of them, with the addresses of those before and after."""
        page = fetch(site, world.long)
        assert [turn["ordinal"] for turn in page["rail"]] == list(range(1, 101))
        assert page["rail"][4]["prompt"] == "Step 4: what about pallet4?"
        assert page["rail"][4]["tokens"] > 0
        assert page["rail_earlier_url"] is None
        later = fetch(site, world.long, **dict(httpx.URL(page["rail_later_url"]).params))
        assert [turn["ordinal"] for turn in later["rail"]] == list(range(101, LONG_TURNS + 1))
        assert later["rail_later_url"] is None
        earlier = fetch(site, world.long, **dict(httpx.URL(later["rail_earlier_url"]).params))
        assert earlier["rail"] == page["rail"]

    def test_subagents_are_not_the_next_session_of_the_project(self, site: WebServer, world: World) -> None:
        related = fetch(site, world.parent)["related"]
        assert len(related["children"]) == 1
        assert (related["previous"], related["next"]) == (None, None)

    def test_parts_follow_one_another(self, site: WebServer, world: World) -> None:
        """Every event is in exactly one part, also within a long turn."""
        child = fetch(site, world.parent)["related"]["children"][0]["id"]
        for id, count in ((world.long, 3 * LONG_TURNS), (child, CHILD_CALLS + 2)):
            seen, place = list[str](), dict[str, str]()
            while True:
                page = fetch(site, id, **place)
                seen += [item["id"] for turn in page["turns"] for item in turn["items"]]
                if page["later_url"] is None:
                    break
                place = dict(httpx.URL(page["later_url"]).params)
            assert len(seen) == len(set(seen)) == count
            assert page["earlier_url"]

    def test_capsules_of_the_session_are_beside_it(self, site: WebServer, world: World, library: Library) -> None:
        """Also those without a name."""
        stored = {"capsule_text": "## Goal\nkumquat", "allow_thin": True, "source_session": world.long}
        id = library.call("moss.store", {**stored, "title": "Kumquats"})["id"]
        nameless = library.call("moss.store", stored)["id"]
        links = fetch(site, world.long)["related"]["capsules"]
        assert {link["id"] for link in links} == {id, nameless}
        assert "Kumquats</a>" in httpx.get(f"{site.url}/s/{world.long}").text
        assert httpx.get(f"{site.url}/", params={"q": "kumquat"}).status_code == 200

    def test_a_part_contains_the_event_of_the_address(self, site: WebServer, world: World) -> None:
        found = fetch(site, world.long, find="pallet77")["find"]["lines"]
        assert {line["turn"] for line in found} == {78}
        place = httpx.URL(found[0]["url"])
        page = fetch(site, world.long, at=place.params["at"])
        assert place.fragment in [item["id"] for turn in page["turns"] for item in turn["items"]]

    @pytest.mark.parametrize("make", [lambda w: w.shop.replace("session:", "turn:") + ":2", lambda w: "nothing"])
    def test_other_ids(self, site: WebServer, world: World, make: Callable[[World], str]) -> None:
        """A turn leads to its session; an unknown id to an error page."""
        answer = httpx.get(f"{site.url}/s/{make(world)}", headers={"accept": "text/html"})
        if answer.status_code == 307:
            assert answer.headers["location"] == f"/s/{world.shop}?at=2"
        else:
            assert answer.status_code == 404

    def test_other_ids_lead_to_the_same_document(self, site: WebServer, world: World) -> None:
        """A handle, a turn and an event: to the page, the twin or the file, with the query."""
        native = fetch(site, world.shop)["native_id"]
        event = fetch(site, world.shop)["turns"][0]["items"][0]["id"]
        turn = f"{world.shop.replace('session:', 'turn:')}:2"
        for given, leads_to in (
            (f"{native[:8]}?find=a+b", f"{world.shop}?find=a+b"),
            (f"{native[:8]}.json?part=rail&from=2", f"{world.shop}.json?part=rail&from=2"),
            (f"{native}.md", f"{world.shop}.md"),
            (f"{turn}.json?find=x&at=9", f"{world.shop}.json?find=x&at=2"),
            (f"{event}.json", f"{world.shop}.json?at=1"),
            (event, f"{world.shop}?at=1#{event}"),
        ):
            answer = httpx.get(f"{site.url}/s/{given}")
            assert (answer.status_code, answer.headers["location"]) == (307, f"/s/{leads_to}"), given
        assert httpx.get(f"{site.url}/s/nothing.md").status_code == 404

    def test_whole_texts_are_plain(self, site: WebServer, world: World) -> None:
        item = fetch(site, world.hostile)["turns"][0]["items"][0]
        answer = httpx.get(f"{site.url}/s/{world.hostile}/{item['id']}.txt")
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert "<script>" in answer.text


class TestDiffs:
    """Edits are found by the names that agents give them."""

    def test_of_several_edits(self) -> None:
        edits = [{"oldText": "a", "newText": "b"}, {"oldText": "c", "newText": ""}]
        diffs = find_diffs({"path": "x.go", "edits": edits}, 100)
        assert [(diff.path, diff.added, diff.removed) for diff in diffs] == [("x.go", 1, 1), ("x.go", 0, 1)]

    def test_of_a_patch(self) -> None:
        patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-old\n+new\n same\n*** Add File: b.py\n+x\n*** End Patch"
        first, second = find_diffs({"input": patch}, 100)
        assert (first.path, [line.kind for line in first.lines]) == ("a.py", ["place", "removed", "added", "same"])
        assert (second.path, second.added) == ("b.py", 1)

    def test_of_a_patch_with_lines_that_look_like_heads(self) -> None:
        patch = "*** Begin Patch\n*** Update File: a.sql\n@@\n--- old comment\n+-- new comment\n*** End Patch"
        (diff,) = find_diffs({"input": patch}, 100)
        assert [line.text for line in diff.lines[1:]] == ["-- old comment", "-- new comment"]

    @pytest.mark.parametrize("command", [["apply_patch", "{}"], ["bash", "-lc", "apply_patch <<'EOF'\n{}\nEOF\n"]])
    def test_of_a_patch_by_the_shell(self, command: list[str]) -> None:
        patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-old\n+new\n*** End Patch"
        (diff,) = find_diffs({"command": [word.format(patch) for word in command]}, 100)
        assert (diff.path, diff.added, diff.removed, len(diff.lines)) == ("a.py", 1, 1, 3)

    def test_of_a_table_of_files(self) -> None:
        changes = {
            "new.py": {"type": "add", "content": "a\nb\n"},
            "old.py": {"type": "delete", "content": "a\n"},
            "x.py": {"type": "update", "unified_diff": "@@ -1,2 +1,2 @@\n-a\n+b\n c\n", "move_path": None},
        }
        diffs = find_diffs({"changes": changes}, 100)
        assert [(diff.path, diff.added, diff.removed) for diff in diffs] == [
            ("new.py", 2, 0), ("old.py", 0, 1), ("x.py", 1, 1),
        ]  # fmt: skip

    def test_long_ones_are_cut_and_counted_whole(self) -> None:
        (diff,) = find_diffs({"file_path": "x", "content": "line\n" * 50}, 10)
        assert (len(diff.lines), diff.more, diff.added) == (10, 40, 50)

    def test_a_change_in_a_long_text_is_found(self) -> None:
        before = [f"line {number}" for number in range(9_000)]
        after = [*before[:5_000], "changed", *before[5_001:]]
        (diff,) = find_diffs({"path": "x", "old_str": "\n".join(before), "new_str": "\n".join(after)}, 400)
        assert (diff.added, diff.removed, diff.more) == (1, 1, 0)
        assert [line.text for line in diff.lines[2:5]] == ["line 4999", "line 5000", "changed"]

    def test_other_calls_have_none(self) -> None:
        assert find_diffs({"command": "ls", "path": "."}, 10) == find_diffs(None, 10) == find_diffs([1], 10) == []


class TestArguments:
    """The line of a folded tool call."""

    @pytest.mark.parametrize(
        ("command", "shown"),
        [
            ("cd /home/dev/shop && make test", "make test"),
            ("cd '/home/dev/my shop' && make test && make docs", "make test && make docs"),
            ("cd /home/dev/shop", "cd /home/dev/shop"),
            ("make test && cd docs && make", "make test && cd docs && make"),
        ],
    )
    def test_a_command_begins_after_the_change_of_folder(self, tmp_path: Path, command: str, shown: str) -> None:
        Transcript("folders").prompt("Test it.").call("Bash", {"command": command}, "ok").write(tmp_path)
        with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            opened = library.archive.sessions(SessionsRequest(limit=1))[0]
            rows = library.archive.events(opened.key, 1)
            (item,) = [item for item in read_items(library, rows, ON_PAGE) if item.tool]
        assert item.tool is not None
        assert (item.tool.argument, item.tool.shell) == (shown, command)

    def test_an_editor_has_a_path_and_no_command_of_a_shell(self, tmp_path: Path) -> None:
        transcript = Transcript("editor").prompt("Write it.")
        edit = {"command": "str_replace", "path": "/home/dev/shop/a.py", "old_str": "x = 1", "new_str": "x = 2"}
        transcript.call("str_replace_editor", edit, "ok")
        transcript.call("str_replace_editor", {"command": "view", "path": "/home/dev/shop/b.py"}, "y = 3")
        transcript.write(tmp_path)
        with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            page = "".join(export(library, session_id(f"claude-code/{transcript.id}"), "html"))
        assert '<span class="argument">/home/dev/shop/a.py</span><span class="took">+1 −1</span>' in page
        assert '<span class="argument">/home/dev/shop/b.py</span>' in page
        assert "$ str_replace" not in page
        assert "$ view" not in page

    def test_all_of_a_long_one_is_a_link_away(self, tmp_path: Path) -> None:
        transcript = Transcript("long call").prompt("Write it.")
        edits = [{"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "line\n" * 1_500 + "last"}]
        transcript.call("MultiEdit", {"file_path": "a.py", "edits": edits}, "ok")
        transcript.write(tmp_path)
        with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            server = WebServer(library)
            page = httpx.get(f"{server.url}/s/{session_id(f'claude-code/{transcript.id}')}").text
            whole = re.search(r'<a href="([^"]+)">The whole call</a>', page)
            assert whole is not None
            text = httpx.get(server.url + whole[1]).text
            server.stop()
        assert '<span class="took">+1502 −2</span>' in page
        assert text.count("line\n") == 1_500
        assert "last" in text


class TestTitles:
    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("The **checkout** test in `cart.py`", "The checkout test in cart.py"),
            ("## Objective - ship ## Status - done", "Objective - ship Status - done"),
            ("# Fix it", "Fix it"),
            ("call(**options) and other(**more)", "call(**options) and other(**more)"),
            ("2**3**4, C # 5, __init__", "2**3**4, C # 5, __init__"),
            ("Run this:\n```sh\nmake `all`\n```\nThen wait", "Run this:\nmake all\nThen wait"),
            ("A fence on ```one line``` and ``` alone", "A fence on one line and ``` alone"),
        ],
    )
    def test_have_no_marks_of_markdown(self, text: str, shown: str) -> None:
        assert plain(text) == shown

    def test_a_long_text_of_marks_without_an_end_takes_no_time(self) -> None:
        text = " **a" * 200_000
        assert plain(text) == text

    def test_of_the_page_and_its_rail(self, site: WebServer, world: World) -> None:
        page = httpx.get(f"{site.url}/s/{world.shop}").text
        assert page.count("The checkout test is flaky.") >= 3  # title, heading, rail


class TestMarkdown:
    """Nothing of a transcript becomes markup, and nothing is loaded."""

    @pytest.mark.parametrize(
        "text",
        [
            "<script>alert(1)</script>",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](data:text/html,<script>)",
            "[x](/theme)",
            "![x](https://evil.example/p.png)",
            "<https:javascript>",
            '[x](https://a" onmouseover="alert(1))',
            "```<img src=x onerror=alert(1)>\n<b>\n```",
        ],
    )
    def test_hostile_texts(self, text: str) -> None:
        found = Elements(markdown(text))
        assert found.names <= {"p", "a", "pre", "code", "span"}
        assert found.attributes <= {"class", "href", "rel", "tabindex"}
        assert all(target.startswith("https://a") for target in found.targets)

    def test_links_lead_to_the_web_without_a_referrer(self) -> None:
        assert '<a href="https://example.com" rel="noreferrer noopener">' in markdown("[x](https://example.com)")

    def test_code_is_highlighted(self) -> None:
        assert '<span class="k">def</span>' in markdown("```python\ndef f(): pass\n```")


class TestExport:
    def test_html_needs_nothing_else(self, library: Library, world: World, browser: Any, tmp_path: Path) -> None:
        """Opened from disk, with scripts on: no request, no dialog, no error."""
        for name, id in (("shop", world.shop), ("hostile", world.hostile)):
            path = tmp_path / f"{name}.html"
            path.write_text("".join(export(library, id, "html")), "utf-8")
            context = browser.new_context(offline=True)
            page = context.new_page()
            watched = Watched(page, path.as_uri())
            page.goto(path.as_uri())
            page.locator("summary").first.click()
            assert page.locator(".turn").count() >= 1
            assert page.locator("script").count() == 0
            assert watched.seen == []
            context.close()

    def test_has_every_turn(self, library: Library, world: World) -> None:
        html = "".join(export(library, world.long, "html"))
        assert html.count('<section class="turn"') == LONG_TURNS

    def test_says_where_it_leaves_out_a_part_of_a_text(self, tmp_path: Path) -> None:
        long = "word " * 100_000
        Transcript("endless").prompt("Print it all.").call("Bash", {"command": "cat all"}, long).answer(long).write(
            tmp_path
        )
        with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
            library.sync()
            row = library.archive.sessions(SessionsRequest(limit=1))[0]
            html = "".join(export(library, session_id(row.key), "html"))
        assert "The text is longer; the rest is not in this file." in html
        assert "The output is longer; the rest is not in this file." in html

    def test_markdown_and_json_lines(self, library: Library, world: World) -> None:
        assert "## Turn 2" in "".join(export(library, world.shop, "md"))
        assert len(list(export(library, world.shop, "jsonl"))) == 1 + 12

    def test_of_what_is_no_session(self, library: Library) -> None:
        with pytest.raises(InvalidId):
            export(library, "nothing", "html")
        with pytest.raises(LookupError):
            export(library, "session:Y29kZXgvbm9uZQ", "html")

    def test_is_downloaded_from_the_page(self, site: WebServer, world: World) -> None:
        for format, kind in (("html", "text/html"), ("md", "text/markdown"), ("jsonl", "application/x-ndjson")):
            answer = httpx.get(f"{site.url}/s/{world.shop}.{format}")
            assert answer.headers["content-type"].startswith(kind)
            assert "attachment" in answer.headers["content-disposition"]


@pytest.fixture
def answered(open_page: Open, tmp_path: Path) -> Iterator[Open]:
    """Opens the page of a session with this answer."""
    with Library(tmp_path / ".backstory", agents_home=tmp_path, environ={}) as library:
        server = WebServer(library)

        def open_answer(text: str, **looks: Any) -> Any:
            transcript = Transcript("answered").prompt("Answer me.").answer(text)
            transcript.write(tmp_path)
            library.sync()
            return open_page(f"/s/{session_id(f'claude-code/{transcript.id}')}", base=server.url, **looks)

        yield open_answer
        server.stop()


class TestInTheBrowser:
    def test_reading(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.shop}")
        call = page.locator(".event.tool").first
        assert "failed" in call.locator("summary").inner_text()
        call.locator("summary").click()
        assert "1 failed, 3 passed" in call.locator("pre.terminal").nth(1).inner_text()
        page.locator(".event.tool").nth(1).locator("summary").click()
        assert page.locator(".diff .added").first.inner_text().strip() == "+ total = 2"
        assert page.locator(".prose pre .k").first.inner_text() == "def"

    def test_code_within_text_from_the_right_is_read_from_the_left(self, answered: Open) -> None:
        page = answered("انظر:\n\n```python\nx = (1)\n```")
        direction = "all => all.map(each => getComputedStyle(each).direction)"
        assert page.locator(".agent .prose, .agent pre").evaluate_all(direction) == ["rtl", "ltr"]

    def test_wide_code_and_tables_scroll_by_keys_and_keep_their_alignment(
        self, answered: Open, violations: Callable[[Any], list[str]]
    ) -> None:
        code, row = "one_long_line = " + "1 + " * 100, " | ".join(["`one_long_name_of_a_field`"] * 6)
        table = f"| {row} |\n|{'--:|' * 6}\n| {row} |"
        page = answered(f"```\n{code}\n```\n\n    {code}\n\n{table}", width=360)
        assert violations(page) == []
        align = "cells => cells.map(cell => getComputedStyle(cell).textAlign)"
        assert set(page.locator(".agent th, .agent td").evaluate_all(align)) == {"right"}

    def test_later_parts_come_as_one_scrolls(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.long}")
        first = page.locator(".turn").count()
        assert first < LONG_TURNS
        page.locator(".turn").last.scroll_into_view_if_needed()
        page.locator(".turn").nth(first).wait_for()
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
        assert len(ids) == len(set(ids))

    def test_find_asks_the_archive(self, open_page: Open, world: World) -> None:
        """It finds what is not on the page, and leads there."""
        page = open_page(f"/s/{world.long}")
        page.locator("main").focus()
        page.keyboard.press("f")
        page.keyboard.type("pallet99")
        page.locator("#matches mark", has_text="pallet99").first.wait_for()
        page.locator("#matches a").first.click()
        page.wait_for_url("**at=100**")
        page.locator("#turn-100").wait_for()

    def test_enter_leads_to_the_first_match_of_what_was_typed(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.long}?find=pallet7")
        page.locator("main").focus()
        page.keyboard.press("f")
        page.keyboard.type("pallet99")
        page.keyboard.press("Enter")
        wait_until(page, "document.activeElement.matches('#matches li:first-child a')")
        wait_until(page, "document.activeElement.querySelector('mark')?.textContent === 'pallet99'")

    def test_a_find_that_fails_says_so_and_can_be_asked_again(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.long}", quiet=False)
        page.route("**part=matches**", lambda route: route.abort(), times=1)
        page.get_by_role("searchbox").fill("pallet99")
        page.get_by_text("could not be searched").first.wait_for()
        page.keyboard.press("Enter")
        wait_until(page, "document.activeElement.matches('#matches a')")

    def test_an_event_link_opens_its_part(self, open_page: Open, site: WebServer, world: World) -> None:
        event = httpx.URL(fetch(site, world.long, find="pallet88")["find"]["lines"][0]["url"]).fragment
        page = open_page(f"/s/{world.long}#{event}")
        page.wait_for_url("**at=89**")
        assert page.locator(f'[id="{event}"]').count() == 1

    def test_the_rail_grows_in_both_directions(self, open_page: Open, world: World) -> None:
        """As one scrolls it; the turns that are in sight stay where they are."""
        turns = "() => [...document.querySelectorAll('.rail a')].map((link) => Number(link.dataset.to))"
        every = list(range(1, LONG_TURNS + 1))
        page = open_page(f"/s/{world.long}?at=118")
        wait_until(page, f"every => String(({turns})()) === String(every)", every)
        assert page.locator(".rail a[data-to='118']").evaluate(IN_SIGHT)
        page = open_page(f"/s/{world.long}")
        assert page.evaluate(turns)[-1] != LONG_TURNS
        page.locator(".rail .later").scroll_into_view_if_needed()
        wait_until(page, f"every => String(({turns})()) === String(every)", every)

    def test_the_rail_shows_the_turn_that_is_read(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.long}?at=60")
        page.locator("#turn-68").evaluate("turn => turn.scrollIntoView({ behavior: 'instant' })")
        wait_until(page, "Number(document.querySelector('.rail a[aria-current]').dataset.to) >= 66")
        assert page.locator(".rail a[aria-current]").evaluate(IN_SIGHT)

    def test_scripts_off(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.long}", java_script_enabled=False)
        page.get_by_role("link", name="Later turns").click()
        page.wait_for_url("**at=**")
        assert page.locator("#turn-1").count() == 0
        page.get_by_role("link", name="Earlier turns").click()
        page.locator("#turn-1").wait_for()
        page.locator(".rail a").nth(50).click()
        page.locator("#turn-51").wait_for()
        page.get_by_role("link", name="Turns after 100").click()
        page.locator(f".rail a[data-to='{LONG_TURNS}']").click()
        page.locator(f"#turn-{LONG_TURNS}").wait_for()
        page.get_by_role("searchbox").fill("pallet7")
        page.keyboard.press("Enter")
        page.locator("#matches mark").first.wait_for()

    def test_a_hostile_transcript_is_shown_harmlessly(self, open_page: Open, world: World) -> None:
        page = open_page(f"/s/{world.hostile}")
        for summary in page.locator("summary").all():
            summary.click()
        assert page.locator("main script, main iframe, main img, main style").count() == 0
        assert page.locator('a[href^="javascript"], a[href*="evil"]').count() == 0
        assert "\u202e" not in page.content()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        page = open_page("/?q=wombat")
        page.locator(".hit").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


class TestSideBySide:
    """Edits are unified diffs; on a wide screen a switch shows them side by side, from then on."""

    def test_the_switch(self, world: World, open_page: Open) -> None:
        page = open_page(f"/s/{world.shop}")
        edit = page.locator(".event.tool", has=page.locator(".diff")).first
        edit.locator("summary").click()
        edit.get_by_role("button", name="Side by side").click()
        cells = edit.locator("table.sides td")
        assert cells.all_inner_texts() == ["total = 1", "total = 2", "keep", "keep"]
        assert edit.locator("pre.diff").is_hidden()
        page.reload()
        edit.locator("summary").click()
        cells.first.wait_for()
        page.set_viewport_size({"width": 600, "height": 900})
        edit.locator("pre.diff").wait_for()
        assert cells.first.is_hidden()

    def test_without_scripts_there_is_no_switch(self, world: World, open_page: Open) -> None:
        page = open_page(f"/s/{world.shop}", java_script_enabled=False)
        edit = page.locator(".event.tool", has=page.locator(".diff")).first
        edit.locator("summary").click()
        assert edit.locator("pre.diff").is_visible()
        assert edit.get_by_role("button").count() == 0


class TestSubagents:
    def test_all_of_the_conversation_opens_in_its_place(
        self, world: World, open_page: Open, violations: Callable[[Any], list[str]]
    ) -> None:
        page = open_page(f"/s/{world.parent}")
        child = page.locator(".child")
        child.locator("summary").first.click()
        more = child.get_by_role("link", name="Show more of this conversation")
        more.wait_for()
        rounds = 0
        while more.count():
            seen = child.locator(".event").count()
            more.click()
            wait_until(page, "n => document.querySelectorAll('.child .event').length > n", seen)
            rounds += 1
        assert rounds >= 1
        assert child.locator(".event.tool").count() == CHILD_CALLS
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
        assert len(ids) == len(set(ids))
        assert violations(page) == []
        page.locator(".rail a").nth(1).click()
        assert page.locator("#turn-2").get_by_text("Thanks.").is_visible()

    def test_the_parts_of_its_own_page_have_names_of_their_own(
        self, world: World, open_page: Open, site: WebServer, violations: Callable[[Any], list[str]]
    ) -> None:
        child = fetch(site, world.parent)["related"]["children"][0]
        page = open_page(child["url"])
        # In the page, because each part replaces the link that is scrolled to.
        wait_until(
            page,
            """() => {
            const later = document.querySelector("#turns > .later");
            later?.scrollIntoView();
            return !later;
        }""",
        )
        assert page.locator("#turns > .turn").count() > 1
        assert violations(page) == []


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *((0, "0 ms"), (340, "340 ms"), (2_100, "2.1 s"), (7_000, "7 s"), (60_000, "1 min"), (964_000, "16 min 4 s")),
        *((3_600_000, "1 h"), (4_563_000, "1 h 16 min"), (188_000_000, "2 d 4 h")),
    ],
)
def test_durations_have_two_units(ms: int, text: str) -> None:
    assert took(ms) == text
