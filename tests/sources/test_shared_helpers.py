"""Helpers that sources share: fields of any type, and files beside a transcript."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backstory.sources.decoding import MAX_SIDECAR_BYTES, read_mapping, read_or_none
from backstory.sources.fields import list_of, mappings_of
from backstory.sources.parsing import Writer


class TestLists:
    @pytest.mark.parametrize("value", [None, "text", 1, {"a": 1}])
    def test_of_another_type(self, value: Any) -> None:
        """A value of another type counts as an empty list."""
        assert list_of(value) == []
        assert mappings_of(value) == []

    def test_entries_keep_their_positions(self) -> None:
        """An entry that is no mapping becomes an empty one: positions are parts of identities."""
        assert mappings_of([{"a": 1}, "text", None, {"b": 2}]) == [{"a": 1}, {}, {}, {"b": 2}]


class TestSidecars:
    @pytest.mark.parametrize("text", ["", "[1]", '{"title": "', '"title"'])
    def test_without_an_object(self, text: str, tmp_path: Path) -> None:
        """A file that is empty, torn or another JSON value gives nothing, like one that is missing."""
        path = tmp_path / "meta.json"
        assert read_mapping(path) == {}
        path.write_text(text)
        assert read_mapping(path) == {}

    def test_of_another_size(self, tmp_path: Path) -> None:
        """A large file is not read into memory for a title; a document of a session may be as large."""
        path = tmp_path / "meta.json"
        path.write_text('{"title": "Fix"}' + " " * MAX_SIDECAR_BYTES)

        assert read_mapping(path) == {}
        assert read_or_none(path) == {"title": "Fix"}


class TestTextResults:
    @pytest.mark.parametrize(
        ("tool", "text", "failed", "expected"),
        [
            ("bash", "Exit code: 3", False, (3, True)),
            ("bash", "Exit code: 0", False, (0, False)),
            ("bash", "Exit code: 0", True, (0, True)),
            ("read_file", "Exit code: 3", False, (None, False)),
        ],
    )
    def test_failure(self, tool: str, text: str, failed: bool, expected: tuple[int | None, bool]) -> None:
        """A command failed if its exit code is not zero, or if the agent says so."""
        event = Writer("agent", "1").text_result("result", tool, "call", text, failed=failed)

        assert (event.exit_code, event.failed) == expected
