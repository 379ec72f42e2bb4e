from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from time import tzset
from typing import Any

import httpx
import pytest
from starlette.exceptions import HTTPException

from backstory.archive.spans import Origin, SpanRow
from backstory.faces.web import figures as charts
from backstory.faces.web.usage import Usage, read_usage
from backstory.library import Library

from .conftest import WebServer

TODAY = date(2026, 9, 14)


def call(number: int, day: date, **fields: Any) -> SpanRow:
    start = int(datetime.combine(day, time(12)).astimezone().timestamp() * 1000)
    values = {"input_tokens": 100, "cache_read_tokens": 80, "output_tokens": 10, "cost": 0.5, "model": "gpt-5.2"}
    times = {"start": start, "end": start + 1000}
    return SpanRow(
        trace=f"{number:032x}", id=number, name="chat", type="GENERATION", **{**values, **times, **fields}
    )  # fmt: skip


@pytest.fixture
def spent(tmp_path: Path) -> Iterator[Library]:
    """Calls of this month and of the month before, in two projects."""
    with Library(tmp_path / "home", agents_home=tmp_path, environ={}) as library:
        for number, days, project, fields in (
            (1, 0, "/home/dev/shop", {}),
            (2, 1, "/home/dev/shop", {"model": "claude-opus-4-5", "cost": 2.0}),
            (3, 20, "/home/dev/<b>warehouse</b>", {"cost": None, "model": "unknown-model"}),
            (4, 31, "/home/dev/shop", {}),
        ):
            span = call(number, TODAY - timedelta(days=days), **fields)
            origin = Origin(project=project, source="codex", session=f"codex/s{number}")
            library.archive.spans.put([span], {span.trace: origin})
        yield library


def read(library: Library, **query: str) -> Usage:
    return read_usage(library, query, TODAY)


