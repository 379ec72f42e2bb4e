"""search_traces, search_spans, list_traces and get_trace against the contract, called directly."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backstory.archive import open_engine
from backstory.archive.base import Archive
from backstory.archive.spans import SpanRow
from backstory.config import Settings
from backstory.model import parse_time
from backstory.toolsets.traces.tools import toolset
from tests.engines import PrepareHome
from tests.traces_world import (
    MODELS,
    START,
    Call,
    caller,
    fill,
    hex_id,
    make_spans,
    matches,
    open_world,
    trace_id,
    value_of,
)

World = tuple[Archive, list[SpanRow]]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, prepare_home: PrepareHome) -> Iterator[World]:
    archive, spans = open_world(prepare_home(tmp_path_factory.mktemp("traces")))
    yield archive, spans
    archive.close()


@pytest.fixture(scope="module")
def call(world: World) -> Call:
    return caller(world[0])


def where(field: str, operator: str, value: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


TEXTS = st.sampled_from(["name", "status", "data.type", "data.model", "traceId", "id", "parentId"])
NUMBERS = st.sampled_from(["startTime", "endTime", "data.inputTokens", "data.outputTokens", "data.totalCost"])
PATHS = st.sampled_from(
    ["data.metadata.user_id", "data.metadata.tries", "data.metadata.deep.x", "data.attributes.http.method",
     "data.metadata.http.method", "data.attributes.cached", "data.metadata.nothing"]
)  # fmt: skip
WORDS = st.sampled_from(
    ["Bash", "ash", "STRASSE", "straße", "error", "success", "GENERATION", "gen", "opus", *MODELS, "user-3", "USER",
     "get", "GET", trace_id(3), hex_id(301), "0", "", "%", "_", "\0", "😀"]
)  # fmt: skip
FIGURES = st.one_of(
    st.integers(-5, 6000), st.sampled_from([START, START + 5010, 10**30, -(10**30)]), st.floats(-1, 5000, width=32)
)
FILTERS = st.one_of(
    st.builds(where, TEXTS, st.sampled_from(["eq", "ne", "contains"]), WORDS),
    st.builds(where, NUMBERS, st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte"]), FIGURES),
    st.builds(where, PATHS, st.sampled_from(["eq", "ne"]), st.one_of(WORDS, FIGURES, st.booleans())),
    st.builds(where, PATHS, st.sampled_from(["gt", "gte", "lt", "lte"]), FIGURES),
    st.builds(where, PATHS, st.just("contains"), WORDS),
)
SORTS = st.one_of(TEXTS, NUMBERS, PATHS)


class TestFilters:
    """Every operator on every kind of field finds what a look at each span finds."""

    @given(filters=st.lists(FILTERS, max_size=3), sort=SORTS, descending=st.booleans(), limit=st.integers(1, 200))
    @example(filters=[], sort="id", descending=False, limit=100)
    @example(filters=[where("name", "contains", "STRASSE")], sort="name", descending=False, limit=200)
    def test_as_the_slow_way(
        self, world: World, call: Call, filters: list[dict[str, Any]], sort: str, descending: bool, limit: int
    ) -> None:
        expected = {
            (span.trace, hex_id(span.id))
            for span in world[1]
            if all(matches(span, **_given(entry)) for entry in filters)
        }
        found: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        while True:
            order = "desc" if descending else "asc"
            page = call("search_spans", filters=filters, sortBy=sort, sortOrder=order, limit=limit, **cursor)
            assert page["total"] == len(expected)
            assert len(page["items"]) <= limit
            found += page["items"]
            assert page["hasMore"] == (len(found) < len(expected)) == ("cursor" in page)
            if not page["hasMore"]:
                break
            cursor = {"cursor": page["cursor"]}
        assert len(found) == len(expected)
        assert {(span["traceId"], span["id"]) for span in found} == expected
        _check_order(world[1], found, sort, descending)

    @given(filters=st.lists(FILTERS, min_size=1, max_size=2))
    def test_data_of_any_span(self, world: World, call: Call, filters: list[dict[str, Any]]) -> None:
        filters = [entry for entry in filters if entry["field"].startswith("data.")]
        expected = {span.trace for span in world[1]}
        for entry in filters:
            expected &= {span.trace for span in world[1] if matches(span, **_given(entry))}
        page = call("search_traces", filters=filters, limit=200)
        assert {trace["id"] for trace in page["items"]} == expected

    def test_times_as_text(self, call: Call) -> None:
        page = call("search_traces", filters=[where("createdAt", "gte", "2026-01-01T00:00:30+00:00")], limit=200)
        assert {parse_time(trace["createdAt"]) for trace in page["items"]} == {START + n * 1000 for n in range(30, 40)}
        assert call("search_traces", filters=[where("createdAt", "contains", "00:00:07.000z")])["total"] == 1
        assert call("search_spans", filters=[where("startTime", "eq", "2026-01-01T00:00:05Z")])["total"] == 1

    @pytest.mark.parametrize(
        ("operator", "time", "total"),
        [
            ("gt", "1970-01-01T00:00:00Z", 40),
            ("gte", "0001-01-01", 40),
            ("lt", "9999-12-31T23:59:59.999999-12:00", 40),
            ("eq", "1999-12-31T00:00:00Z", 0),
            ("lt", "2026-01-01T00:00:00.0004Z", 1),
            ("gte", "2026-01-01T00:00:00.0004Z", 39),
            ("eq", "2026-01-01T00:00:00.0004Z", 0),
        ],
    )
    def test_times_of_any_year_and_fraction(self, call: Call, operator: str, time: str, total: int) -> None:
        assert call("search_traces", filters=[where("createdAt", operator, time)])["total"] == total

    def test_trace_numbers(self, call: Call) -> None:
        traces = call("search_traces", limit=200)["items"]
        for field in ("latency", "totalCost", "totalTokens"):
            values = sorted(trace[field] for trace in traces if field in trace)
            middle = values[len(values) // 2]
            page = call("search_traces", filters=[where(field, "gt", middle)], limit=200)
            assert page["total"] == sum(value > middle for value in values)


def _given(entry: dict[str, Any]) -> dict[str, Any]:
    return {"field": entry["field"], "operator": entry["operator"], "value": entry["value"]}


def _check_order(spans: list[SpanRow], found: list[dict[str, Any]], sort: str, descending: bool) -> None:
    by_id = {(span.trace, hex_id(span.id)): span for span in spans}
    values = [value_of(by_id[span["traceId"], span["id"]], sort) for span in found]
    present = [value for value in values if value is not None]
    assert values[: len(present)] == present, "what has no value comes last"
    ranked = [value.encode() if isinstance(value, str) else value for value in present]
    assert ranked == sorted(ranked, reverse=descending)


class TestErrors:
    """A question that makes no sense is refused with the code, the field and what would be right."""

    def test_unknown_field(self, call: Call) -> None:
        for tool in ["search_traces", "search_spans"]:
            error = call(tool, filters=[where("statuss", "eq", "x")])
            assert error["error"] == "Invalid filter: unknown field 'statuss'"
            assert error["code"] == "INVALID_QUERY"
            assert error["details"]["field"] == "statuss"
            assert {"id", "name", "status"} <= set(error["details"]["validFields"])
            assert error["details"]["nearest"] == "status"

    def test_the_nearest_name_is_a_valid_one(self, call: Call) -> None:
        for field in ("startTime", "endTime", "parentId", "traceId", "model", "data.modle", "latncy"):
            found = call("search_traces", filters=[where(field, "eq", "x")])["details"]
            nearest = found.get("nearest", "id")
            assert nearest in found["validFields"] or nearest.startswith("data."), field
        assert call("search_traces", filters=[where("model", "eq", "x")])["details"]["nearest"] == "data.model"

    def test_no_such_path(self, call: Call) -> None:
        for field in ["data.bogus", "data.metadata.", "data", "spans", "data.input", ""]:
            for tool in ("search_spans", "search_traces"):
                assert call(tool, filters=[where(field, "eq", "x")])["code"] == "INVALID_QUERY"

    def test_unknown_sort(self, call: Call) -> None:
        for tool in ["search_traces", "search_spans"]:
            error = call(tool, sortBy="latencyy")
            assert (error["code"], error["details"]["field"]) == ("INVALID_QUERY", "latencyy")
            assert error["error"].endswith("unknown field 'latencyy'")

    def test_type_clash(self, call: Call) -> None:
        for field, operator, value in [
            ("name", "gt", 5),
            ("name", "gt", "a"),
            ("name", "eq", 5),
            ("status", "eq", True),
            ("data.inputTokens", "eq", "5"),
            ("data.inputTokens", "gt", True),
            ("data.totalCost", "contains", "1"),
            ("startTime", "gt", "yesterday"),
            ("startTime", "contains", "17"),
            ("name", "contains", 5),
            ("data.metadata.user_id", "gt", "a"),
            ("data.metadata.user_id", "contains", 1),
        ]:
            error = call("search_spans", filters=[where(field, operator, value)])
            assert error["code"] == "INVALID_QUERY"
            assert error["details"]["field"] == field

    def test_bad_arguments(self, call: Call) -> None:
        for tool, arguments, field in [
            ("list_traces", {"limit": 0}, "limit"),
            ("list_traces", {"limit": 201}, "limit"),
            ("list_traces", {"limit": 0.9}, "limit"),
            ("list_traces", {"limit": 200.5}, "limit"),
            ("list_traces", {"limit": "5"}, "limit"),
            ("list_traces", {"limit": None}, "limit"),
            ("list_traces", {"bogus": 1}, "bogus"),
            ("search_traces", {"sortOrder": "up"}, "sortOrder"),
            ("search_traces", {"filters": {}}, "filters"),
            ("search_spans", {"filters": [{"field": "name", "operator": "is", "value": 1}]}, "filters[0].operator"),
            ("search_spans", {"filters": [{"field": "name", "operator": "eq"}]}, "filters[0].value"),
            ("search_spans", {"filters": [{"field": "name", "operator": "eq", "value": None}]}, "filters[0].value"),
            ("search_spans", {"traceId": 7}, "traceId"),
            ("get_trace", {}, "traceId"),
            ("get_trace", {"traceId": ""}, "traceId"),
        ]:
            error = call(tool, **arguments)
            assert error["code"] == "INVALID_QUERY"
            assert error["details"]["field"] == field

    def test_fractional_limits_are_rounded_down(self, call: Call) -> None:
        assert call("list_traces", limit=2.9)["count"] == 2
        assert len(call("search_traces", limit=1.5)["items"]) == 1
        assert len(call("search_spans", limit=10.5)["items"]) == 10

    @pytest.mark.parametrize(
        ("arguments", "field", "nearest"),
        [
            ({"sortOrder": "descending"}, "sortOrder", "desc"),
            ({"filters": [where("name", "equals", "x")]}, "filters[0].operator", "eq"),
            ({"filters": [where("name", "eq", "x"), where("name", "includes", "x")]}, "filters[1].operator", None),
        ],
    )
    def test_a_wrong_choice_is_answered_with_the_choices(
        self, call: Call, arguments: dict[str, Any], field: str, nearest: str | None
    ) -> None:
        error = call("search_spans", **arguments)
        choices = ["asc", "desc"] if field == "sortOrder" else ["contains", "eq", "gt", "gte", "lt", "lte", "ne"]
        assert error["details"] == {"field": field, "validValues": choices} | ({"nearest": nearest} if nearest else {})
        assert f"{field} must be one of {', '.join(choices)}" in error["error"]

    def test_not_found(self, call: Call) -> None:
        expected = {"error": "Trace not found", "code": "NOT_FOUND", "traceId": "x", "details": {"traceId": "x"}}
        assert call("get_trace", traceId="x") == expected

    def test_a_broken_store_cannot_be_reached(self, tmp_path: Path) -> None:
        archive = open_engine("local", tmp_path)
        fill(archive, make_spans(1))
        archive.spans.close()
        (tmp_path / "traces.db").write_bytes(b"not a database" * 1000)
        for leftover in tmp_path.glob("traces.db-*"):
            leftover.unlink()
        assert caller(archive)("list_traces")["code"] == "CONNECTION_FAILED"
        archive.close()

    def test_values_are_redacted_before_they_are_cut(self, call: Call) -> None:
        token = "SG." + "aBcDeFgHiJkLmNoPqRsTuv." + "q1W2" * 11
        error = call("search_spans", filters=[where("startTime", "gt", f"{'x' * 60} {token}")])
        assert error["code"] == "INVALID_QUERY"
        assert "SG.aB" not in json.dumps(error)
        error = call("search_spans", filters=[where("data.metadata." + f"{'x' * 60} {token}" + ".a" * 600, "eq", 1)])
        assert error["code"] == "INVALID_QUERY"
        assert "SG.aB" not in json.dumps(error)


class TestPages:
    """Pages neither repeat nor skip, cursors belong to their question, totals stop at ten thousand."""

    def test_broken_cursor(self, call: Call) -> None:
        for cursor in [
            "",
            "!",
            "eyJvZmZzZXQiOjEwfQ==",
            base64.b64encode(b"[]").decode(),
            "A" * 20_000,
            base64.b64encode(b"{}").decode(),
        ]:
            assert call("search_spans", cursor=cursor)["code"] == "INVALID_QUERY"

    def test_foreign_cursor(self, call: Call) -> None:
        cursor = call("search_spans", limit=1)["cursor"]
        assert "offset" in json.loads(base64.b64decode(cursor))
        assert "items" in call("search_spans", limit=9, cursor=cursor)
        assert call("search_spans", cursor=cursor, sortOrder="asc")["code"] == "INVALID_QUERY"
        assert call("search_spans", cursor=cursor, filters=[where("name", "eq", "Bash")])["code"] == "INVALID_QUERY"
        assert call("search_traces", cursor=cursor)["code"] == "INVALID_QUERY"

    def test_inserts_do_not_shift(self, tmp_path: Path) -> None:
        archive = open_engine("local", tmp_path)
        spans = make_spans(20)
        fill(archive, spans[:60])
        call = caller(archive)
        first = call("search_spans", limit=30)
        fill(archive, spans[60:])  # all of them later
        second = call("search_spans", limit=30, cursor=first["cursor"])
        seen = [span["startTime"] for span in first["items"] + second["items"]]
        assert seen == sorted((span.start for span in spans[:60]), reverse=True)
        assert not second["hasMore"]
        archive.close()

    def test_past_the_end(self, call: Call) -> None:
        assert call("search_spans", traceId="no such trace") == {"items": [], "total": 0, "hasMore": False}

    def test_ten_thousand(self, tmp_path: Path) -> None:
        """Exactly 10,000 are counted, more are not, and pages go on all the same: with a smaller limit, the next test
        reads them to their end."""
        archive = open_engine("local", tmp_path)
        rows = [SpanRow(trace="t", id=n + 1, name="x", start=START + n // 3, end=START) for n in range(10_001)]
        fill(archive, rows[:10_000])
        call = caller(archive)
        assert call("search_spans", limit=1)["total"] == 10_000
        fill(archive, rows[10_000:])
        seen: list[str] = []
        cursor: dict[str, str] = {}
        for _ in range(3):
            page = call("search_spans", limit=200, filters=[where("name", "eq", "x")], **cursor)
            assert "total" not in page
            assert page["hasMore"]
            seen += [span["id"] for span in page["items"]]
            cursor = {"cursor": page["cursor"]}
        assert len(seen) == len(set(seen)) == 600
        archive.close()

    def test_missing_values_are_paged_too(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also where more than are counted match."""
        monkeypatch.setattr("backstory.archive.local.spans.rows.COUNT_LIMIT", 1_000)
        archive = open_engine("local", tmp_path)
        rows = [SpanRow(trace="t", id=n + 1, name="x", start=n, cost=n / 7 if n % 2 else None) for n in range(1_100)]
        fill(archive, rows)
        call = caller(archive)
        for order in ("asc", "desc"):
            seen: list[Any] = []
            cursor: dict[str, str] = {}
            more = True
            while more:
                page = call("search_spans", sortBy="data.totalCost", sortOrder=order, limit=200, **cursor)
                seen += [span["data"].get("totalCost") for span in page["items"]]
                more = page["hasMore"]
                cursor = {"cursor": page["cursor"]} if more else {}
            costs = [cost for cost in seen if cost is not None]
            assert len(seen) == 1_100
            assert costs == sorted(costs, reverse=order == "desc")
            assert seen[len(costs) :] == [None] * (len(seen) - len(costs))
        archive.close()


