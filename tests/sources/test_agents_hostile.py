"""Records whose values are not what they should be cost at most themselves, for every agent that writes files."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agents_world import AGENTS, SAMPLES, feed, parser_for, records_of, source_named, transcripts_in

from backstory.sources.base import Event, Source, Usage

HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    1 << 70,
    1e308,
    "",
    "\x00\x1b[31m\u202e" * 3,
    "<system-reminder>" * 50,
    [],
    {},
    [None, 7, "x", {"text": 7}, [[]]],
    {"type": {}, "text": [], "content": None, "id": {}},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each value inside a value."""
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield from places(item, (*path, key))


def spoilt(record: Any, shift: int) -> Iterator[Any]:
    """The record with each of its values replaced by a hostile one, in turn; and without it."""
    original = pickle.dumps(record)  # to copy it from there takes a fifth of the time
    for number, path in enumerate(places(record)):
        spoiled = pickle.loads(original)
        holder = spoiled
        for key in path[:-1]:
            holder = holder[key]
        if (number + shift) % 5 == 0 and isinstance(holder, dict):
            del holder[path[-1]]
        else:
            holder[path[-1]] = HOSTILE[(number * 5 + shift) % len(HOSTILE)]
        yield spoiled


def check(source: Source, path: Path, records: list[Any]) -> None:
    parser = parser_for(source, path)
    for item in feed(parser, records):
        msgspec.json.encode(item)
        if isinstance(item, Event):
            assert len(item.uid) == 16
            assert isinstance(item.text, str)
            assert isinstance(item.tool, str | None)
            assert isinstance(item.call_id, str | None)
        elif isinstance(item, Usage):
            assert min(item.input_tokens, item.output_tokens, item.cache_read_tokens) >= 0
    json.dumps(parser.state())


@pytest.mark.parametrize("agent", AGENTS)
class TestHostile:
    @pytest.mark.parametrize("shifts", [2, pytest.param(4, marks=pytest.mark.slow)])
    def test_any_value_anywhere(self, agent: str, shifts: int) -> None:
        """Each value of each record is replaced in turn, and what follows is read as before."""
        source = source_named(agent)
        seen: set[str] = set()
        for path in transcripts_in(source, SAMPLES / agent / "home"):
            records = records_of(source, path)
            for number, record in enumerate(records):
                shape = str(sorted(place for place in map(str, places(record))))
                if shape in seen:
                    continue
                seen.add(shape)
                for spoiled in (one for shift in range(shifts) for one in spoilt(record, shift)):
                    check(source, path, [*records[: min(number, 3)], spoiled, *records[number + 1 : number + 3]])

    def test_records_that_are_no_objects(self, agent: str) -> None:
        """They raise ValueError, which ingest counts."""
        source = source_named(agent)
        for path in transcripts_in(source, SAMPLES / agent / "home"):
            for record in (None, 7, "x", [], [{}]):
                with pytest.raises(ValueError, match="not a JSON object"):
                    list(parser_for(source, path).parse(record))

    def test_files_that_are_none(self, agent: str, tmp_path: Path) -> None:
        """A file that looks like a transcript by its name alone is left aside."""
        source = source_named(agent)
        for number, path in enumerate(transcripts_in(source, SAMPLES / agent / "home")):
            if path.is_file():
                other = tmp_path / str(number) / path.name
                for content in (b"", b"\x00\xff\n", b"[]\n7\n", b'{"torn": ', b"{}\n"):
                    assert source.describe(other, content) is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
class TestPipes:
    def test_in_the_place_of_files_beside_transcripts(self, tmp_path: Path) -> None:
        """They are not waited for: the transcripts are read without them."""
        for agent in AGENTS:
            shutil.copytree(SAMPLES / agent / "home", tmp_path, dirs_exist_ok=True)
        beside = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".jsonl", ".txt")]
        for path in beside:
            path.unlink()
            os.mkfifo(path)
        environ = {"HOME": str(tmp_path), "BACKSTORY_HOME": str(tmp_path / "backstory"), "PATH": os.defpath}
        program = [sys.executable, "-m", "backstory", "sync", "--json"]
        done = subprocess.run(program, env=environ, capture_output=True, timeout=60, check=True)
        assert len(beside) > 10
        assert json.loads(done.stdout)["sessions"] > 10
