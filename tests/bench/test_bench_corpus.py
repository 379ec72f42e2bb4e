"""The corpus of the benchmarks: the same bytes everywhere, and in the shape of the real thing."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

from bench.corpus import QUERY_KINDS, events, queries
from bench.transcripts import Home, write_claude_home


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.rglob("*.jsonl")) for line in path.read_bytes().splitlines()]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return list(events(5_000))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Home]:
    folder = tmp_path_factory.mktemp("home")
    return folder, write_claude_home(folder, sessions=8, seed=7)


class TestEvents:
    """Texts come in the sizes and with the words of real events."""

    def test_same_seed_same_bytes(self, texts: list[str]) -> None:
        """On every machine: a change of the generator changes this digest, and all figures measured with it."""
        assert digest(texts) == "6472b12adfa715f4"

    def test_fewer_are_the_first_of_more(self, texts: list[str]) -> None:
        assert list(events(50)) == texts[:50]
        assert list(islice(events(10**12), 50)) == texts[:50]

    def test_another_seed_is_another_corpus(self, texts: list[str]) -> None:
        assert not set(events(50, seed=1)) & set(texts)

    def test_sizes(self, texts: list[str]) -> None:
        lengths = [len(text.split()) for text in texts]
        assert 100 < mean(lengths) < 140
        assert 30 < median(lengths) < 70
        assert max(lengths) > 3_000
        assert min(lengths) > 0

    def test_words(self, texts: list[str]) -> None:
        """Few words are most of the text, and most words are rare."""
        counts = Counter(word for text in texts for word in re.findall(r"\w+", text.lower()))
        total = counts.total()
        assert 0.02 < counts["the"] / total < 0.06
        assert 0.6 < sum(count for _, count in counts.most_common(1000)) / total < 0.8
        assert len(counts) > 30_000

    def test_what_agents_read(self, texts: list[str]) -> None:
        for pattern in [
            r"\b[a-z]+_[a-z]+\b",
            r"\b[a-z]+[A-Z][a-z]+",
            r"\bsrc/\w+",
            r"Traceback",
            r"\b[0-9a-f]{40}\b",
            r"^\[\{",
            r"^diff",
        ]:
            assert sum(bool(re.search(pattern, text)) for text in texts) > 50, pattern


class TestQueries:
    """Questions of every kind, with answers where there should be any."""

    def test_same_seed_same_queries(self) -> None:
        assert digest(query.text for query in queries(210)) == "71e0529e93c77a72"
        assert list(queries(30, seed=1)) != list(queries(30))

    def test_every_kind_in_turn(self) -> None:
        assert [query.kind for query in queries(14)] == [*QUERY_KINDS, *QUERY_KINDS]

    def test_shapes(self) -> None:
        asked = list(queries(210))
        by_kind = {kind: [query.text for query in asked if query.kind == kind] for kind in QUERY_KINDS}
        assert all(8 <= len(text.split()) <= 20 for text in by_kind["question"])
        assert all(1 <= len(text.split()) <= 2 for text in by_kind["rare"])
        assert all(2 <= len(text.split()) <= 4 for text in by_kind["mixed"])
        assert all("/" in text for text in by_kind["path"])
        assert all(re.fullmatch(r"\w+", text) for text in by_kind["identifier"])
        assert all(re.fullmatch(r'"[^"]+ [^"]+"', text) for text in by_kind["phrase"])

    def test_phrases_are_in_the_corpus_and_others_are_not(self, texts: list[str]) -> None:
        everything = " ".join(" ".join(texts).split())
        for query in queries(70):
            if query.kind == "phrase":
                assert query.text.strip('"') in everything
            if query.kind == "no_hit":
                assert not any(word in everything for word in query.text.split())


class TestClaudeHome:
    """A home as Claude Code writes it."""

    def test_same_seed_same_bytes(self, home: tuple[Path, Home]) -> None:
        folder, _ = home
        files = sorted(folder.rglob("*.jsonl"))
        assert (
            digest(f"{path.relative_to(folder).as_posix()}\n{path.read_text('utf-8')}" for path in files)
            == "aa5dad707244d846"
        )

    def test_counts(self, home: tuple[Path, Home]) -> None:
        """The counts agree with the records that were written."""
        folder, said = home
        files = list(folder.rglob("*.jsonl"))
        subagents = [path for path in files if path.parent.name == "subagents"]
        assert (said.sessions, said.subagents) == (len(files) - len(subagents), len(subagents))
        assert said.bytes == sum(path.stat().st_size for path in files)
        kinds: Counter[str] = Counter()
        for record in records(folder):
            if record["type"] in ("user", "assistant") and "isCompactSummary" not in record:
                content = record["message"]["content"]
                kinds.update(["prompt"] if isinstance(content, str) else [block["type"] for block in content])
        assert kinds["prompt"] == said.prompts
        assert kinds["text"] == said.answers
        assert kinds["thinking"] == said.thoughts
        assert kinds["tool_use"] == kinds["tool_result"] == said.tool_calls == said.tool_results > 0

    def test_records_are_linked(self, home: tuple[Path, Home]) -> None:
        folder, _ = home
        for path in folder.rglob("*.jsonl"):
            parent = None
            for record in (json.loads(line) for line in path.read_bytes().splitlines()):
                if "uuid" in record:
                    assert record["parentUuid"] == parent or record.get("subtype") == "compact_boundary"
                    assert record["isSidechain"] == (path.parent.name == "subagents")
                    parent = record["uuid"]

    def test_calls_and_results_belong_together(self, home: tuple[Path, Home]) -> None:
        folder, _ = home
        calls, results = set(), set()
        for record in records(folder):
            content = record.get("message", {}).get("content")
            for block in content if isinstance(content, list) else ():
                if block["type"] == "tool_use":
                    calls.add(block["id"])
                if block["type"] == "tool_result":
                    results.add(block["tool_use_id"])
                    assert record["toolUseResult"]
        assert calls == results

    def test_one_message_is_spread_over_records(self, home: tuple[Path, Home]) -> None:
        folder, _ = home
        ids = Counter(record["message"]["id"] for record in records(folder) if record["type"] == "assistant")
        assert max(ids.values()) > 1

    def test_files_are_as_old_as_their_last_record(self, home: tuple[Path, Home]) -> None:
        folder, _ = home
        assert all(path.stat().st_mtime < 1_800_000_000 for path in folder.rglob("*.jsonl"))

    def test_by_size(self, tmp_path: Path) -> None:
        written = write_claude_home(tmp_path, megabytes=0.5)
        assert written.bytes >= 500_000
        assert written.sessions >= 1

    def test_size_or_sessions(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="either sessions or megabytes"):
            write_claude_home(tmp_path)
        with pytest.raises(ValueError, match="either sessions or megabytes"):
            write_claude_home(tmp_path, sessions=1, megabytes=1)
