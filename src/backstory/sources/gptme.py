"""gptme: `logs/<name>/conversation.jsonl` below `~/.local/share/gptme`, with title and folder in `config.toml`.

Tools are part of the text: `@tool(call id): {arguments}`, or a block of code whose language is a tool. What a tool
answers is a system message. Times are local and have no zone.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from ..model import EventType, digest, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import exit_code_in, readable
from .decoding import head_records, read_file
from .fields import Payload, arguments_of, mapping_of, text_of
from .parsing import PendingMemory, RecordParser, restored, tokens_of, version_of, with_cached, with_news

_CONFIG = "config.toml"
_EXIT_CODE = re.compile(r"^Return code: (\d{1,5})$", re.MULTILINE)
_THINKING = re.compile(r"<think(?:ing)?>(.*?)(?:</think(?:ing)?>|\Z)", re.DOTALL)
_CALL = re.compile(r"^@(\w{1,64})(?:\(([\w.:-]{0,128})\))?:[ \t]*(\{.*)$", re.MULTILINE)
_BLOCK = re.compile(
    r"^```(shell|ipython|save|append|patch|morph|tmux|gh|complete|todowrite)\b([^\n]*)\n(.*?)^```", re.M | re.S
)


class Gptme(Source):
    name = "gptme"

    def accepts(self, path: Path) -> bool:
        return path.name == "conversation.jsonl"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        records = list(head_records(path, head))
        if not any("role" in record and "content" in record for record in records):
            return None
        begun = next((time for record in records if (time := _local_time(record.get("timestamp")))), 0)
        return Transcript(source=self.name, path=path, session=path.parent.name, begun=begun)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return GptmeParser(transcript, restored(PendingMemory, state))

    def outdated(self, read: Iterable[tuple[str, str, Mapping[str, Any]]]) -> Iterable[str]:
        return with_news(read, _CONFIG)


class _Call(NamedTuple):
    start: int
    end: int
    tool: str
    id: str | None
    arguments: Any


class GptmeParser(RecordParser[PendingMemory]):
    def read(self, record: Payload) -> None:
        if self.memory.count == 1:
            self._note_config()
        self.ts = _local_time(record.get("timestamp"))
        role, text = text_of(record, "role"), readable(record.get("content"))
        # A conversation that is forked or edited is written anew: the message identifies itself.
        identity = f"{record.get('timestamp')} {digest(role or '', text).hex()}"
        if role == "user":
            if text.strip():
                self.add_prompt(text.strip(), identity)
        elif role == "assistant":
            self._read_answer(record, text, identity)
        elif role in ("system", "tool"):
            self._read_system(record, text, identity)
        else:
            self.add_unknown(record, identity)

    def finish(self) -> Iterable[Item]:
        self.reset()
        self._note_config()
        return [*self.items, TurnEnd(provisional=True)]

    def _note_config(self) -> None:
        path = self.transcript.path.with_name(_CONFIG)
        self.memory.beside = version_of(path)
        try:
            chat = mapping_of(tomllib.loads(read_file(path).decode()), "chat")
        except (OSError, ValueError):
            return
        self.memory.model = self.memory.model or text_of(chat, "model")
        self.note(cwd=_folder(path, text_of(chat, "workspace")), title=text_of(chat, "name"), title_rank=2)

    def _read_answer(self, record: Payload, text: str, identity: str) -> None:
        metadata = mapping_of(record, "metadata")
        self.memory.model = text_of(metadata, "model") or self.memory.model
        key = self._read_usage(metadata, identity)
        if "<think" in text:
            for number, thought in enumerate(_THINKING.findall(text)):
                if thought.strip():
                    self.add_reasoning(thought.strip(), identity, f"thought {number}", usage_key=key)
            text = _THINKING.sub("", text)
        calls = list(_calls(text))
        said = _without(text, calls).strip()
        if said:
            self.add_answer(said, identity, "answer", usage_key=key, may_end_turn=not calls)
        for number, call in enumerate(calls):
            call_id = call.id or f"{identity} {number}"
            self.memory.await_result(call_id)
            self.add_call(call.tool, call_id, call.arguments, identity, str(number), usage_key=key)

    def _read_usage(self, metadata: Payload, identity: str) -> bytes | None:
        tokens = tokens_of(
            metadata.get("usage"),
            input_tokens="input_tokens",
            output_tokens="output_tokens",
            cache_read_tokens="cache_read_tokens",
            cache_write_5m_tokens="cache_creation_tokens",
            reasoning_tokens="reasoning_tokens",
        )
        if not tokens:
            return None
        cost = metadata.get("cost")
        return self.add_usage(
            identity, **with_cached(tokens), cost=cost if isinstance(cost, float) and cost > 0 else None
        )

    def _read_system(self, record: Payload, text: str, identity: str) -> None:
        """An answer of a tool, or context for the model: what is pinned or hidden stands in every conversation."""
        call_id, pending = text_of(record, "call_id"), self.memory.pending
        if record.get("pinned") or record.get("hide"):
            return
        if call_id is None and pending:
            call_id = pending[0]
        if call_id is None and record.get("role") == "system":
            self.add(EventType.SYSTEM, text, identity)
            return
        if call_id in pending:
            pending.remove(call_id)
        event = self.add_response(
            text,
            call_id,
            identity,
            tool=text_of(mapping_of(record, "metadata"), "tool"),
            exit_code=exit_code_in(text, _EXIT_CODE),
            failed=text.startswith("Error"),
        )
        if event.tool == "complete":
            self.end_turn()


def _calls(text: str) -> Iterator[_Call]:
    # Most texts have no call, which a search for a plain string shows several times as fast.
    found = [
        _Call(match.start(), match.end(), match[1], match[2] or None, arguments_of(match[3]))
        for match in (_CALL.finditer(text) if text.startswith("@") or "\n@" in text else ())
    ]
    for match in _BLOCK.finditer(text) if "```" in text else ():
        arguments = {"args": match[2].strip(), "content": match[3]} if match[2].strip() else {"content": match[3]}
        found.append(_Call(match.start(), match.end(), match[1], None, arguments))
    end = 0
    for call in sorted(found):
        if call.start >= end:
            end = call.end
            yield call


def _without(text: str, calls: list[_Call]) -> str:
    for call in reversed(calls):
        text = text[: call.start] + text[call.end :]
    return text


def _local_time(value: Any) -> int | None:
    """A time without a zone is local."""
    try:
        return round(datetime.fromisoformat(value).timestamp() * 1_000) if isinstance(value, str) else parse_time(value)
    except (OverflowError, OSError, ValueError):
        return None


def _folder(config: Path, workspace: str | None) -> str | None:
    """The working directory; `~` is the home that the logs lie in."""
    if workspace is None or workspace.startswith("@"):
        return None
    if workspace == "~" or workspace.startswith("~/"):
        parts = config.parts
        home = Path(*parts[: parts.index(".local")]) if ".local" in parts else Path.home()
        return str(home / workspace[2:])
    return workspace if Path(workspace).is_absolute() else None
