"""Made-up spans, and what a search over them should find, worked out the slow way."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backstory.archive.base import Archive
from backstory.archive.spans import Origin, SpanRow
from backstory.config import Settings
from backstory.library import Library
from backstory.toolsets.traces.tools import toolset
from tests.engines import open_home
from tests.transcripts import Transcript

START = 1_767_225_600_000
MODELS = ("claude-opus-4-5", "claude-haiku-4-5", "gpt-5.2")
Call = Callable[..., dict[str, Any]]


def trace_id(number: int) -> str:
    return f"{number + 1:032x}"


def make_spans(traces: int, per_trace: int = 6, seed: int = 3) -> list[SpanRow]:
    source = random.Random(seed)
    spans = []
    for number in range(traces):
        for place in range(per_trace):
            start = START + number * 1000 + place * 10
            span = SpanRow(
                trace=trace_id(number),
                id=number * 100 + place + 1,
                parent=None if place == 0 else number * 100 + 1,
                name="agent" if place == 0 else source.choice(("Bash", "Read", "chat", "Straße")),
                start=start,
                end=None if source.random() < 0.1 else start + source.randrange(1, 9000),
            )
            span.status = "pending" if span.end is None else source.choice(("success", "success", "error"))
            if span.name == "chat":
                span.type = "GENERATION"
                span.model = source.choice(MODELS)
                span.input_tokens, span.output_tokens = source.randrange(5000), source.randrange(500)
                span.cost = None if source.random() < 0.3 else source.randrange(1000) / 1000
            span.metadata = {
                "user_id": f"user-{source.randrange(5)}",
                "tries": source.randrange(4),
                "deep": {"x": place},
            }
            if source.random() < 0.5:
                span.attributes = {"http.method": source.choice(("GET", "post")), "cached": source.random() < 0.5}
            spans.append(span)
    return spans


def fill(archive: Archive, spans: list[SpanRow], **origin: Any) -> None:
    archive.spans.put(spans, {span.trace: Origin(**origin) for span in spans})


def caller(archive: Any, settings: Settings | None = None, seconds: float = 5.0) -> Call:
    """Calls the tools by keyword arguments; the answer, whatever it is."""
    tools = {tool.name: tool for tool in toolset(lambda: archive, settings or Settings(), seconds).tools}
    return lambda tool, /, **given: tools[tool].handler(given).data


def open_world(folder: Path, traces: int = 40) -> tuple[Archive, list[SpanRow]]:
    archive = open_home(folder, projection=None)
    spans = make_spans(traces)
    fill(archive, spans)
    return archive, spans


class World:
    def __init__(self, folder: Path) -> None:
        self.agents = folder / "agents"
        self.library = Library(folder / "backstory", agents_home=self.agents, environ={})
        self.call: Call = caller(self.library.archive)

    def sync(self, *transcripts: Transcript) -> None:
        for transcript in transcripts:
            transcript.write(self.agents)
        self.library.sync()

    def traces(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("search_traces", sortOrder="asc", limit=200)["items"]
        return found

    def spans(self, trace: dict[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.call("get_trace", traceId=trace["id"])["trace"]["spans"]
        return found


# What should be found.


def hex_id(number: int | None) -> str | None:
    return None if number is None else f"{number:016x}"


def value_of(span: SpanRow, field: str) -> Any:
    plain = {
        "id": hex_id(span.id),
        "traceId": span.trace,
        "parentId": hex_id(span.parent),
        "name": span.name,
        "startTime": span.start,
        "endTime": span.end,
        "status": span.status,
        "data.type": span.type,
        "data.model": span.model,
        "data.inputTokens": span.input_tokens,
        "data.outputTokens": span.output_tokens,
        "data.totalCost": span.cost,
    }
    if field in plain:
        return plain[field]
    kind, _, path = field.removeprefix("data.").partition(".")
    found = _at(span.metadata if kind == "metadata" else span.attributes, path)
    return _at(span.attributes, path) if found is None and kind == "metadata" else found


def _at(table: dict[str, Any], path: str) -> Any:
    if path in table:
        return table[path]
    first, _, rest = path.partition(".")
    inner = table.get(first)
    return _at(inner, rest) if isinstance(inner, dict) else None


def matches(span: SpanRow, field: str, operator: str, value: Any) -> bool:
    actual = value_of(span, field)
    if operator == "ne":
        return not _equal(actual, value)
    if actual is None:
        return False
    if operator == "eq":
        return _equal(actual, value)
    if operator == "contains":
        return isinstance(actual, str) and value.casefold() in actual.casefold()
    if isinstance(actual, bool) or not isinstance(actual, int | float):
        return False
    return {"gt": actual > value, "gte": actual >= value, "lt": actual < value, "lte": actual <= value}[operator]


def _equal(actual: Any, value: Any) -> bool:
    return isinstance(actual, bool) == isinstance(value, bool) and bool(actual == value)
