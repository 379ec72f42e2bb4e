from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from backstory.archive.spans import Origin, SpanRow
from backstory.faces.web.traces import ROWS, axis_ticks
from backstory.library import Library

from .conftest import WebServer, wait_until

START = 1_779_000_000_000
LARGE = "1a" * 16
SPANS = 3_000


@pytest.fixture(scope="module")
def large(library: Library) -> str:
    """A trace with more spans than a page has, some of them failed, in two levels; hostile names and inputs."""
    rows = [SpanRow(trace=LARGE, id=1, name="agent", start=START, end=START + SPANS * 10)]
    for number in range(2, SPANS):
        parent = 1 if number % 10 == 2 else number // 10 * 10 + 2 if number % 10 > 2 else 1
        row = SpanRow(
            trace=LARGE, id=number, parent=parent, name=f"step <b>{number}</b>", start=START + number * 10,
            end=START + number * 10 + 8, status="error" if number == 2_500 else "success",
            input={"command": f"echo <script>alert({number})</script>"}, attributes={"http.method": "GET"},
        )  # fmt: skip
        rows.append(row)
    library.archive.spans.put(rows, {LARGE: Origin(name="large <i>trace</i>", source="otel")})
    return LARGE


def shop_trace(site: WebServer) -> str:
    found = httpx.get(f"{site.url}/traces.json", params={"name": "checkout"}).json()["items"]
    return quote(found[0]["id"])


class TestList:
    def test_shows_status_latency_tokens_and_cost(self, site: WebServer) -> None:
        page = httpx.get(f"{site.url}/traces", params={"name": "checkout"}).text
        assert "The checkout test is flaky" in page
        assert '<span class="tag bad">error</span>' in page
        for column in ("Latency", "Tokens", "Cost", "Started"):
            assert column in page

    def test_spans_have_the_argument_that_matters_and_no_filter_that_they_lack(self, site: WebServer) -> None:
        page = httpx.get(f"{site.url}/traces?of=spans&name=bash&slower=100000")
        assert "pytest tests/test_checkout.py" in page.text
        assert "slower: " not in page.text

    @pytest.mark.parametrize(
        ("query", "some"),
        [
            ("status=error", True),
            ("status=pending&name=checkout", False),
            ("model=sonnet", True),
            ("model=gpt", False),
            ("slower=1", True),
            ("slower=100000", False),
            ("dearer=1000", False),
            ("since=2100-01-01", False),
            ("of=spans&since=2001-01-01", True),
            ("f=totalTokens:gt:1", True),
            ("field=data.metadata.source&operator=eq&value=claude-code", True),
            ("trace=nothing", False),
            ("of=spans&name=bash", True),
            ("of=spans&f=data.type:eq:GENERATION", True),
            ("session=nothing", False),
            ("run=nothing", False),
        ],
    )
    def test_filters_are_those_of_the_tools(self, site: WebServer, query: str, some: bool) -> None:
        answer = httpx.get(f"{site.url}/traces.json?{query}").json()
        assert answer["error"] is None
        assert bool(answer["items"]) is some
        assert httpx.get(f"{site.url}/traces?{query}").status_code == 200

    def test_a_session_has_its_traces(self, site: WebServer, world: Any) -> None:
        assert len(httpx.get(f"{site.url}/traces.json", params={"session": world.shop}).json()["items"]) == 2

    def test_pages_follow_each_other(self, site: WebServer) -> None:
        first = httpx.get(f"{site.url}/traces.json", params={"sort": "createdAt", "order": "asc"}).json()
        query = {"sort": "createdAt", "order": "asc", "cursor": first["cursor"]}
        second = httpx.get(f"{site.url}/traces.json", params=query).json()
        assert not {item["id"] for item in first["items"]} & {item["id"] for item in second["items"]}
        assert 'rel="next"' in httpx.get(f"{site.url}/traces?sort=createdAt&order=asc").text

    def test_the_form_keeps_a_time_in_words(self, site: WebServer) -> None:
        assert 'name="since" value="30d"' in httpx.get(f"{site.url}/traces?since=30d").text
        assert 'type="date" name="since" value="2026-09-14"' in httpx.get(f"{site.url}/traces?since=2026-09-14").text

    def test_a_narrow_screen_has_tokens_and_cost_below_the_name(self, open_page: Callable[..., Any]) -> None:
        page = open_page("/traces?name=checkout", width=360)
        facts = page.locator("tbody .facts").first
        assert facts.is_visible()
        assert "tokens" in facts.inner_text()
        assert page.evaluate("document.querySelector('table').offsetWidth <= innerWidth")
        page.set_viewport_size({"width": 1280, "height": 900})
        assert facts.is_hidden()

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            ("f=nonsense:eq:1", "unknown field"),
            ("f=name:is:x", "must be one of"),
            ("since=garbage", "is neither"),
            ("sort=nope", "unknown field"),
            ("cursor=x", "Invalid cursor"),
        ],
    )
    def test_a_filter_that_cannot_be_used_is_explained(self, site: WebServer, query: str, reason: str) -> None:
        page, twin = (httpx.get(f"{site.url}/traces{ending}?{query}") for ending in ("", ".json"))
        assert (page.status_code, twin.status_code) == (400, 400)
        assert "This filter cannot be used" in page.text
        assert reason in page.text
        assert reason in twin.json()["error"]


