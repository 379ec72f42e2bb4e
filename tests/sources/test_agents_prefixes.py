"""A transcript that is read while it is written ends in the same archive as one that is read whole."""

from __future__ import annotations

import io
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents_world import AGENTS, SAMPLES, archived, feed, parser_for, read, source_named, transcripts_in
from hypothesis import given, settings
from hypothesis import strategies as st

from backstory.ingest.reading import decode_line, lines
from backstory.library import Library
from backstory.sources.base import Item, Source
from tests.examples import examples

GROWING = [
    (agent, path)
    for agent in AGENTS
    for path in transcripts_in(source_named(agent), SAMPLES / agent / "home")
    if path.suffix == ".jsonl"
]


def read_in_pieces(source: Source, path: Path, cuts: list[int]) -> list[Item]:
    """The items of a file that was cut at these places, in the middle of lines, too, and went on."""
    data, offset = path.read_bytes(), 0
    items: list[Item] = []
    state: dict[str, Any] | None = None
    for cut in [*sorted(cuts), len(data)]:
        parser, records = parser_for(source, path, state), []
        for end, line in lines(io.BytesIO(data[offset:cut]), offset):
            offset = end
            if not source.skips(line):
                records += decode_line(line)
        items += feed(parser, records)
        state = json.loads(json.dumps(parser.state()))
    return items


class TestParsers:
    @given(where=st.lists(st.floats(0, 1), min_size=1, max_size=4))
    @settings(max_examples=examples(0.2))
    def test_any_cut(self, where: list[float]) -> None:
        """The parser goes on where it stopped, wherever that is."""
        for agent, path in GROWING:
            source, size = source_named(agent), path.stat().st_size
            pieces = read_in_pieces(source, path, [int(place * size) for place in where])
            assert archived(pieces) == archived(read(source, path)), path

    @pytest.mark.corpus
    def test_recordings(self, corpus: Path) -> None:
        """The same holds for what the agents themselves wrote, cut at the end of each line and within it."""
        for agent in (*AGENTS, "kimi-code"):
            source = source_named("kimi-cli" if agent == "kimi-code" else agent)
            for path in transcripts_in(source, corpus / "agents" / agent / "home"):
                if path.suffix != ".jsonl":
                    continue
                sizes = [len(line) for line in path.read_bytes().splitlines(keepends=True)]
                ends = [sum(sizes[:number]) for number in range(1, len(sizes))]
                whole = archived(read(source, path))
                assert archived(read_in_pieces(source, path, ends)) == whole, path
                assert archived(read_in_pieces(source, path, [end + 20 for end in ends[:-1]])) == whole, path


def contents(library: Library) -> dict[str, Any]:
    """All that the archive has, without the rows of files."""
    database = library.archive._db  # type: ignore[attr-defined]
    sessions = [key for (key,) in database.execute("SELECT key FROM session ORDER BY key")]
    found: dict[str, Any] = {}
    for key in sessions:
        turns = library.archive.turns(key)
        found[key] = [
            library.archive.session(key),
            [(turn, library.archive.events(key, turn.ordinal)) for turn in turns],
        ]
    columns = "key, input_tokens, output_tokens, cache_read_tokens, cost, model"
    found["usage"] = [tuple(row) for row in database.execute(f"SELECT {columns} FROM usage ORDER BY key")]
    return found


@pytest.mark.parametrize("agent", AGENTS)
class TestArchive:
    @pytest.mark.parametrize("cuts", [2, pytest.param(4, marks=pytest.mark.slow)])
    def test_cut_and_continued(self, agent: str, cuts: int, tmp_path: Path) -> None:
        """All files of a home, each cut somewhere, and then whole: sessions, turns, events and tokens are the same."""
        sample = SAMPLES / agent / "home"
        whole = Library(tmp_path / "whole", agents_home=sample, environ={})
        whole.sync()
        home = tmp_path / "home"
        shutil.copytree(sample, home)
        files = [path for path in transcripts_in(source_named(agent), home) if path.suffix == ".jsonl"]
        chance = random.Random(agent)
        data = {path: path.read_bytes() for path in files}
        pieces = Library(tmp_path / "pieces", agents_home=home, environ={})
        for _ in range(cuts):
            for path in files:
                path.write_bytes(data[path][: chance.randrange(len(data[path]))])
            pieces.sync()
        for path in files:
            path.write_bytes(data[path])
        assert pieces.sync().errors == 0
        assert str(contents(pieces)).replace(str(home), "~") == str(contents(whole)).replace(str(sample), "~")
        assert pieces.sync().files == 0


class TestRewritten:
    """Sessions that are read again when they have changed, and that grow in the middle of a file or folder."""

    @pytest.mark.parametrize(
        ("agent", "pattern"),
        [
            ("gemini-cli", "**/session-*.json"),
            ("mistral-vibe", "**/journal/*.jsonl"),
            ("mistral-vibe", "**/messages.jsonl"),
        ],
    )
    def test_entry_by_entry(self, agent: str, pattern: str, tmp_path: Path) -> None:
        """Each entry of a document or journal is followed by a sync."""
        sample, home = SAMPLES / agent / "home", tmp_path / "home"
        whole = Library(tmp_path / "whole", agents_home=sample, environ={})
        whole.sync()
        shutil.copytree(sample, home)
        pieces = Library(tmp_path / "pieces", agents_home=home, environ={})
        for path in sorted(home.glob(pattern)):
            for content in _growing(path.read_text()):
                path.write_text(content)
                assert pieces.sync().errors == 0
        assert str(contents(pieces)).replace(str(home), "~") == str(contents(whole)).replace(str(sample), "~")


def _growing(text: str) -> Iterator[str]:
    """The contents of a JSON document with more and more of its messages, or of lines with more and more of them."""
    if text.startswith("{\n"):
        document = json.loads(text)
        messages = document["messages"]
        for count in range(1, len(messages) + 1):
            yield json.dumps({**document, "messages": messages[:count]})
    else:
        lines = text.splitlines(keepends=True)
        yield from ("".join(lines[:count]) for count in range(1, len(lines) + 1))