class TestUsage:
    """The data of the page, which its charts and its JSON twin show."""

    def test_adds_up_the_period_and_the_one_before(self, spent: Library) -> None:
        usage = read(spent)
        assert (usage.total.calls, usage.total.cost, usage.total.unpriced) == (3, 2.5, 1)
        assert usage.before is not None
        assert (usage.before.calls, usage.before.cost) == (1, 0.5)
        assert usage.total.cache_share == pytest.approx(0.8)

    def test_has_a_bucket_for_every_day_also_without_calls(self, spent: Library) -> None:
        usage = read(spent, range="30d")
        assert len(usage.buckets) == 30
        assert [bucket.amount.calls for bucket in usage.buckets[-2:]] == [1, 1]

    def test_compares_a_day_with_the_same_one_of_the_period_before(self, spent: Library) -> None:
        buckets = {bucket.name: bucket for bucket in read(spent).buckets}
        assert buckets[(TODAY - timedelta(days=1)).isoformat()].before == 0.5

    @pytest.mark.parametrize(("by", "name"), [("day", "2026-09-14"), ("week", "2026-W38"), ("month", "2026-09")])
    def test_groups_by_day_week_and_month(self, spent: Library, by: str, name: str) -> None:
        assert read(spent, by=by).buckets[-1].name == name

    def test_groups_by_project_model_and_agent(self, spent: Library) -> None:
        usage = read(spent)
        assert [amount.name for amount in usage.projects] == ["/home/dev/shop", "/home/dev/<b>warehouse</b>"]
        assert [amount.name for amount in usage.models] == ["claude-opus-4-5", "gpt-5.2", "unknown-model"]
        assert [(amount.name, amount.calls) for amount in usage.agents] == [("codex", 3)]

    def test_names_the_sessions_that_cost_most_first(self, spent: Library) -> None:
        assert [session.cost for session in read(spent).sessions] == [2.0, 0.5]

    def test_counts_calls_by_weekday_and_hour(self, spent: Library) -> None:
        hours = read(spent).hours
        assert sum(map(sum, hours)) == 3
        assert hours[TODAY.weekday()][12] == 1

    def test_filters_by_project_and_agent(self, spent: Library) -> None:
        assert read(spent, project="WAREHOUSE").total.calls == 1
        assert read(spent, source="claude-code").total.calls == 0

    def test_takes_any_days(self, spent: Library) -> None:
        usage = read(spent, since="2026-08-01", until="2026-08-31")
        assert (usage.since, usage.until, usage.range, usage.total.calls) == ("2026-08-01", "2026-08-31", None, 2)

    def test_a_day_without_midnight(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where clocks go forward at midnight, the last hour of the day before is not part of it."""
        monkeypatch.setenv("TZ", "America/Santiago")
        tzset()
        last_hour = int(datetime.fromisoformat("2026-09-05T23:30:00-04:00").timestamp() * 1000)
        with Library(tmp_path / "home", agents_home=tmp_path, environ={}) as library:
            span = call(1, TODAY, start=last_hour, end=last_hour + 1000)
            library.archive.spans.put([span], {span.trace: Origin(project="/p", source="codex", session="codex/s")})
            calls = [read(library, since=day, until=day).total.calls for day in ("2026-09-05", "2026-09-06")]
        monkeypatch.undo()
        tzset()

        assert calls == [1, 0]

    def test_all_time_begins_with_the_first_call(self, spent: Library) -> None:
        usage = read(spent, range="all")
        assert (usage.since, usage.total.calls, usage.before) == ("2026-08-14", 4, None)

    def test_days_at_the_edges_of_the_calendar_mean_all_time(self, spent: Library) -> None:
        usage = read(spent, since="0001-01-01", until="9999-12-31")
        assert (usage.since, usage.until, usage.total.calls) == ("1971-01-01", "2099-12-31", 4)
        assert read(spent, until="0001-01-01").total.calls == 0

    @pytest.mark.parametrize("query", [{"range": "5x"}, {"since": "yesterday"}, {"until": "2026-02-31"}])
    def test_refuses_what_is_no_period(self, spent: Library, query: dict[str, str]) -> None:
        with pytest.raises(HTTPException) as refused:
            read(spent, **query)
        assert refused.value.status_code == 400

    def test_an_archive_without_calls_is_an_empty_page(self, tmp_path: Path) -> None:
        with Library(tmp_path / "none", agents_home=tmp_path, environ={}) as library:
            assert read(library, range="all").total.calls == 0


class TestCharts:
    def test_bars_fill_the_box_up_to_a_round_value(self) -> None:
        bars = [charts.Bar(name=str(value), parts={"cost": value}, title="") for value in (0.0, 30.0, 80.0)]
        chart = charts.bar_chart(bars)
        assert chart.top == 100
        assert [shape.height for shape in chart.shapes if shape.kind == "cost"] == [30, 80]
        assert all(0 <= shape.x <= charts.WIDTH and shape.y >= 0 for shape in chart.shapes)

    def test_parts_are_stacked_from_the_ground(self) -> None:
        chart = charts.bar_chart([charts.Bar(name="x", parts={"a": 4.0, "b": 6.0}, title="both")])
        lower, upper, hover = chart.shapes
        assert (lower.y + lower.height, upper.y + upper.height, upper.y) == (100, lower.y, 0)
        assert hover.title == "both"

    @pytest.mark.parametrize(("largest", "top"), [(0, 1), (0.03, 0.05), (1, 1), (1.1, 2), (99, 100), (2.4, 2.5)])
    def test_the_top_is_round(self, largest: float, top: float) -> None:
        assert charts.nice_top(largest) == pytest.approx(top)

    def test_a_calendar_has_a_cell_for_every_day_in_the_row_of_its_weekday(self) -> None:
        first, last = date(2026, 9, 3), date(2026, 9, 14)
        chart = charts.calendar({last: 1.0}, first, last, {last: "busy"})
        assert len(chart.shapes) == 12
        assert (chart.shapes[-1].title, chart.shapes[-1].kind) == ("busy", "level-4")
        assert chart.shapes[0].y > chart.shapes[-1].y  # Thursday, Monday

    def test_few_names_stand_below_many_bars_each_below_its_own(self) -> None:
        chart = charts.bar_chart([charts.Bar(name=str(n), parts={"cost": 1.0}, title="") for n in range(90)])
        assert [name.text for name in chart.names] == ["0", "13", "26", "39", "52", "65", "78"]
        bars = [shape for shape in chart.shapes if shape.kind == "cost"]
        for name in chart.names:
            bar = bars[int(name.text)]
            assert name.x == pytest.approx((bar.x + bar.width / 2) / charts.WIDTH * 100, abs=0.1)
        assert charts.bar_chart([]).names == []


class TestUsagePage:
    def test_has_charts_as_svg_and_a_table_under_each(self, site: WebServer) -> None:
        page = httpx.get(f"{site.url}/usage", params={"range": "all"}).text
        assert page.count("<svg") > 3
        for title in ("Cost by", "Tokens by", "Table of days", "Table of hours", "Projects", "Sessions that cost most"):
            assert title in page
        assert "style=" not in page

    def test_the_twin_has_the_same_numbers(self, site: WebServer) -> None:
        data = httpx.get(f"{site.url}/usage.json", params={"range": "all"}).json()
        assert data["total"]["calls"] == sum(bucket["amount"]["calls"] for bucket in data["buckets"])
        assert data["total"]["calls"] == sum(map(sum, data["hours"]))

    def test_tools_come_on_request(self, site: WebServer, open_page: Callable[..., Any]) -> None:
        """With scripts they are added to the page, without by a link; from then on they are kept."""
        period = "since=2026-01-02&until=2027-01-02"  # of this test alone
        plain = open_page(f"/usage?{period}", java_script_enabled=False)
        assert httpx.get(f"{site.url}/usage.json?{period}").json()["tools"] is None
        plain.get_by_role("link", name="Add up the calls of tools").click()
        assert plain.get_by_role("region", name="Tools").get_by_text("Bash", exact=True).is_visible()
        kept = httpx.get(f"{site.url}/usage.json?{period}").json()
        assert "Bash" in [tool["tool"] for tool in kept["tools"]]
        assert kept["tools_at"] is not None
        page = open_page("/usage?since=2026-01-03&until=2027-01-03")
        page.get_by_role("region", name="Tools").get_by_text("Bash", exact=True).wait_for()

    def test_a_project_is_a_filter_beside_the_others(self, site: WebServer) -> None:
        page = httpx.get(f"{site.url}/usage?range=all&by=month&source=claude-code").text
        links = re.findall(r'href="(/usage[^"]+)"><bdi>', page)
        assert "/usage?range=all&amp;source=claude-code&amp;project=%2Fhome%2Fdev%2Fshop&amp;by=month" in links

    def test_an_empty_period_says_so(self, site: WebServer) -> None:
        assert "No model calls" in httpx.get(f"{site.url}/usage?since=2001-01-01&until=2001-01-02").text

    def test_a_wrong_period_is_an_error_page(self, site: WebServer) -> None:
        assert httpx.get(f"{site.url}/usage?range=x").status_code == 400

    def test_a_browser_shows_it_without_violations(
        self, open_page: Callable[..., Any], violations: Callable[[Any], list[str]]
    ) -> None:
        page = open_page("/usage?range=all", color_scheme="dark")
        page.get_by_text("Table of days").click()
        assert page.get_by_role("region", name="Days").locator("tbody tr").count() > 0
        assert violations(page) == []

    def test_the_names_of_columns_stand_above_them(self, open_page: Callable[..., Any]) -> None:
        page = open_page("/usage?range=all")
        table = page.get_by_role("region", name="Sessions that cost most")
        begin = "cell => cell.getBoundingClientRect().left + parseFloat(getComputedStyle(cell).paddingLeft)"
        names, cells = table.locator("thead th:not(.number)"), table.locator("tbody tr").first.locator(":scope > *")
        for place in range(names.count()):
            assert cells.nth(place).evaluate(begin) == names.nth(place).evaluate(begin)
