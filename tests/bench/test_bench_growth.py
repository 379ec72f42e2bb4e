"""Growth: exponents, the plot, and the homes of small sessions that it is measured with."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from backstory.library import Library
from bench.growth import exponent, plot, table, write_table
from bench.homes import mixed_questions, write_small_sessions


class TestExponent:
    def test_of_powers(self) -> None:
        sizes = (10, 100, 1000)
        for power in (0.0, 0.5, 1.0, 2.0):
            assert exponent({size: 3 * size**power for size in sizes}) == pytest.approx(power)

    def test_of_one_size(self) -> None:
        """It takes two sizes to grow."""
        assert exponent({10: 3.0}) is None


class TestPlot:
    def test_every_row_is_a_line(self) -> None:
        """Rows that are not drawn, and peers that were not measured, have none."""
        rows = {"search P50": 3.0, "cold search": 200.0, "bm25s P95": 9.0, "open(event) P95": 1.0}
        svg = ElementTree.fromstring(plot({10_000: rows, 100_000: rows}))
        lines = svg.findall("{http://www.w3.org/2000/svg}polyline")
        assert len(lines) == 3
        assert [bool(line.get("stroke-dasharray")) for line in lines] == [False, False, True]


class TestTable:
    def test_rows_with_exponents(self) -> None:
        rows = table({10: {"search P50": 2.0}, 1000: {"search P50": 200.0, "cold search": 7.0}}).splitlines()
        assert rows[0] == "| what | 10 | 1,000 | exponent |"
        assert rows[2:] == ["| search P50 | 2 | 200 | 1.00 |", "| cold search |  | 7 |  |"]

    def test_between_the_marks_of_a_page(self, tmp_path: Path) -> None:
        """The former table is replaced, the rest of the page stays."""
        page = tmp_path / "page.md"
        page.write_text("above\n<!-- growth: written by make growth -->\nold\n<!-- growth ends -->\nbelow\n")
        write_table(page, "| new |")
        write_table(page, "| newer |")
        assert page.read_text().split("\n\n")[1] == "| newer |"
        assert page.read_text().startswith("above\n")
        assert page.read_text().endswith("<!-- growth ends -->\nbelow\n")

    def test_a_page_without_a_place(self, tmp_path: Path) -> None:
        page = tmp_path / "page.md"
        page.write_text("text")
        with pytest.raises(ValueError, match="no place"):
            write_table(page, "| new |")


class TestSmallSessions:
    def test_all_of_it_is_read(self, tmp_path: Path) -> None:
        home = write_small_sessions(tmp_path / "home", sessions=7, events=16, event_bytes=200)
        assert (home.sessions, home.events) == (7, 7 * 16)
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            report = library.sync()
            assert (report.files, report.events, report.errors) == (7, home.events, 0)
            assert library.archive.counts().sessions == 7
            questions = mixed_questions(tmp_path / "home", 8)
            assert [len(question.split()) for question in questions] == [2, 6, 8, 1] * 2
            assert all(library.search(question)["data"]["results"] for question in questions)
