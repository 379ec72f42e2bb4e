"""Homes of agents for benchmarks: a copy of a sample is other sessions, not the same ones again."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from backstory.library import Library
from bench.agents import SAMPLES, Sample, sources, write_home


def events_in(folder: Path, source: str) -> int:
    environ = {"BACKSTORY_SOURCES": source}
    with Library(folder / "backstory", agents_home=folder / "home", environ=environ) as library:
        return library.sync().events


@pytest.mark.parametrize("source", ["pi", "gptme", "kimi-cli"])
class TestCopies:
    def test_each_adds_as_much(self, source: str, tmp_path: Path) -> None:
        """But for short texts without an id, which are the same."""
        sample, texts = Sample(SAMPLES / source / "home"), (f"some words more, {number}" for number in count())
        sample.copy(tmp_path / "home", 1, texts)
        one = events_in(tmp_path, source)
        sample.copy(tmp_path / "home", 2, texts)
        assert 0.7 * one < events_in(tmp_path, source) <= one


class TestOpenCode:
    def test_every_part_is_read(self, tmp_path: Path) -> None:
        """Of 16 messages two are prompts, two a thought and an answer, the others also have a call with its result."""
        files, size = write_home("opencode", tmp_path / "home", size=1_000)
        assert files == 1
        assert size >= 1_000
        assert events_in(tmp_path, "opencode") == 2 + 2 * 2 + 12 * 4

    def test_every_agent_is_measured_once(self) -> None:
        assert len(set(sources())) == len(sources()) > 15
