"""An agent that rewrites its records, and an archive that reads them: for tests of any engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from backstory.archive.base import (
    Archive,
    EventRow,
    Exchange,
    ExchangesRequest,
    Part,
    Reader,
    SearchRequest,
    SessionRow,
    SessionsRequest,
    TurnRow,
    UsageRow,
    Writer,
    any_folder,
)
from backstory.archive.spans import TraceQuery
from backstory.ingest.pipeline import Ingest
from backstory.model import SEARCHABLE_TYPES, EventType, digest, session_mark
from backstory.sources.base import About, Event, Item, Lookup, Parser, Source, Transcript, TurnEnd, Usage

START = 1_780_000_000_000
PROJECTION = "backstory.ingest.projection:TurnProjection"
_KINDS = {
    "prompt": EventType.USER_INPUT,
    "answer": EventType.ASSISTANT_RESPONSE,
    "call": EventType.TOOL_CALL,
    "result": EventType.TOOL_RESPONSE,
    "think": EventType.REASONING,
    "notice": EventType.RUNTIME,
}
_EXCHANGES: dict[str, Literal["user", "assistant"]] = {"prompt": "user", "answer": "assistant", "call": "assistant"}


def uid(id: str) -> bytes:
    return digest("record", id)


class Rewriting(Source):
    """Keeps a session in one JSON file, a list of records, and writes it anew whenever something changes."""

    name = "claude-code"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def save(self, session: str, *records: dict[str, Any], **about: Any) -> Path:
        path = self.folder / f"{session}.json"
        path.write_text(json.dumps([{"about": about}, *records]), "utf-8")
        return path

    def roots(self, home: Path, environ: Mapping[str, str]) -> list[Path]:
        return [self.folder]

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        session, _, parent = path.stem.partition("@")
        return Transcript(source=self.name, path=path, session=session, parent=parent or None, folder="-work")

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Records()

    def records(self, path: Path) -> Iterator[Any] | None:
        return iter(json.loads(path.read_text("utf-8")))

    def outdated(self, read: Iterable[Any]) -> Iterable[str]:
        return ()


class _Records:
    def __init__(self) -> None:
        self._number = 0

    def parse(self, record: dict[str, Any]) -> Iterable[Item]:
        if "about" in record:
            yield About(**record["about"])
            return
        if record.get("end"):
            yield TurnEnd()
            return
        self._number += 1
        fields = {name: value for name, value in record.items() if name not in ("id", "kind", "text", "tokens")}
        if "tokens" in record:
            fields["usage_key"] = digest("usage", record["id"])
            yield Usage(key=fields["usage_key"], model="m", output_tokens=record["tokens"])
        yield Event(
            uid=uid(record["id"]),
            type=_KINDS[record["kind"]],
            text=record.get("text", ""),
            starts_turn=record["kind"] == "prompt",
            exchange=_EXCHANGES.get(record["kind"]),
            **{"replaces": True, "ts": START + self._number, **fields},
        )

    def finish(self) -> Iterable[Item]:
        return ()

    def state(self) -> dict[str, Any]:
        return {}


def record(id: str, kind: str, text: str = "", **fields: Any) -> dict[str, Any]:
    return {"id": id, "kind": kind, "text": text, **fields}


def ingest(writer: Writer, source: Rewriting) -> Ingest:
    return Ingest(writer, [source], lambda _: [source.folder], home=source.folder)


def sync(archive: Archive, source: Rewriting) -> int:
    """One sync by a writer of its own; gives the number of new events."""
    writer = archive.writer()
    try:
        writer.recover()
        return ingest(writer, source).sync().events
    finally:
        writer.close()


def found(archive: Archive, query: str, **options: Any) -> list[str]:
    """The texts of the events that a search finds."""
    request = SearchRequest(query=query, types=SEARCHABLE_TYPES, limit=50, **options)
    return [hit.event.text for hit in archive.search(request).hits]


def found_exchanges(archive: Archive, query: str) -> list[int]:
    return [hit.row.number for hit in archive.exchanges(ExchangesRequest(query=query, limit=10))]


def exchanges_of(reader: Reader, key: str) -> list[Exchange]:
    return list(reader.exchanges(ExchangesRequest(session=key)))


def turn_row(reader: Reader, key: str, ordinal: int) -> TurnRow | None:
    return next(iter(reader.turns(key, Part(above=ordinal - 1, below=ordinal + 1))), None)


def event_row(reader: Reader, uid: bytes) -> EventRow | None:
    return next(iter(reader.events(part=Part(uids=(uid,)))), None)


def children_of(reader: Reader, key: str) -> list[SessionRow]:
    return reader.sessions(SessionsRequest(parent=key, order="started_at", ascending=True))


def usage_of(reader: Reader, key: str) -> list[UsageRow]:
    return [usage for turn in reader.turns(key, Part(usage=True)) for usage in turn.usage]


def conversations(reader: Reader) -> list[SessionRow]:
    return reader.sessions(SessionsRequest(source="claude-code", folders=any_folder))


def is_forgotten(reader: Reader, key: str) -> bool:
    return bool(reader.forgotten([session_mark(key)]))


def span_names(archive: Archive) -> list[str]:
    spans = archive.spans.spans(TraceQuery(sort="startTime", limit=200, descending=False), chars=200)
    return [span.name for span in spans.rows]