class TestTime:
    """A search that takes too long answers with what it has, or says that it has nothing."""

    def test_timeout(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("backstory.archive.local.spans.rows._STEPS", 10)  # there is little to look at
        error = caller(world[0], seconds=-1.0)(
            "search_spans", filters=[where("data.metadata.user_id", "contains", "q")]
        )
        assert error["code"] == "TIMEOUT"

    @pytest.mark.parametrize("value", ["user-3", "nobody"])
    def test_no_time_to_count(self, world: World, call: Call, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        """The total of a single page is known all the same."""
        filters = [where("data.metadata.user_id", "eq", value)]
        expected = call("search_spans", filters=filters, limit=200)
        monkeypatch.setattr("backstory.archive.local.spans.rows._STEPS", 10)
        monkeypatch.setattr("backstory.archive.local.spans.rows._COUNT_SHARE", -1.0)
        assert call("search_spans", filters=filters, limit=200) == expected
        assert "total" in expected

    def test_partial(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        archive = open_engine("local", tmp_path)
        fill(archive, [SpanRow(trace="t", id=n + 1, name="x", start=n) for n in range(3_000)])
        monkeypatch.setattr("backstory.archive.local.spans.rows._STEPS", 200)
        monkeypatch.setattr("backstory.archive.local.spans.rows.COUNT_LIMIT", 5)
        assert "warnings" not in caller(archive)("search_spans", limit=200)
        clock = iter([0.0] * 3 + [1e9] * 1_000_000)  # the time is up while the page is being read
        monkeypatch.setattr("backstory.archive.local.spans.rows.time.monotonic", lambda: next(clock))
        page = caller(archive)("search_spans", limit=200)
        monkeypatch.undo()
        assert 0 < len(page["items"]) < 200
        assert page["warnings"][0].startswith("PARTIAL_FAILURE")
        assert page["hasMore"]
        assert "cursor" in page
        archive.close()


class TestAnswers:
    """Shapes: closed inputs, JSON indented by two, the same object as text and as data, valid against the schema."""

    def test_text_and_data(self, world: World) -> None:
        for tool in toolset(lambda: world[0], Settings()).tools:
            assert tool.input_schema["additionalProperties"] is False
            assert tool.read_only
            arguments = {"traceId": trace_id(0)} if tool.name == "get_trace" else {"limit": 3}
            for given_arguments in (arguments, {"nonsense": 1}):
                reply = tool.handler(given_arguments)
                assert json.loads(reply.text) == reply.data
                assert reply.text == json.dumps(reply.data, indent=2, ensure_ascii=False)
                jsonschema.Draft202012Validator(tool.output_schema or {}).validate(reply.data)
                assert reply.is_error == ("nonsense" in given_arguments)

    def test_trace(self, world: World, call: Call) -> None:
        trace = call("get_trace", traceId=trace_id(0))["trace"]
        spans = [span for span in world[1] if span.trace == trace_id(0)]
        assert [span["id"] for span in trace["spans"]] == [hex_id(span.id) for span in spans]
        assert trace["spans"][0]["parentId"] is None
        assert all(span["traceId"] == trace_id(0) for span in trace["spans"])
        assert trace["spans"][1]["data"]["metadata"]["deep"] == {"x": 1}

    def test_ids_in_upper_case(self, call: Call) -> None:
        """Ids of OpenTelemetry are hexadecimal numbers, which some exporters and people write in upper case."""
        id, span = trace_id(9), hex_id(901)
        upper = id.upper()
        assert upper != id
        assert call("get_trace", traceId=upper) == call("get_trace", traceId=id)
        assert call("search_spans", traceId=upper)["total"] == 6
        assert call("search_spans", filters=[where("traceId", "eq", upper)])["total"] == 6
        assert call("search_spans", filters=[where("traceId", "ne", upper)])["total"] == 39 * 6
        assert [trace["id"] for trace in call("search_traces", filters=[where("id", "eq", upper)])["items"]] == [id]
        assert call("search_traces", filters=[where("id", "ne", upper)])["total"] == 39
        assert call("search_spans", filters=[where("id", "eq", str(span).upper())])["total"] == 1
        assert call("get_trace", traceId="ABC")["traceId"] == "ABC"

    def test_list(self, call: Call) -> None:
        listed = call("list_traces", limit=5)
        assert listed["count"] == len(listed["traces"]) == 5
        times = [trace["createdAt"] for trace in listed["traces"]]
        assert times == sorted(times, reverse=True)
        assert call("list_traces", sessionId="nobody") == {"traces": [], "count": 0}

    def test_list_by_origin(self, tmp_path: Path) -> None:
        archive = open_engine("local", tmp_path)
        spans = make_spans(4)
        fill(archive, spans[:6], session="otel/mine", dataset_run="run-1")
        fill(archive, spans[6:])
        call = caller(archive)
        assert [trace["id"] for trace in call("list_traces", sessionId="mine")["traces"]] == [trace_id(0)]
        session = call("get_trace", traceId=trace_id(0))["trace"]["spans"][0]["data"]["metadata"]["sessionId"]
        assert call("list_traces", sessionId=session)["count"] == 1
        assert call("list_traces", datasetRunId="run-1")["count"] == 1
        assert call("list_traces", datasetRunId="run-1", sessionId="other")["count"] == 0
        assert call("search_spans", filters=[where("data.metadata.sessionId", "eq", "mine")])["total"] == 6
        archive.close()

    def test_secrets_stay(self, tmp_path: Path) -> None:
        archive = open_engine("local", tmp_path)
        span = SpanRow(
            trace="t", id=1, name="x", start=START, input={"password": "hunter2-Ab3!xyz"}, output="a\x1b[31mb"
        )
        fill(archive, [span, *make_spans(3)])
        data = caller(archive)("get_trace", traceId="t")["trace"]["spans"][0]["data"]
        assert data["input"] == {"password": "[redacted:password]"}
        assert data["output"] == "ab"
        archive.close()