class TestTrace:
    def test_the_twin_has_all_rows_under_their_columns(self, site: WebServer, large: str) -> None:
        data = httpx.get(f"{site.url}/traces/{large}.json").json()
        assert len(data["rows"]) == SPANS - 1
        row = dict(zip(data["columns"], data["rows"][0], strict=True))
        assert (row["name"], row["depth"], row["inside"], row["start"]) == ("agent", 0, SPANS - 2, 0)
        assert data["errors"] == 1

    def test_ids_may_be_in_upper_case(self, site: WebServer, large: str) -> None:
        assert httpx.get(f"{site.url}/traces/{large.upper()}.json").json()["id"] == large
        span = f"{SPANS - 1:016x}"
        assert httpx.get(f"{site.url}/traces/{large.upper()}/{span.upper()}.json").json()["span"]["id"] == span

    def test_without_scripts_the_page_has_some_rows_and_a_link_to_more(self, site: WebServer, large: str) -> None:
        page = httpx.get(f"{site.url}/traces/{large}").text
        assert page.count('<a class="span-row ') == ROWS
        assert f"from={ROWS}" in page
        later = httpx.get(f"{site.url}/traces/{large}?from={ROWS}&view=tree").text
        assert f'start="{ROWS + 1}"' in later
        assert "Earlier spans" in later

    def test_tool_calls_have_their_most_telling_argument(self, site: WebServer) -> None:
        trace = shop_trace(site)
        data = httpx.get(f"{site.url}/traces/{trace}.json").json()
        assert "pytest tests/test_checkout.py" in data["labels"].values()
        some = next(iter(data["labels"]))
        labels = httpx.get(f"{site.url}/traces/{trace}.json", params={"labels": f"{some},nonsense"}).json()
        assert list(labels["labels"]) == [some]

    def test_a_span_has_its_texts_and_a_link_to_its_event(self, site: WebServer) -> None:
        trace = shop_trace(site)
        labels = httpx.get(f"{site.url}/traces/{trace}.json").json()["labels"]
        span = next(id for id, label in labels.items() if label.startswith("pytest"))
        page = httpx.get(f"{site.url}/traces/{trace}/{span}").text
        assert "1 failed, 3 passed" in page
        assert "Read it in the session" in page
        part = httpx.get(f"{site.url}/traces/{trace}/{span}?part=span").text
        assert part.lstrip().startswith("<article")
        data = httpx.get(f"{site.url}/traces/{trace}/{span}.json").json()
        assert data["span"]["data"]["input"] == {"command": "pytest tests/test_checkout.py"}

    @pytest.mark.parametrize("path", ["nothing", "nothing/0000000000000001", f"{LARGE}/ffffffffffffffff", f"{LARGE}/x"])
    def test_what_is_not_there_is_not_found(self, site: WebServer, large: str, path: str) -> None:
        for suffix in ("", ".json"):
            assert httpx.get(f"{site.url}/traces/{path}{suffix}").status_code == 404

    @pytest.mark.parametrize(("length", "step"), [(1, 1), (950, 200), (61_000, 15_000), (3_600_000, 600_000)])
    def test_the_axis_has_round_times(self, length: int, step: int) -> None:
        ticks = axis_ticks(length)
        assert ticks[:2] == [0, step]
        assert len(ticks) <= 7


