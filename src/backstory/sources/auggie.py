"""Auggie: one JSON document for each session, rewritten with each request to the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .decoding import decode_or_none, encode, read_document
from .fields import Payload, integer, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer

# The numbers by which Auggie names the kinds of nodes.
_TEXT, _TOOL_RESULT, _IDE_STATE, _TOOL_USE, _THINKING, _TOKENS = 0, 1, 4, 5, 8, 10
# Images and files in requests; in responses suggestions, the end of an answer, and parts of a call while it streams.
_SILENT = {2, 3, 6, 7, 9, 11}


class Auggie(Source):
    name = "auggie"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        if b'"sessionId"' not in head and b'"chatHistory"' not in head:
            return None
        return Transcript(source=self.name, path=path, session=path.stem)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Session(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        document = mapping_of(read_document(path))
        yield {"session": document}
        for index, entry in enumerate(mappings_of(document.get("chatHistory"))):
            yield {"entry": entry, "index": index}


class _Session(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._ts: int | None = None

    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            session = record["session"]
            self._ts = parse_time(session.get("created"))
            yield About(title=text_of(session, "title", "name"), title_rank=2, cwd=text_of(session, "workspaceRoot"))
            return
        entry = record["entry"]
        exchange = mapping_of(entry, "exchange")
        answers = _nodes(exchange, "response_nodes")
        first = next((ts for node in answers if (ts := parse_time(node.get("timestamp_ms")))), None)
        identity = text_of(exchange, "request_id") or str(record["index"])
        model = text_of(exchange, "model_id") or text_of(entry, "modelId")
        asked = self.writer(identity, ts=first or self._ts)
        yield from self._request(asked, exchange, summary=entry.get("isHistorySummary") is True)
        self._ts = parse_time(entry.get("finishedAt")) or first or self._ts
        answered = self.writer(identity, ts=first or self._ts, model=model)
        yield from self._response(answered, exchange, answers, completed=entry.get("completed") is not False)

    def _request(self, write: Writer, exchange: Payload, *, summary: bool) -> Iterator[Item]:
        texts = []
        for number, node in enumerate(_nodes(exchange, "request_nodes")):
            part = f"request {number}"
            match node.get("type"):
                case 0:
                    texts.append(text_of(mapping_of(node, "text_node"), "content") or "")
                case 1:
                    yield self._result(write, part, mapping_of(node, "tool_result_node"))
                case 4:
                    terminal = mapping_of(node, "ide_state_node", "current_terminal")
                    if cwd := text_of(terminal, "current_working_directory"):
                        yield About(cwd=cwd)
                case kind if kind in _SILENT:
                    pass
                case _:
                    yield write.event(part, EventType.UNKNOWN, encode(node))
        text = text_of(exchange, "request_message") or "\n".join(filter(None, texts))
        if text and summary:
            yield write.event("prompt", EventType.COMPACTION, text)
        elif text:
            yield write.prompt("prompt", text)

    def _result(self, write: Writer, part: str, node: Payload) -> Item:
        call_id, text = text_of(node, "tool_use_id") or "", text_of(node, "content") or ""
        start, duration = parse_time(node.get("start_time_ms")), integer(node.get("duration_ms"))
        ts = start + duration if start and duration is not None else None
        extra = {"duration_ms": duration} if duration is not None else None
        failed = node.get("is_error") is True
        return write.text_result(part, self.tools.get(call_id), call_id, text, failed=failed, ts=ts, extra=extra)

    def _response(self, write: Writer, exchange: Payload, nodes: list[Payload], *, completed: bool) -> Iterator[Item]:
        for tokens in (mapping_of(node, "token_usage") for node in nodes if node.get("type") == _TOKENS):
            yield from write.usage(
                fresh=tokens.get("input_tokens"),
                output=tokens.get("output_tokens"),
                cache_read=tokens.get("cache_read_input_tokens"),
                cache_write=tokens.get("cache_creation_input_tokens"),
            )
        calls = any(node.get("type") == _TOOL_USE for node in nodes)
        answered = False
        for number, node in enumerate(nodes):
            part, ts = f"response {number}", parse_time(node.get("timestamp_ms"))
            match node.get("type"):
                case 0:
                    text = text_of(node, "content") or text_of(mapping_of(node, "text_node"), "content")
                    if text:
                        answered = True
                        yield write.answer(part, text, ts=ts, ends_turn=completed and not calls)
                case 5:
                    use = mapping_of(node, "tool_use")
                    call_id, tool = text_of(use, "tool_use_id") or "", text_of(use, "tool_name") or "unknown"
                    self.tools[call_id] = tool
                    given = text_of(use, "input_json")
                    arguments = decode_or_none(given)
                    ts = parse_time(use.get("started_at_ms")) or ts
                    yield write.call(part, tool, call_id, given if arguments is None else arguments, ts=ts)
                case 8:
                    if thought := text_of(mapping_of(node, "thinking"), "summary", "content"):
                        yield write.thought(part, thought, ts=ts)
                case kind if kind == _TOKENS or kind in _SILENT:
                    pass
                case _:
                    yield write.event(part, EventType.UNKNOWN, encode(node))
        if not answered and (text := text_of(exchange, "response_text")):
            yield write.answer("response", text, ends_turn=completed and not calls)


def _nodes(exchange: Payload, name: str) -> list[Payload]:
    return mappings_of(exchange.get(name))
