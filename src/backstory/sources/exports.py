"""Claude.ai and ChatGPT: conversations of a data export, one JSON document each, as `backstory import` keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .content import texts_of
from .decoding import decode_or_none, encode, read_document
from .fields import Payload, list_of, mapping_of, mappings_of, text_of
from .messages import Blocks
from .parsing import StatelessParser, Writer

_CONTEXT = {"user_editable_context", "model_editable_context"}


class _Export(Source):
    """One document for each conversation, which is named after it."""

    def accepts(self, path: Path) -> bool:
        return path.suffix == ".json"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return Transcript(source=self.name, path=path, session=path.stem)


class ClaudeAi(_Export):
    name = "claude-ai"

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Claude(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        conversation = mapping_of(read_document(path))
        yield {"conversation": conversation}
        for message in list_of(conversation.get("chat_messages")):
            yield {"message": mapping_of(message), "model": text_of(conversation, "model")}


class _Claude(StatelessParser):
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
            yield write.prompt("prompt", "\n".join(filter(None, (texts_of(content), *_attachments(message)))))
        else:
            yield from self._blocks.assistant(write, content, ends=True)


def _attachments(message: Payload) -> Iterator[str]:
    """Texts that were pasted or attached are in the export; other files are only named."""
    for name in ("attachments", "files"):
        for file in mappings_of(message.get(name)):
            label = f"[{text_of(file, 'file_name') or 'attachment'}]"
            yield "\n".join(filter(None, (label, text_of(file, "extracted_content"))))


class ChatGpt(_Export):
    name = "chatgpt"

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _ChatGpt(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        """A conversation is a tree; the branch that ends with its current node is the one that is shown."""
        conversation = mapping_of(read_document(path))
        yield {"conversation": conversation}
        mapping = mapping_of(conversation, "mapping")
        branch: list[Payload] = []
        node = text_of(conversation, "current_node")
        seen: set[str] = set()
        while node and node not in seen:
            seen.add(node)
            entry = mapping_of(mapping.get(node))
            if message := mapping_of(entry, "message"):
                branch.append(message)
            node = text_of(entry, "parent")
        for message in reversed(branch):
            yield {"message": message, "model": text_of(conversation, "default_model_slug")}


class _ChatGpt(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "conversation" in record:
            yield About(title=text_of(record["conversation"], "title"), title_rank=2)
            return
        message = record["message"]
        metadata, content = mapping_of(message, "metadata"), mapping_of(message, "content")
        model = text_of(metadata, "model_slug") or record["model"]
        ts = parse_time(message.get("create_time"))
        write = Writer("chatgpt", str(message.get("id")), ts=ts, model=model)
        role, author = mapping_of(message, "author").get("role"), text_of(mapping_of(message, "author"), "name")
        text = _text(content)
        hidden = metadata.get("is_visually_hidden_from_conversation") is True
        if content.get("content_type") in _CONTEXT or role == "system" or hidden:
            if text:
                yield write.event("text", EventType.SYSTEM, text)
        elif role == "user":
            yield write.prompt("prompt", text)
        elif role == "tool":
            yield write.result("result", author, None, text)
        elif content.get("content_type") in ("thoughts", "reasoning_recap"):
            if text:
                yield write.thought("thought", text)
        elif (recipient := text_of(message, "recipient") or "all") != "all":
            given = decode_or_none(text)
            yield write.call("call", recipient, None, given if isinstance(given, dict) else {"input": text})
        elif text:
            ends = message.get("end_turn")
            yield write.answer("text", text, ends_turn=ends is True, may_end_turn=ends is None)


def _text(content: Payload) -> str:
    thoughts = content.get("thoughts")
    if isinstance(thoughts, list):
        return "\n".join(text for thought in thoughts if (text := text_of(thought, "content", "summary")))
    parts = content.get("parts")
    if isinstance(parts, list):
        return "\n".join(text for part in parts if (text := _part(part)))
    return text_of(content, "text", "result", "content", "user_profile", "user_instructions") or ""


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = text_of(part, "content_type") or ""
    if text := text_of(part, "text"):
        return text
    return "[image]" if "image" in kind else "[audio]" if "audio" in kind else encode(part)
