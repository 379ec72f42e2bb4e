"""Zed: one database with a row for each thread, which is rewritten as a whole, mostly compressed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Stored, Transcript
from .database import columns, open_database
from .decoding import decode, decompress, encode
from .fields import Payload, list_of, mapping_of, mappings_of, text_of
from .messages import Blocks
from .parsing import StatelessParser, Writer


class Zed(Source):
    name = "zed"

    def accepts(self, path: Path) -> bool:
        return path.name == "threads.db"

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Thread(transcript)

    def sessions(self, path: Path) -> Iterator[Stored]:
        with open_database(path) as database:
            known = columns(database, "threads")
            if not known:
                return
            parent = "parent_id" if "parent_id" in known else "NULL"
            query = f"SELECT id, updated_at, length(data) AS bytes, {parent} AS parent FROM threads"
            for row in database.execute(query).fetchall():
                updated = parse_time(row["updated_at"]) or 0
                yield Stored(session=str(row["id"]), updated=updated, version=row["bytes"], parent=row["parent"])

    def changes(self, path: Path, session: str, since: Stored | None) -> Iterator[Any]:
        with open_database(path) as database:
            row = database.execute("SELECT * FROM threads WHERE id = ?", (session,)).fetchone()
        if row is None:
            return
        about = dict(row)
        data = about.pop("data")
        if about.get("data_type") == "zstd":
            data = decompress(data)
        thread = mapping_of(decode(data))
        about["detailed_summary"] = thread.get("detailed_summary")
        yield {"thread": about, "model": mapping_of(thread, "model")}
        for index, message in enumerate(list_of(thread.get("messages"))):
            yield {"message": message, "index": index}
        yield {"tokens": mapping_of(thread, "cumulative_token_usage")}


class _Thread(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._blocks = Blocks()
        self._model: str | None = None
        self._begun: int | None = None

    def parse(self, record: Payload) -> Iterator[Item]:
        if "thread" in record:
            thread = record["thread"]
            self._model = text_of(record["model"], "model")
            self._begun = parse_time(thread.get("created_at")) or parse_time(thread.get("updated_at"))
            folders = (text_of(thread, "folder_paths") or "").split("\n")
            summary = text_of(thread, "detailed_summary")
            yield About(title=text_of(thread, "summary"), title_rank=2, summary=summary, cwd=folders[0] or None)
        elif "tokens" in record:
            tokens = record["tokens"]
            # Of the thread, not of a model call: they count at its first turn.
            yield from self.writer(ts=self._begun, model=self._model).usage(
                by_time=True,
                fresh=tokens.get("input_tokens"),
                output=tokens.get("output_tokens"),
                cache_read=tokens.get("cache_read_input_tokens"),
                cache_write=tokens.get("cache_creation_input_tokens"),
            )
        else:
            yield from self._message(record["message"], record["index"])

    def _message(self, message: Any, index: int) -> Iterator[Item]:
        """Newer threads name a message by its kind, older ones by a role. None has a time."""
        write = self.writer(str(index), ts=None if index else self._begun, model=self._model)
        if isinstance(message, str):  # "Resume": a request to go on
            return
        if "role" in message:
            yield from self._old_message(write, message)
            return
        kind, value = next(iter(mapping_of(message).items()), (None, None))
        content = mapping_of(value).get("content")
        match kind:
            case "User":
                texts = [_user_text(mapping_of(part)) for part in list_of(content)]
                yield write.prompt("prompt", "\n".join(filter(None, texts)))
            case "Agent":
                yield from self._answer(write, mapping_of(value))
            case "Compaction":
                yield write.event("summary", EventType.COMPACTION, text_of(value, "Summary") or encode(value))
            case _:
                yield write.event("raw", EventType.UNKNOWN, encode({"type": kind, "message": value}))

    def _answer(self, write: Writer, answer: Payload) -> Iterator[Item]:
        results = mapping_of(answer, "tool_results")
        parts = mappings_of(answer.get("content"))
        calls = any("ToolUse" in part for part in parts)
        for number, part in enumerate(parts):
            kind, value = next(iter(part.items()), (None, None))
            name = str(number)
            match kind:
                case "Text" if isinstance(value, str) and value:
                    yield write.answer(name, value, may_end_turn=not calls)
                case "Thinking":
                    if thought := text_of(value, "text"):
                        yield write.thought(name, thought)
                case "ToolUse":
                    call_id, tool = text_of(value, "id") or name, text_of(value, "name") or "unknown"
                    yield write.call(f"call {name}", tool, call_id, mapping_of(value).get("input"))
                    if result := mapping_of(results.get(call_id)):
                        yield _result(write, name, tool, call_id, result)
                case "Text" | "RedactedThinking":
                    pass
                case _:
                    yield write.event(name, EventType.UNKNOWN, encode(part))

    def _old_message(self, write: Writer, message: Payload) -> Iterator[Item]:
        segments = message.get("segments")
        if message.get("role") == "user":
            yield from self._blocks.user(write, segments or message.get("text"))
        else:
            uses, results = message.get("tool_uses"), message.get("tool_results")
            blocks = [*list_of(segments), *[{"type": "tool_use", **mapping_of(use)} for use in list_of(uses)]]
            yield from self._blocks.assistant(write, blocks)
            for number, result in enumerate(mappings_of(results)):
                yield _result(write, str(number), None, text_of(result, "tool_use_id"), result)


def _user_text(part: Payload) -> str:
    mention = mapping_of(part, "Mention")
    return text_of(part, "Text") or text_of(mention, "content") or ""


def _result(write: Writer, part: str, tool: str | None, call_id: str | None, result: Payload) -> Item:
    content = result.get("content")
    texts = [text_of(entry, "Text") or "" for entry in list_of(content)]
    text = "\n".join(texts) or text_of(mapping_of(content), "Text") or (content if isinstance(content, str) else "")
    return write.text_result(f"result {part}", tool, call_id, text, failed=result.get("is_error") is True)