class TestWaterfall:
    """In the browser only the rows in sight exist."""

    def test_selecting_collapsing_and_errors(
        self, open_page: Callable[..., Any], violations: Callable[[Any], list[str]], large: str
    ) -> None:
        page = open_page(f"/traces/{large}")
        grid = page.get_by_role("treegrid")
        grid.wait_for()
        assert 10 < grid.locator("[role=row]").count() < 80
        assert grid.get_attribute("aria-rowcount") == str(SPANS - 1)

        page.get_by_role("button", name="Next error").click()
        panel = page.get_by_label("Selected span")
        panel.get_by_role("heading", name="step <b>2500</b>").wait_for()
        assert panel.get_by_text("echo <script>alert(2500)</script>").is_visible()
        assert page.url.endswith("#" + f"{2500:016x}")
        assert violations(page) == []

        page.get_by_role("button", name="Collapse all").click()
        assert int(grid.get_attribute("aria-rowcount")) < SPANS / 3
        grid.focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowLeft")
        assert grid.get_attribute("aria-rowcount") == "1"
        page.keyboard.press("ArrowRight")
        assert int(grid.get_attribute("aria-rowcount")) > 1

    def test_as_a_tree(self, open_page: Callable[..., Any], violations: Callable[[Any], list[str]], large: str) -> None:
        page = open_page(f"/traces/{large}?view=tree", width=360)
        page.get_by_role("treegrid").wait_for()
        assert page.locator(".columns > :visible").all_inner_texts() == ["Span", "Took"]
        page.set_viewport_size({"width": 1280, "height": 900})
        assert page.locator(".columns > :visible").count() == 5
        page.locator("[role=row]").nth(1).click()
        page.locator(".span-detail").wait_for()
        assert violations(page) == []

    def test_zooming_changes_the_axis_and_the_critical_path_stands_out(
        self, open_page: Callable[..., Any], large: str
    ) -> None:
        page = open_page(f"/traces/{large}", width=2560)
        page.get_by_role("treegrid").wait_for()
        whole = page.locator(".axis-names").text_content()
        page.get_by_role("button", name="Zoom in").click()
        assert page.locator(".axis-names").text_content() != whole
        page.get_by_role("button", name="Whole trace").click()
        assert page.locator(".axis-names").text_content() == whole
        page.get_by_role("button", name="Critical path").click()
        assert page.get_by_role("button", name="Critical path", pressed=True).is_visible()

    def test_zooming_by_keys_keeps_the_rows_in_sight_in_sight(self, open_page: Callable[..., Any], large: str) -> None:
        page = open_page(f"/traces/{large}")
        grid = page.get_by_role("treegrid")
        grid.wait_for()
        grid.focus()
        for _ in range(4):
            page.keyboard.press("+")
        # In one step: each zoom draws the rows anew.
        page.wait_for_function("""() => {
            const rows = [...document.querySelectorAll("[role=row]")];
            const row = rows.find((row) => row.textContent.includes("step <b>3</b>"));
            const bar = row?.querySelector("rect"), ticks = document.querySelector(".axis > .axis-ticks");
            return bar && bar.getBoundingClientRect().x >= ticks.getBoundingClientRect().x;
        }""")

    def test_zooming_brings_the_selected_span_to_the_middle(self, open_page: Callable[..., Any], large: str) -> None:
        page = open_page(f"/traces/{large}")
        page.get_by_role("treegrid").wait_for()
        page.get_by_role("button", name="Next error").click()
        page.locator(".span-detail").wait_for()
        page.get_by_role("button", name="Zoom in").click()
        page.get_by_role("button", name="Zoom in").click()
        wait_until(
            page,
            """() => {
            const [bar, ticks] = ["[aria-selected=true] rect", ".axis > .axis-ticks"].map((each) =>
                document.querySelector(each)?.getBoundingClientRect());
            return bar && Math.abs(bar.x - ticks.x - ticks.width / 2) < ticks.width / 20;
        }""",
        )

    def test_names_of_the_axis_stand_at_their_ticks_without_scripts(
        self, open_page: Callable[..., Any], large: str
    ) -> None:
        page = open_page(f"/traces/{large}", java_script_enabled=False)
        ticks = page.locator(".axis-ticks path").all()[:-1]
        names = page.locator(".axis-names text").all()
        assert [name.text_content() for name in names[:3]] == ["0", "5 s", "10 s"]
        for tick, name in zip(ticks, names, strict=False):
            assert 0 <= name.bounding_box()["x"] - tick.bounding_box()["x"] < 8

    def test_an_address_with_a_span_opens_it(self, open_page: Callable[..., Any], large: str) -> None:
        page = open_page(f"/traces/{large}#{1_000:016x}", width=360)
        page.get_by_role("heading", name="step <b>1000</b>").wait_for()
        assert page.locator("[aria-selected=true]").is_visible()

    def test_a_narrow_screen_has_the_selected_span_and_its_row(self, open_page: Callable[..., Any], large: str) -> None:
        page = open_page(f"/traces/{large}", width=360)
        page.set_viewport_size({"width": 360, "height": 600})
        page.get_by_role("treegrid").locator("[role=row]").nth(6).click()
        page.locator("#span-panel .span-detail").wait_for()
        page.wait_for_function(
            """() => {
              const row = document.querySelector("[aria-selected=true]").getBoundingClientRect();
              const panel = document.getElementById("span-panel").getBoundingClientRect();
              const bar = document.querySelector(".top").getBoundingClientRect();
              return row.top >= bar.bottom && panel.top > row.bottom && panel.top < innerHeight - 100;
            }"""
        )

    def test_labels_that_arrive_while_the_pointer_is_down_leave_the_click(
        self, open_page: Callable[..., Any], large: str
    ) -> None:
        page = open_page(f"/traces/{large}")
        row = page.get_by_role("treegrid").locator("[role=row]").nth(6)
        row.wait_for()
        # Requests for labels wait until the pointer is down.
        waiting: list[Any] | None = []
        page.route("**/*.json?labels=*", lambda route: route.continue_() if waiting is None else waiting.append(route))
        with page.expect_request("**/*.json?labels=*"):
            page.get_by_role("button", name="Next error").click()
        page.locator("#span-panel .span-detail").wait_for()
        below = page.locator("[aria-selected=true] + [role=row]")
        below.hover()
        page.mouse.down()
        held, waiting = waiting, None
        for each in held:
            each.continue_()
        below.locator(".label").wait_for()
        page.mouse.up()
        page.get_by_role("heading", name="step <b>2501</b>").wait_for()

    def test_a_resize_while_the_pointer_is_down_leaves_the_click(
        self, open_page: Callable[..., Any], large: str
    ) -> None:
        page = open_page(f"/traces/{large}")
        row = page.get_by_role("treegrid").locator("[role=row]").nth(6)
        row.hover()
        page.mouse.down()
        page.set_viewport_size({"width": 1100, "height": 700})
        page.evaluate("new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        page.mouse.up()
        page.locator("#span-panel .span-detail").wait_for()

    def test_the_list_has_no_violations(
        self, open_page: Callable[..., Any], violations: Callable[[Any], list[str]]
    ) -> None:
        page = open_page("/traces?status=error", width=360, color_scheme="dark")
        page.get_by_text("More filters").click()
        assert violations(page) == []
