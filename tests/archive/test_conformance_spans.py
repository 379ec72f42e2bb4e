"""The behaviour of the spans of every engine, written against `archive.spans` alone."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from backstory.archive.base import Archive, Batch
from backstory.archive.changes import TurnWriter
from backstory.archive.spans import Condition, Found, Origin, Position, SpanRow, Spans, TraceQuery, UsageDetail, Window
from backstory.model import session_id, turn_id
from tests.archive.test_conformance import ANSWER, CALL, KEY, PROMPT, RESULT, batch, session, talk, write
from tests.traces_world import START, make_spans, matches, trace_id, value_of

HOUR = 3_600_000


def query(*conditions: tuple[str, Any, Any], sort: str = "startTime", **options: Any) -> TraceQuery:
    return TraceQuery(
        conditions=tuple(Condition(*condition) for condition in conditions), sort=sort, **{"limit": 200, **options}
    )


def span(number: int, trace: str = "t", **fields: Any) -> SpanRow:
    return SpanRow(**{"trace": trace, "id": number, "name": "x", "start": START + number, "end": START + 9, **fields})


def ids(found: Found[SpanRow]) -> list[int]:
    return [row.id for row in found.rows]


class TestProtocol:
    def test_it_is_small(self) -> None:
        """An engine implements seven methods for traces, and three for the projection of its turns."""
        for protocol, most in ((Spans, 7), (TurnWriter, 3)):
            assert len([name for name in vars(protocol) if not name.startswith("_")]) <= most


class TestPutting:
    """Spans come back as they were put, each under its trace and id."""

    def test_every_field(self, engine: Archive) -> None:
        whole = span(
            2,
            parent=1,
            name="chat m",
            type="GENERATION",
            status="error",
            model="m",
            input_tokens=10,
            output_tokens=3,
            cache_read_tokens=4,
            cache_write_tokens=3,
            cache_write_1h_tokens=1,
            reasoning_tokens=2,
            cost=0.25,
            cost_reported=True,
            stop_reason="end",
            exit_code=1,
            waiting=7,
            call="r1",
            alias="by tokens",
            logged=True,
            metadata={"user": "ann", "deep": {"x": [1]}},
            attributes={"a.b": 1.5, "flag": True},
            input=[{"role": "user", "content": "hi"}],
            output="hello",
            tool_calls=[{"name": "Bash"}],
        )
        engine.spans.put([span(1), whole], {"t": Origin(session="codex/s", source="codex", project="/p")})
        trace, (first, second) = engine.spans.trace("t") or (None, [])
        assert trace is not None
        assert (trace.session, trace.source, trace.project, trace.status) == ("codex/s", "codex", "/p", "error")
        assert (trace.tokens, trace.cost, trace.start, trace.latency) == (13, 0.25, START + 1, 8)
        assert second.origin == Origin(session="codex/s", source="codex", project="/p")
        assert msgspec.structs.replace(second, origin=Origin()) == whole
        assert (first.id, first.parent) == (1, None)

    def test_again_takes_the_place_of_what_was_known(self, engine: Archive) -> None:
        engine.spans.put([span(1, attributes={"user": "ann"}, model="m", input_tokens=5), span(2)], {})
        engine.spans.put([span(1, name="y", attributes={"user": "bob"})], {})
        trace, spans = engine.spans.trace("t") or (None, [])
        assert trace is not None
        assert (trace.tokens, [found.name for found in spans]) == (None, ["y", "x"])
        assert spans[0].model is None
        for user, expected in (("ann", []), ("bob", [1])):
            condition = ("data.attributes.user", "eq", user)
            assert ids(engine.spans.spans(query(condition), chars=10)) == expected

    def test_an_origin_fills_gaps(self, engine: Archive) -> None:
        engine.spans.put([span(1)], {"t": Origin(session="codex/s")})
        engine.spans.put([span(2)], {"t": Origin(name="a name", project="/p")})
        engine.spans.put([span(3)], {})
        trace, _ = engine.spans.trace("t") or (None, [])
        assert trace is not None
        assert (trace.name, trace.session, trace.project) == ("a name", "codex/s", "/p")

    def test_an_unknown_parent_makes_a_root(self, engine: Archive) -> None:
        engine.spans.put([span(2, parent=1)], {})
        _, (found,) = engine.spans.trace("t") or (None, [])
        assert found.parent is None
        engine.spans.put([span(1)], {})
        _, spans = engine.spans.trace("t") or (None, [])
        assert [found.parent for found in spans] == [None, 1]

    def test_an_unknown_parent_sorts_as_none(self, engine: Archive) -> None:
        """The order of a page is that of the values it shows: what has none comes last."""
        engine.spans.put([span(5, parent=0x99), span(6), span(7, parent=5), span(8, parent=6)], {})
        for descending, expected in ((False, [7, 8]), (True, [8, 7])):
            found = engine.spans.spans(query(sort="parentId", descending=descending), chars=10)
            assert ids(found)[:2] == expected
            assert sorted(ids(found)[2:]) == [5, 6]

    def test_status_and_latency(self, engine: Archive) -> None:
        """No end is pending; an error of any span is one of the trace."""
        engine.spans.put([span(1, "open", end=None), span(2, "open", parent=1)], {})
        engine.spans.put([span(1, "failed"), span(2, "failed", parent=1, status="error")], {})
        found = engine.spans.traces(query(sort="createdAt"))
        by_id = {row.id: (row.status, row.latency) for row in found.rows}
        assert by_id == {"open": ("pending", None), "failed": ("error", 8)}

    def test_nothing_is_known_of_another_trace(self, engine: Archive) -> None:
        assert engine.spans.trace("nothing") is None
        assert engine.spans.traces(query(sort="createdAt")).rows == []
        engine.spans.check()

    def test_many_threads(self, engine: Archive) -> None:
        def put(number: int) -> None:
            engine.spans.put([span(number * 100 + place, f"t{number}") for place in range(1, 21)], {})

        threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert engine.spans.spans(query(), chars=10).total == 80


class TestSearching:
    """Any filter, any sort order, page by page."""

    FILTERS = (
        ("name", "eq", "Bash"),
        ("name", "contains", "STRASSE"),
        ("status", "ne", "success"),
        ("startTime", "gte", START + 5_000),
        ("endTime", "lt", START + 5_000),
        ("traceId", "eq", trace_id(3)),
        ("id", "eq", f"{301:016x}"),
        ("parentId", "eq", f"{301:016x}"),
        ("data.type", "eq", "GENERATION"),
        ("data.model", "ne", "gpt-5.2"),
        ("data.inputTokens", "gt", 2_000),
        ("data.totalCost", "lte", 0.5),
        ("data.metadata.user_id", "eq", "user-3"),
        ("data.metadata.tries", "gte", 2),
        ("data.metadata.deep.x", "eq", 4),
        ("data.attributes.http.method", "contains", "p"),
        ("data.attributes.cached", "eq", True),
        ("data.attributes.nothing", "ne", 1),
    )

    def test_filters(self, engine: Archive) -> None:
        spans = make_spans(20)
        engine.spans.put(spans, {})
        for condition in self.FILTERS:
            found = engine.spans.spans(query(condition, descending=False), chars=10)
            expected = sorted((row.start, row.id) for row in spans if matches(row, *condition))
            assert [(row.start, row.id) for row in found.rows] == expected, condition
            assert (found.total, found.more, found.complete) == (len(expected), False, True)
        both = engine.spans.spans(query(self.FILTERS[0], self.FILTERS[2]), chars=10)
        assert both.total == sum(row.name == "Bash" and row.status != "success" for row in spans)

    def test_traces_by_any_of_their_spans(self, engine: Archive) -> None:
        spans = make_spans(20)
        engine.spans.put(spans, {})
        found = engine.spans.traces(query(("data.model", "eq", "gpt-5.2"), sort="createdAt"))
        assert {row.id for row in found.rows} == {row.trace for row in spans if row.model == "gpt-5.2"}
        engine.spans.put([span(1, "own")], {"own": Origin(session="codex/s", dataset_run="run", name="a name")})
        for condition in (
            ("sessionId", "eq", session_id("codex/s")),
            ("sessionId", "eq", "s"),
            ("datasetRunId", "eq", "run"),
            ("name", "contains", "NAME"),
            ("id", "eq", "own"),
            ("latency", "eq", 8),
        ):
            assert [row.id for row in engine.spans.traces(query(condition, sort="createdAt")).rows] == ["own"]

    @pytest.mark.parametrize(
        "sort", ["startTime", "name", "data.totalCost", "data.metadata.tries", "data.attributes.cached"]
    )
    @pytest.mark.parametrize("descending", [True, False])
    def test_pages(self, engine: Archive, sort: str, descending: bool) -> None:
        """In order, those without a value last; a span that is put meanwhile shifts nothing."""
        spans = make_spans(12)
        engine.spans.put(spans, {})
        pages: list[SpanRow] = []
        after: Position | None = None
        while True:
            found = engine.spans.spans(query(sort=sort, descending=descending, limit=10, after=after), chars=10)
            pages += found.rows
            start = START - HOUR if descending else START + HOUR
            engine.spans.put([span(10_000 + len(pages), "late", start=start)], {})
            if len(pages) >= len(spans) or not found.more:
                break
            after = found.last
        known = [row for row in pages if row.trace != "late"]
        assert {row.id for row in known} == {row.id for row in spans}
        values = [value_of(row, sort) for row in known]
        present = [value for value in values if value is not None]
        assert present == sorted(present, reverse=descending)
        assert values[len(present) :] == [None] * (len(values) - len(present))

    def test_excerpts(self, engine: Archive) -> None:
        engine.spans.put([span(1, input="i" * 100, output=["o" * 100], attributes={"a": "b" * 100})], {})
        (found,) = engine.spans.spans(query(), chars=10).rows
        assert (found.input, found.attributes, found.cut) == ("i" * 10 + "…", {"a": "b" * 10 + "…"}, True)
        assert isinstance(found.output, str)
        assert len(found.output) == 11


class TestTotals:
    """A call counts once, however often it is reported."""

    def put(self, engine: Archive) -> None:
        usage: dict[str, Any] = {"type": "GENERATION", "model": "m", "input_tokens": 10, "output_tokens": 5}
        spans = [
            span(1, input_tokens=20, output_tokens=10),  # the sum of what is below it
            span(2, parent=1, call="r1", cost=0.5, **usage),
            span(3, parent=1, call="r2", **usage),
            span(4, "logs", call="r1", logged=True, **usage),
            span(5, "day after", start=START + 24 * HOUR, end=None, cost=1.0, **usage),
        ]
        engine.spans.put(spans, {"t": Origin(session="codex/s", source="codex", project="/home/Dev")})

    def test_usage(self, engine: Archive) -> None:
        self.put(engine)
        lines = engine.spans.usage(Window())
        assert sum(line.calls for line in lines) == 3
        assert sum(line.input_tokens + line.output_tokens for line in lines) == 45
        assert sum(line.unpriced for line in lines) == 1
        assert sum(line.cost or 0 for line in lines) == 1.5

    @pytest.mark.parametrize(
        ("window", "calls"),
        [
            (Window(since=START + HOUR), 1),
            (Window(until=START + HOUR), 2),
            (Window(source="codex"), 2),
            (Window(source="other"), 0),
            (Window(project="HOME/dev"), 2),
        ],
    )
    def test_windows(self, engine: Archive, window: Window, calls: int) -> None:
        self.put(engine)
        assert sum(line.calls for line in engine.spans.usage(window)) == calls

    @pytest.mark.parametrize(("detail", "lines"), [("day", 2), ("session", 2), ("quarter", 2)])
    def test_details(self, engine: Archive, detail: UsageDetail, lines: int) -> None:
        self.put(engine)
        found = engine.spans.usage(Window(), detail)
        assert len(found) == lines
        assert {line.session for line in found} == ({None} if detail == "day" else {"codex/s", None})

    def test_stats(self, engine: Archive) -> None:
        self.put(engine)
        (by_name,) = engine.spans.stats(Window(), "name")
        assert (by_name.name, by_name.count, by_name.errors, by_name.p50, by_name.p95) == ("x", 5, 0, 6, 8)
        (by_model,) = engine.spans.stats(Window(), "model")
        assert (by_model.name, by_model.count, by_model.cost) == ("m", 4, 1.5)
        assert engine.spans.stats(Window(), "tool") == []


class TestTurns:
    """The traces of turns follow the record."""

    def outputs(self, engine: Archive, turn: int = 1) -> list[Any]:
        _, spans = engine.spans.trace(turn_id(KEY, turn)) or (None, [])
        return [found.output for found in spans]

    def test_a_turn_is_a_trace(self, engine: Archive) -> None:
        write(engine, batch(session(cwd="/home/dev"), talk(), talk()))
        trace, spans = engine.spans.trace(turn_id(KEY, 2)) or (None, [])
        assert trace is not None
        assert (trace.name, trace.session, trace.source) == ("find the needle", KEY, "codex")
        assert trace.project == "/home/dev"
        root, *rest = spans
        assert (root.name, root.input, root.output, root.status) == ("turn", "find the needle", "found it", "success")
        assert {(found.name, found.type, found.parent) for found in rest} == {
            ("chat", "GENERATION", root.id),
            ("Bash", "SPAN", root.id),
        }
        (tool,) = (found for found in rest if found.name == "Bash")
        assert (tool.input, tool.output) == ({"command": "grep needle"}, "needle is here")
        assert tool.event == batch(session(), talk(), talk()).events[5].uid
        (stats,) = engine.spans.stats(Window(), "tool")
        assert stats.count == 2
        for window in (Window(), Window(project="HOME/dev", source="codex")):
            (sums,) = engine.spans.stats(window, "tool", latencies=False)
            assert msgspec.structs.replace(sums, p50=stats.p50, p95=stats.p95) == stats

    def test_a_replaced_event(self, engine: Archive) -> None:
        made = batch(session(), talk())
        write(engine, made)
        answer = msgspec.structs.replace(made.events[3], text="not found")
        failed = msgspec.structs.replace(made.events[2], text="no such file", failed=True)
        write(engine, Batch(sessions=made.sessions, turns=made.turns, replaced=[failed, answer]))
        trace, _ = engine.spans.trace(turn_id(KEY, 1)) or (None, [])
        assert trace is not None
        assert trace.status == "error"
        assert {"not found", "no such file"} <= set(self.outputs(engine))
        assert engine.spans.traces(query(sort="createdAt")).total == 1

    def test_a_removed_session(self, engine: Archive) -> None:
        """Its traces go, and come again with it."""
        made = batch(session(), talk())
        write(engine, made, batch(session("codex/other"), talk()))
        write(engine, Batch(removed=[KEY]))
        assert [row.session for row in engine.spans.traces(query(sort="createdAt")).rows] == ["codex/other"]
        write(engine, made)
        assert engine.spans.traces(query(sort="createdAt")).total == 2
        assert self.outputs(engine)[0] == "found it"

    def test_a_forgotten_session(self, engine: Archive) -> None:
        """With its subagents, and with the telemetry of it, which is not taken again."""
        sent = [span(1, "sent")]
        write(engine, batch(session(), talk()), batch(session("codex/child", parent=KEY, parent_call="call"), talk()))
        engine.spans.put(sent, {"sent": Origin(session=KEY)})
        engine.forget(KEY)
        write(engine)
        engine.spans.put(sent, {"sent": Origin(session=KEY)})
        assert engine.spans.traces(query(sort="createdAt")).rows == []
        assert engine.spans.spans(query(), chars=10).rows == []

    @pytest.mark.parametrize("child_first", [True, False])
    def test_a_subagent_lies_below_its_call(self, engine: Archive, child_first: bool) -> None:
        child = session("codex/child", parent=KEY, parent_call="call", title="explore")
        batches = [batch(session(), talk()), batch(child, [(PROMPT, "look"), (ANSWER, "ok")])]
        for each in reversed(batches) if child_first else batches:
            write(engine, each)
        (trace,) = engine.spans.traces(query(sort="createdAt")).rows
        _, spans = engine.spans.trace(trace.id) or (None, [])
        by_name = {found.name: found for found in spans}
        assert trace.id == turn_id(KEY, 1)
        assert by_name["explore"].parent == by_name["Bash"].id

    def test_a_subagent_moves_with_its_call(self, engine: Archive) -> None:
        """Where the session that started it is removed, it has a trace of its own until that is read again."""
        parent = batch(session(), talk())
        child = batch(session("codex/child", parent=KEY, parent_call="call"), [(PROMPT, "a"), (ANSWER, "b")], talk())
        write(engine, parent, child)
        write(engine, Batch(removed=[KEY]))
        traces = {row.id for row in engine.spans.traces(query(sort="createdAt")).rows}
        assert traces == {turn_id("codex/child", 1), turn_id("codex/child", 2)}
        write(engine, batch(session(), [(PROMPT, "first"), (ANSWER, "nothing")], talk()))
        traces = {row.id for row in engine.spans.traces(query(sort="createdAt")).rows}
        assert traces == {turn_id(KEY, 1), turn_id(KEY, 2)}

    def test_a_received_span_of_the_same_call_is_shown_once(self, engine: Archive) -> None:
        write(engine, batch(session(), talk()))
        sent = span(1, "sent", name="execute_tool", call="call", attributes={"user": "ann"}, start=START, end=START + 5)
        engine.spans.put([sent], {"sent": Origin(session=KEY)})
        found = engine.spans.spans(query(("data.attributes.user", "eq", "ann")), chars=100)
        assert [row.name for row in found.rows] == ["Bash"]
        _, (other,) = engine.spans.trace("sent") or (None, [])
        assert other.twin == (turn_id(KEY, 1), found.rows[0].id)

    def test_an_unfinished_turn_is_pending(self, engine: Archive) -> None:
        said = [(PROMPT, "go"), (CALL, "sleep 9")]
        write(engine, batch(session(), said))
        trace, _ = engine.spans.trace(turn_id(KEY, 1)) or (None, [])
        assert trace is not None
        assert trace.status == "pending"
        after = batch(session(), [*said, (RESULT, "done"), (ANSWER, "slept")])
        after.events = after.events[2:]
        write(engine, after)
        trace, _ = engine.spans.trace(turn_id(KEY, 1)) or (None, [])
        assert trace is not None
        assert trace.status == "success"
