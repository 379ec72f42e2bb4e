from __future__ import annotations

from pathlib import Path

import pytest

from backstory.archive import open_engine
from backstory.archive.base import Archive
from backstory.archive.spans import SpanRow
from backstory.toolsets.traces.reports import OutlineRow, read_outline, span_number
from tests.traces_world import START, fill, trace_id


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return open_engine("local", tmp_path)


def span(id: int, parent: int | None, start: int, end: int | None, **fields: object) -> SpanRow:
    return SpanRow(
        trace=trace_id(0),
        id=id,
        parent=parent,
        name=f"s{id}",
        start=START + start,
        end=None if end is None else START + end,
        **fields,  # type: ignore[arg-type]
    )


def rows_of(archive: Archive, *spans: SpanRow) -> list[OutlineRow]:
    fill(archive, list(spans))
    outline = read_outline(archive.spans, trace_id(0))
    assert outline is not None
    return outline.rows


class TestOutline:
    """The spans of a trace in the order they are drawn."""

    def test_parents_come_before_their_children(self, archive: Archive) -> None:
        rows = rows_of(archive, span(1, None, 0, 100), span(4, 1, 60, 90), span(2, 1, 10, 50), span(3, 2, 20, 30))
        assert [(row.name, row.depth, row.inside) for row in rows] == [
            ("s1", 0, 3),
            ("s2", 1, 1),
            ("s3", 2, 0),
            ("s4", 1, 0),
        ]

    def test_times_count_from_the_beginning_of_the_trace(self, archive: Archive) -> None:
        rows = rows_of(archive, span(1, None, 50, 100), span(2, 1, 60, None))
        assert [(row.start, row.end) for row in rows] == [(0, 50), (10, None)]

    def test_the_critical_path_is_what_the_trace_waited_for(self, archive: Archive) -> None:
        """Of two that ran side by side only the one that ended last."""
        rows = rows_of(
            archive,
            span(1, None, 0, 100),
            span(2, 1, 10, 40),
            span(3, 1, 10, 50),
            span(4, 1, 50, 100),
            span(5, 4, 60, 90),
        )
        assert {row.name for row in rows if row.critical} == {"s1", "s3", "s4", "s5"}

    def test_an_unknown_parent_makes_a_root(self, archive: Archive) -> None:
        assert [(row.name, row.depth) for row in rows_of(archive, span(1, 99, 0, 10))] == [("s1", 0)]

    def test_spans_that_are_each_others_parents_are_shown_once(self, archive: Archive) -> None:
        rows = rows_of(archive, span(1, 2, 0, 10), span(2, 1, 0, 10))
        assert sorted(row.name for row in rows) == ["s1", "s2"]

    def test_tokens_and_cost_are_those_of_the_span(self, archive: Archive) -> None:
        row = rows_of(archive, span(1, None, 0, 10, type="GENERATION", input_tokens=7, output_tokens=3, cost=0.5))[0]
        assert (row.type, row.tokens, row.cost) == ("GENERATION", 10, 0.5)

    def test_there_is_none_of_an_unknown_trace(self, archive: Archive) -> None:
        assert read_outline(archive.spans, "nothing") is None

    def test_ids_are_read_back(self, archive: Archive) -> None:
        row = rows_of(archive, span(-5, None, 0, 10))[0]
        assert span_number(row.id) == -5
        assert span_number("x") is None
        found = archive.spans.trace(trace_id(0), [-5])
        assert found is not None
        assert [each.id for each in found[1]] == [-5]
