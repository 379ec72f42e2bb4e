"""Made-up homes of agents, one for each, and a small model of what an archive makes of their items."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from backstory.ingest.reading import BrokenLine, decode_line, lines
from backstory.sources import load_sources
from backstory.sources.base import About, Event, Item, Parser, Source, Transcript, Usage

SAMPLES = Path(__file__).parent / "agents"
AGENTS = sorted(folder.name for folder in SAMPLES.iterdir() if (folder / "home").is_dir())


def source_named(name: str) -> Source:
    return load_sources([name])[0]


def transcripts_in(source: Source, home: Path) -> list[Path]:
    """The files and folders below a home that the source takes for transcripts."""
    below = [path for root in source.roots(home, {}) if root.is_dir() for path in sorted(root.rglob("*"))]
    found = [path for path in below if (source.gathers(path) if path.is_dir() else source.accepts(path))]
    return [path for path in found if describe(source, path) is not None]


def describe(source: Source, path: Path) -> Transcript | None:
    return source.describe(path, b"" if path.is_dir() else path.read_bytes()[:65_536])


def parser_for(source: Source, path: Path, state: dict[str, Any] | None = None) -> Parser:
    transcript = describe(source, path)
    assert transcript is not None
    return source.parser(transcript, state, lambda session: frozenset())


def records_of(source: Source, path: Path) -> list[Any]:
    records = source.records(path)
    if records is not None:
        return list(records)
    found: list[Any] = []
    with path.open("rb") as stream:
        for _, line in lines(stream, 0):
            if not source.skips(line):
                try:
                    found += decode_line(line)
                except BrokenLine as broken:
                    found += broken.records
    return found


def feed(parser: Parser, records: Iterable[Any]) -> list[Item]:
    return [*(item for record in records for item in parser.parse(record)), *parser.finish()]


def read(source: Source, path: Path) -> list[Item]:
    return feed(parser_for(source, path), records_of(source, path))


def read_with_restarts(source: Source, path: Path) -> list[Item]:
    """As if the file had grown record by record, and the program had been started anew for each."""
    items: list[Item] = []
    state: dict[str, Any] | None = None
    for record in records_of(source, path):
        parser = parser_for(source, path, state)
        items += feed(parser, [record])
        state = json.loads(json.dumps(parser.state()))
    return items


def events(items: Iterable[Item]) -> list[Event]:
    return [item for item in items if isinstance(item, Event)]


def archived(items: Iterable[Item]) -> dict[str, Any]:
    """The items as an archive keeps them: events in the order of their first appearance, facts, tokens."""
    rows: dict[bytes, dict[str, Any]] = {}
    facts: dict[str | None, dict[str, Any]] = {}
    tokens: dict[bytes, dict[str, Any]] = {}
    for item in items:
        fields = msgspec.to_builtins(item)
        if isinstance(item, Event):
            known = rows.get(item.uid)
            if known is None or item.replaces:
                rows[item.uid] = {**fields, "ts": item.ts or (known or {}).get("ts")}
        elif isinstance(item, About):
            merged = facts.setdefault(item.session, {})
            merged.update({name: value for name, value in fields.items() if value not in (None, 0)})
        elif isinstance(item, Usage):
            tokens[item.key] = {**tokens.get(item.key, {}), **fields}
    return {"events": list(rows.values()), "facts": facts, "tokens": list(tokens.values())}


def plain(items: Iterable[Item], home: Path) -> list[dict[str, Any]]:
    """Items as JSON, without fields that have their default. Digests are numbered: only which are equal counts."""
    numbers: dict[bytes, int] = {}
    written = []
    for item in items:
        row: dict[str, Any] = {"item": type(item).__name__}
        for field in msgspec.structs.fields(item):
            value = getattr(item, field.name)
            if field.name in ("uid", "key", "usage_key"):
                if value is not None:
                    row[field.name] = numbers.setdefault(value, len(numbers) + 1)
            elif value != field.default:
                row[field.name] = value
        written.append(row)
    written = json.loads(json.dumps(written).replace(str(home), "~"))
    return list(written)
