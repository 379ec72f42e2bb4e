"""Claude.ai: conversations of a data export, one JSON document each, as `backstory import` keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .decoding import read_document
from .fields import Payload, list_of, mapping_of, mappings_of, text_of
from .messages import Blocks
from .parsing import StatelessParser, Writer


class ClaudeAi(Source):
    name = "claude-ai"

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return Transcript(source=self.name, path=path, session=path.stem)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Conversation(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        conversation = mapping_of(read_document(path))
        yield {"conversation": conversation}
        for message in list_of(conversation.get("chat_messages")):
            yield {"message": mapping_of(message), "model": text_of(conversation, "model")}


class _Conversation(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._blocks = Blocks()

    def parse(self, record: Payload) -> Iterator[Item]:
        if "conversation" in record:
            conversation = record["conversation"]
            yield About(title=text_of(conversation, "name"), title_rank=2, summary=text_of(conversation, "summary"))
            return
        message = record["message"]
        ts = parse_time(message.get("created_at"))
        write = Writer("claude-ai", str(message.get("uuid")), ts=ts, model=record["model"])
        content = message.get("content") or message.get("text")
        if message.get("sender") == "human":
            yield write.prompt("prompt", "\n".join(filter(None, (_text(content), *_attachments(message)))))
        else:
            yield from self._blocks.assistant(write, content, ends=True)


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(text for block in content if (text := text_of(block, "text")))
    return content if isinstance(content, str) else ""


def _attachments(message: Payload) -> Iterator[str]:
    """Texts that were pasted or attached are in the export; other files are only named."""
    for name in ("attachments", "files"):
        for file in mappings_of(message.get(name)):
            label = f"[{text_of(file, 'file_name') or 'attachment'}]"
            yield "\n".join(filter(None, (label, text_of(file, "extracted_content"))))
