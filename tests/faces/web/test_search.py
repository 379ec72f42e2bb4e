from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from backstory.faces.web.search import search_page
from backstory.library import Library

from .conftest import WebServer, wait_until
from .world import LONG_TURNS, World

Open = Callable[..., Any]
# Asks for each text as soon as there are results for the one before; gives the addresses that the history got.
ASK_IN_A_ROW = """async (texts) => {
  const field = document.querySelector("[data-search]"), found = document.getElementById("found");
  const given = [];
  for (const name of ["pushState", "replaceState"]) {
    const change = history[name].bind(history);
    history[name] = (...values) => (given.push(String(values[2])), change(...values));
  }
  for (const text of texts) {
    const shown = new Promise((done) => new MutationObserver(done).observe(found, { childList: true }));
    field.value = text;
    field.dispatchEvent(new Event("input"));
    await shown;
  }
  return given;
}"""
# The sum of the layout shifts of a page so far.
SHIFTS = """() => new Promise((done) => {
  let sum = 0;
  const observer = new PerformanceObserver((list) => list.getEntries().forEach((entry) => (sum += entry.value)));
  observer.observe({ type: "layout-shift", buffered: true });
  setTimeout(() => done(sum), 100);
})"""


class TestSearchPage:
    """The data of the page, which is also its JSON twin."""

    def test_matches_are_grouped_by_session(self, library: Library, world: World) -> None:
        page = search_page(library, {"q": "pallet1 pallet2 inventory"})
        group = next(group for group in page.groups if group.session.id == world.long)
        assert len(group.events) == 3
        assert group.more > 0
        assert "find=" in group.more_url

    def test_matches_are_marked(self, library: Library) -> None:
        page = search_page(library, {"q": "flaky"})
        event = page.groups[0].events[0]
        assert [event.snippet[start:end] for start, end in event.marks] == ["flaky"]

    def test_capsules_are_among_the_results(self, library: Library) -> None:
        assert [found["name"] for found in search_page(library, {"q": "flaky checkout"}).capsules] == ["checkout"]
        assert search_page(library, {"q": "flaky checkout", "agent": "claude-code"}).capsules == []

    @pytest.mark.parametrize(
        ("filters", "found"),
        [
            ({"agent": "claude-code"}, True),
            ({"agent": "codex"}, False),
            ({"project": "/home/dev/shop"}, True),
            ({"project": "/home/dev/other"}, False),
            ({"branch": "main"}, True),
            ({"branch": "other"}, False),
            ({"model": "claude-sonnet-4-5", "type": "assistant_response"}, True),
            ({"model": "other"}, False),
            ({"since": "2001-01-01"}, True),
            ({"until": "2001-01-01"}, False),
        ],
    )
    def test_filters(self, library: Library, filters: dict[str, str], found: bool) -> None:
        assert bool(search_page(library, {"q": "cart", **filters}).groups) is found

    def test_only_failed_tool_calls(self, library: Library) -> None:
        page = search_page(library, {"q": "passed", "failed": "1"})
        events = [event for group in page.groups for event in group.events]
        assert events
        assert all(event.failed and event.type == "tool_response" for event in events)

    def test_says_how_many_matches_the_counts_and_filters_are_of(self, site: WebServer, library: Library) -> None:
        page = search_page(library, {"q": "pallets"})
        assert (page.found, page.looked_at, page.truncated, page.counted_best) == (LONG_TURNS, 60, True, False)
        text = httpx.get(f"{site.url}/", params={"q": "pallets"}).text
        assert f"{LONG_TURNS} matches · the best 60 in 1 session" in text
        assert f"Counts are of all {LONG_TURNS} matching events." in text
        selected = search_page(library, {"q": "pallets", "branch": "main"})
        assert selected.looked_at > 60
        assert selected.counted_best
        assert "among the best" not in httpx.get(f"{site.url}/", params={"q": "flaky", "branch": "main"}).text

    def test_facets_count_all_matches(self, library: Library) -> None:
        """A count is what its filter finds, however many matches are shown."""
        page = search_page(library, {"q": "pallets shelf"})
        narrowing = ("agent", "project", "type", "since")  # the others select among the best matches
        counted = [facet for facet in page.facets if facet.name in narrowing]
        for option in (option for facet in counted for option in facet.options if option.count is not None):
            narrowed = search_page(library, dict(parse_qsl(urlsplit(option.url).query)))
            assert (option.label, narrowed.found) == (option.label, option.count)
        assert page.found > page.looked_at
        (group,) = search_page(library, {"q": "pallets"}).groups
        assert len(group.events) + group.more == LONG_TURNS

    def test_where_there_are_too_many_matches_the_best_are_counted(
        self, site: WebServer, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("backstory.archive.local.retrieval._MOST_COUNTED", LONG_TURNS - 1)
        page = search_page(library, {"q": "pallets"})
        assert (page.found, page.counted_best) == (60, True)
        text = httpx.get(f"{site.url}/", params={"q": "pallets"}).text
        assert "60 matches in 1 session among the best 60" in text
        assert "Counts are of the best 60 matches." in text

    def test_without_words_there_are_recent_sessions_and_projects(self, library: Library, world: World) -> None:
        page = search_page(library, {})
        assert world.shop in [line.id for line in page.recent]
        assert {"shop", "warehouse"} <= {project.name for project in page.projects}

    def test_has_a_twin(self, site: WebServer) -> None:
        page = httpx.get(f"{site.url}/.json", params={"q": "flaky"}).json()
        assert page["groups"][0]["session"]["project_name"] == "shop"
        assert [facet["name"] for facet in page["facets"]][:3] == ["agent", "project", "type"]

    def test_a_time_that_cannot_be_read_is_said(self, library: Library) -> None:
        assert "cannot be read" in search_page(library, {"since": "soonish"}).warnings[0]

    def test_wrong_values_of_filters(self, library: Library) -> None:
        """An unknown type is reported; `failed` is a filter only with 1."""
        (warning,) = search_page(library, {"q": "flaky", "type": "prompt"}).warnings
        assert "user_input" in warning
        every, none = (search_page(library, {"q": "flaky", **given}) for given in ({}, {"failed": "0"}))
        assert (none.found, none.chips) == (every.found, [])


class TestInTheBrowser:
    def test_results_come_as_one_types(self, open_page: Open) -> None:
        """The address follows, and the back button leads to where one was."""
        page = open_page("/")
        page.locator("[name=q]:focus").wait_for()
        page.keyboard.type("flaky checkout")
        page.locator(".group mark").first.wait_for()
        page.wait_for_url("**/?q=flaky+checkout")
        wait_until(page, "document.title === 'flaky checkout · Backstory'")
        page.go_back()
        page.get_by_role("heading", name="Recent sessions").wait_for()
        assert page.get_by_role("searchbox").input_value() == ""

    def test_an_outdated_answer_does_not_replace_a_later_one(self, open_page: Open) -> None:
        page = open_page("/")
        held: list[Any] = []
        page.route("**/?q=flaky&part=found", lambda route: held.append(route))
        with page.expect_request("**/?q=flaky&part=found"):
            page.get_by_role("searchbox").fill("flaky")
        page.get_by_role("searchbox").fill("pallet7")
        page.locator(".group mark", has_text="pallet7").first.wait_for()
        assert len(held) == 1
        assert page.locator(".group mark", has_text="flaky").count() == 0

    def test_the_address_follows_when_typing_rests(self, open_page: Open) -> None:
        page = open_page("/")
        assert page.evaluate(ASK_IN_A_ROW, ["p", "pal", "pallet", "pallet7"]) == []
        page.wait_for_url("**/?q=pallet7")
        wait_until(page, "document.title === 'pallet7 · Backstory'")
        assert "match" in page.get_by_role("status").inner_text()
        page.go_back()  # one entry for the whole search
        page.wait_for_url("**/")
        assert page.evaluate("location.search") == ""

    def test_whoever_follows_a_match_at_once_comes_back_to_the_search(self, open_page: Open) -> None:
        page = open_page("/")
        page.evaluate(ASK_IN_A_ROW, ["pallet7"])
        match = page.locator(".hit", has=page.locator("mark", has_text="pallet7")).first
        match.press("Enter")
        page.wait_for_url("**/s/session:**")
        page.go_back()
        page.wait_for_url("**/?q=pallet7")
        match.wait_for()

    def test_enter_leads_to_the_first_result_of_what_was_typed(self, open_page: Open) -> None:
        """Also when the results come after the key."""
        page = open_page("/")
        held: list[Any] = []
        page.route("**/?q=pallet7&part=found", lambda route: held.append(route))
        with page.expect_request("**/?q=pallet7&part=found"):
            page.get_by_role("searchbox").fill("pallet7")
        page.keyboard.press("Enter")
        page.wait_for_url("**/?q=pallet7")
        held[0].continue_()
        page.locator(".hit").first.wait_for()
        wait_until(page, "document.activeElement === document.querySelector('[data-entry]')")

    def test_results_fade_while_new_ones_are_late(self, open_page: Open) -> None:
        page = open_page("/?q=flaky")
        held: list[Any] = []
        page.route("**/?q=pallet7&part=found", lambda route: held.append(route))
        with page.expect_request("**/?q=pallet7&part=found"):
            page.get_by_role("searchbox").fill("pallet7")
        page.locator("#found[aria-busy=true]").wait_for()
        held[0].continue_()
        page.locator("#found:not([aria-busy])").wait_for()

    def test_filters_are_in_the_address(self, open_page: Open) -> None:
        page = open_page("/?q=cart")
        page.locator(".facets a", has_text="agent").first.click()
        page.wait_for_url("**type=assistant_response**")
        chip = page.locator(".chips .chip")
        chip.wait_for()
        page.reload()
        assert chip.count() == 1
        chip.click()
        page.wait_for_url("**/?q=cart")
        page.go_back()
        chip.wait_for()

    def test_the_keyboard_goes_on_where_it_was(self, open_page: Open) -> None:
        page = open_page("/?q=cart")
        page.locator(".facets a", has_text="agent").first.press("Enter")
        page.locator(".chips .chip").wait_for()
        wait_until(page, "document.activeElement.dataset.filter === 'type assistant_response'")
        page.locator(".chips .chip").press("Enter")
        page.wait_for_url("**/?q=cart")
        wait_until(page, "document.activeElement.name === 'q'")

    def test_more_sessions_lead_to_the_first_of_them(self, open_page: Open) -> None:
        page = open_page("/?q=passed+pallet7+flaky+wombat+shelves&n=1")
        shown = page.locator("[data-entry]").count()
        page.get_by_role("link", name="More sessions").press("Enter")
        page.locator(".group").nth(1).wait_for()
        wait_until(page, f"document.activeElement === document.querySelectorAll('[data-entry]')[{shown}]")

    def test_dates_are_in_the_address(self, open_page: Open) -> None:
        page = open_page("/?q=cart&agent=claude-code")
        page.get_by_text("other dates").click()
        page.get_by_label("from").fill("2026-01-01")
        page.get_by_role("button", name="Apply").click()
        page.wait_for_url("**/?q=cart&agent=claude-code&since=2026-01-01")
        page.locator(".chips .chip", has_text="since 2026-01-01").wait_for()
        wait_until(page, "document.activeElement.textContent === 'Apply'")

    def test_keyboard_only(self, open_page: Open) -> None:
        page = open_page("/?q=pallet5")
        page.locator(".hit").first.wait_for()
        page.locator("main").focus()
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        page.keyboard.press("?")
        assert page.get_by_role("dialog").is_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.locator("[name=q]:focus").wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        page.wait_for_url("**/s/session:**")
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.wait_for_url("**/")

    def test_filters_are_folded_on_a_narrow_screen_and_nothing_moves(self, open_page: Open) -> None:
        page = open_page("/?q=flaky", width=360)
        wait_until(page, "document.querySelector('.filters').dataset.ready === ''")
        assert page.evaluate(SHIFTS) == 0
        assert page.locator(".facets a").first.is_hidden()
        page.get_by_text("Filters", exact=True).click()
        assert page.locator(".facets a").first.is_visible()
        page.get_by_text("Filters", exact=True).click()
        page.set_viewport_size({"width": 1280, "height": 900})
        page.locator(".facets a").first.wait_for()

    def test_filters_are_shown_on_a_narrow_screen_with_scripts_off(self, open_page: Open) -> None:
        page = open_page("/?q=flaky", width=360, java_script_enabled=False)
        assert page.locator(".facets a").first.is_visible()

    def test_scripts_off(self, open_page: Open) -> None:
        page = open_page("/", java_script_enabled=False)
        page.get_by_role("searchbox").fill("flaky")
        page.keyboard.press("Enter")
        page.wait_for_url("**/?q=flaky")
        page.locator(".facets a", has_text="claude-code").click()
        page.wait_for_url("**agent=claude-code")
        assert page.locator(".hit").count() > 0
        page.locator(".hit").first.click()
        page.wait_for_url("**/s/session:**")
