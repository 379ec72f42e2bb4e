"""Amp: one JSON document for each thread, rewritten. Newer versions keep threads on their server alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .content import command_exit_code
from .decoding import encode, read_document
from .fields import Payload, integer, list_of, local_path, mapping_of, mappings_of, text_of
from .messages import Blocks
from .parsing import StatelessParser, Writer

_FAILED = {"error", "cancelled", "rejected-by-user"}


class Amp(Source):
    name = "amp"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json" and path.name.startswith("T-")

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return Transcript(source=self.name, path=path, session=path.stem)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Thread(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        thread = mapping_of(read_document(path))
        yield {"thread": thread}
        for index, message in enumerate(list_of(thread.get("messages"))):
            yield {"message": mapping_of(message), "index": index}


class _Thread(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._blocks = Blocks()
        self._begun: int | None = None

    def parse(self, record: Payload) -> Iterator[Item]:
        if "thread" in record:
            thread = record["thread"]
            self._begun = parse_time(thread.get("created"))
            trees = mapping_of(thread, "env", "initial").get("trees")
            place = text_of(trees[0], "uri", "path") if isinstance(trees, list) and trees else None
            title = text_of(thread, "title")
            yield About(title=title, title_rank=2, cwd=local_path(place) if place else None)
            return
        message, index = record["message"], record["index"]
        usage = mapping_of(message, "usage")
        ts = parse_time(mapping_of(message, "meta").get("sentAt")) or parse_time(usage.get("timestamp"))
        ts = ts or (self._begun if index == 0 else None)
        identity = str(message.get("messageId", index))
        write = self.writer(identity, ts=ts, model=text_of(usage, "model"))
        if message.get("role") == "user":
            yield from self._user(write, message.get("content"))
            return
        yield from write.usage(
            fresh=usage.get("inputTokens"),
            output=usage.get("outputTokens"),
            cache_read=usage.get("cacheReadInputTokens"),
            cache_write=usage.get("cacheCreationInputTokens"),
        )
        stop = text_of(mapping_of(message, "state"), "stopReason")
        content = message.get("content")
        for block in list_of(content):
            if mapping_of(block).get("type") == "tool_use":
                self.tools[text_of(block, "id") or ""] = text_of(block, "name") or "unknown"
        yield from self._blocks.assistant(write, content, ends=None if stop is None else stop == "end_turn")

    def _user(self, write: Writer, content: Any) -> Iterator[Item]:
        for number, block in enumerate(mappings_of(content)):
            part = str(number)
            match block.get("type"):
                case "text":
                    if text := text_of(block, "text"):
                        yield write.prompt(part, text)
                case "tool_result":
                    yield self._result(write, part, block)
                case "image" | "file":
                    pass
                case _:
                    yield write.event(part, EventType.UNKNOWN, encode(block))

    def _result(self, write: Writer, part: str, block: Payload) -> Item:
        call_id, run = text_of(block, "toolUseID", "tool_use_id") or "", mapping_of(block, "run")
        result = run.get("result")
        text = result if isinstance(result, str) else text_of(result, "output", "content")
        text = text or (encode(result) if result else "")
        error = text_of(mapping_of(run, "error"), "message") or text_of(run, "error") or ""
        exit_code = integer(mapping_of(result).get("exitCode"))
        tool = self.tools.get(call_id)
        exit_code = command_exit_code(error, tool) if exit_code is None else exit_code
        failed = run.get("status") in _FAILED or bool(exit_code)
        text = "\n".join(filter(None, (text, error)))
        return write.result(part, tool, call_id, text, exit_code=exit_code, failed=failed)
