"""Real transcripts: the tokens of all traces are those of a separate count, made straight from the JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.spans import Window
from backstory.library import Library
from tests.traces_world import caller

pytestmark = pytest.mark.corpus

Counts = tuple[int, int]


@pytest.fixture
def library(corpus_library: Library) -> Library:
    return corpus_library


def objects(folder: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    decoder = json.JSONDecoder(strict=False)
    for path in sorted(folder.rglob("*.jsonl")):
        for line in path.read_text("utf-8", "replace").splitlines():
            text = line.strip()
            while text:
                try:
                    value, end = decoder.raw_decode(text)
                except ValueError:
                    break
                if isinstance(value, dict):
                    yield path, value
                text = text[end:].lstrip()


def claude_messages(value: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """Every API message in a record, also those of subagents inside progress records."""
    if isinstance(value, dict):
        message = value.get("message")
        if isinstance(message, dict) and message.get("role") == "assistant" and isinstance(message.get("usage"), dict):
            yield message, str(value.get("requestId") or "")
        for inner in value.values():
            yield from claude_messages(inner)


def claude_count(home: Path) -> Counts:
    best: dict[tuple[str, str], Counts] = {}
    for _, record in objects(home / ".claude" / "projects"):
        for message, request in claude_messages(record):
            usage = message["usage"]
            if message.get("model") == "<synthetic>" or not message.get("id"):
                continue
            given = sum(
                usage.get(name) or 0
                for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
            )
            key = (message["id"], request)
            before = best.get(key, (0, 0))
            best[key] = (max(before[0], given), max(before[1], usage.get("output_tokens") or 0))
    return sum(given for given, _ in best.values()), sum(output for _, output in best.values())


def of_source(library: Library, source: str) -> Counts:
    totals = library.archive.spans.usage(Window(source=source))
    return sum(total.input_tokens for total in totals), sum(total.output_tokens for total in totals)


class TestTokens:
    def test_claude_code(self, library: Library, corpus: Path) -> None:
        assert of_source(library, "claude-code") == claude_count(corpus / "home")

    def test_every_usage_is_in_one_trace(self, library: Library) -> None:
        totals = library.archive.spans.usage(Window())
        spent = sum(total.input_tokens + total.output_tokens for total in totals)
        call = caller(library.archive)
        added, cursor = 0, dict[str, str]()
        while True:
            page = call("search_traces", limit=200, **cursor)
            added += sum(trace.get("totalTokens", 0) for trace in page["items"])
            if not page["hasMore"]:
                break
            cursor = {"cursor": page["cursor"]}
        assert added == spent > 0


AGENT = {"assistant_response", "reasoning", "tool_call", "tool_response"}


class TestTimes:
    """Each turn lasts from its prompt to the last thing that the agent did, or to what stopped it."""

    def test_every_turn(self, library: Library) -> None:
        call = caller(library.archive)
        traces, cursor = list[dict[str, Any]](), dict[str, str]()
        while True:
            page = call("search_traces", limit=200, **cursor)
            traces += page["items"]
            if not page["hasMore"]:
                break
            cursor = {"cursor": page["cursor"]}
        turns = [trace for trace in traces if trace["id"].startswith("turn:")]
        assert len(turns) > 100
        for trace in turns:
            events = [(event["type"], ms(event["timestamp"])) for event in library.open(trace["id"])["data"]["events"]]
            work = [time for kind, time in events if kind in AGENT]
            prompts = [time for kind, time in events if kind == "user_input"]
            stops = {time for kind, time in events if kind == "runtime"}
            start = ms(trace["createdAt"])
            ends = {max(work, default=start), *(time for time in stops if time > max(work, default=start))}
            assert start in {*work, *prompts[:1]} or not (work or prompts), trace
            assert start + trace["latency"] in ends, trace


def ms(timestamp: str) -> int:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
