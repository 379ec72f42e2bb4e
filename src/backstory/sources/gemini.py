"""Gemini CLI and its fork Tabnine: messages of Gemini's API.

Gemini CLI writes `tmp/<project>/chats/session-*.jsonl` below `~/.gemini`, versions before 0.40 `.json` files. The JSON
Lines are a log of changes: a header, messages, `$set` with new values of the header or with whole messages, `$rewindTo`
with the message from which the conversation starts again. A message that is written again, by its id, replaces the
earlier one; a resume writes all of them again with new times. The first time counts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from ..model import EventType, digest, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import exit_code_in, function_response, is_unknown_part, parts_text, readable
from .decoding import begun_at, head_records, read_file, read_mapping
from .fields import Payload, list_of, mapping_of, only_mappings, text_of
from .parsing import Memory, RecordParser, remember, restored, tokens_of

_EXIT_CODE = re.compile(r"^Exit Code: (\d{1,5})$", re.MULTILINE)
_MODEL_TYPES = {"gemini", "model", "assistant", "tabnine"}
_NOTES = {"info", "warning", "error"}
_CONTEXT = "<session_context>"
_SUMMARY = re.compile(r"\s*(?:<scratchpad>.*</scratchpad>\s*)?<state_snapshot>", re.DOTALL)
_CANCELLED = "Request cancelled."
_FAILURES = {"error", "cancelled"}
_MAX_SEEN = 2_048


class GeminiCli(Source):
    name = "gemini-cli"

    def accepts(self, path: Path) -> bool:
        return path.suffix in (".json", ".jsonl") and "chats" in path.parts[-4:-1]

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        header = _json_header(head) if path.suffix == ".json" else next(head_records(path, head), {})
        session = text_of(header, "sessionId")
        if session is None or not ("projectHash" in header or "startTime" in header):
            return None
        parent = None if path.parent.name == "chats" else path.parent.name
        if parent == session:
            session = f"{parent}/{path.stem}"
        return Transcript(
            source=self.name,
            path=path,
            session=session,
            parent=parent,
            begun=begun_at([header], "startTime"),
            # A session that is resumed by a newer version goes on as JSON Lines, with all that the JSON file has.
            rank=(path.suffix == ".jsonl", path.name),
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return GeminiParser(transcript, restored(GeminiMemory, state))

    def records(self, path: Path) -> Iterator[Any] | None:
        if path.suffix != ".json":
            return None
        document = msgspec.json.decode(path.read_bytes())
        if not isinstance(document, dict) or not isinstance(messages := document.pop("messages", []), list):
            raise ValueError("not a session of Gemini CLI: it has no list of messages")
        return iter([document, *messages])


class Tabnine(GeminiCli):
    """Tabnine's agent, which keeps its sessions as Gemini CLI does."""

    name = "tabnine"


class GeminiMemory(Memory):
    seen: dict[str, str] = field(default_factory=dict)
    """Digests of the latest messages, by id."""


def _is_summary(message: Payload) -> bool:
    """True for the summary of a compression, which the agent gives to the model as the user's message."""
    return message.get("type") == "user" and _SUMMARY.match(parts_text(message.get("content"))) is not None


class GeminiParser(RecordParser[GeminiMemory]):
    def read(self, record: Payload) -> None:
        if isinstance(changes := record.get("$set"), dict):
            self._note_header(changes)
            self._read_history(only_mappings(changes.get("messages")))
        elif target := text_of(record, "$rewindTo"):
            text = "The conversation was rewound to an earlier message."
            self.add(EventType.RUNTIME, text, self.transcript.session, "rewind", target, str(self.memory.count))
        elif "type" in record and "sessionId" not in record:
            self._read_message(record)
        else:
            self._note_header(record)

    def finish(self) -> list[Item]:
        return [TurnEnd(provisional=True)]

    def _note_header(self, header: Payload) -> None:
        summary = text_of(header, "summary")
        directories = header.get("directories")
        cwd = directories[0] if isinstance(directories, list) and directories else None
        if cwd is None and self.memory.count == 1:
            cwd = _project_of(self.transcript.path)
        self.note(
            cwd=cwd if isinstance(cwd, str) else None,
            title=summary,
            title_rank=1 if summary else 0,
            summary=summary,
            parent=self.transcript.parent,
        )

    def _read_history(self, messages: Iterable[Payload]) -> None:
        """The messages that the model is told from now on. A resume repeats known ones, without their thoughts, tokens
        and tools. A compression repeats the latest ones under other ids, after a summary of the others."""
        is_compressed = False
        for message in messages:
            identity = text_of(message, "id")
            if identity in self.memory.seen and "toolCalls" not in message:
                continue
            if is_compressed and identity and identity not in self.memory.seen:
                remember(self.memory.seen, identity, "", _MAX_SEEN)
                continue
            self._read_message(message)
            is_compressed = is_compressed or _is_summary(message)

    def _read_message(self, message: Payload) -> None:
        identity = text_of(message, "id") or f"record {self.memory.count}"
        lasting = {name: value for name, value in message.items() if name != "timestamp"}
        mark = digest(msgspec.json.encode(lasting).decode()).hex()[:8]
        known = self.memory.seen.get(identity)
        if known == mark:
            return
        remember(self.memory.seen, identity, mark, _MAX_SEEN)
        time = parse_time(message.get("timestamp"))
        self.ts = None if known else time
        kind = text_of(message, "type") or ""
        if kind in _MODEL_TYPES:
            self._read_answer(message, identity, time)
        elif kind == "user":
            self._read_user(message, identity)
        elif kind in _NOTES:
            if text := parts_text(message.get("content")):
                extra = {"interrupted": True} if text == _CANCELLED else None
                self._say(EventType.RUNTIME, text, identity, "note", ends_turn=bool(extra), extra=extra)
        else:
            self.add_unknown(message, self.transcript.session, identity)
        content = message.get("content")
        self.add_unknown_blocks(content, self.transcript.session, identity, unknown=is_unknown_part)

    def _say(self, kind: EventType, text: str, identity: str, part: str, **more: Any) -> None:
        model = self.memory.model if kind in (EventType.ASSISTANT_RESPONSE, EventType.REASONING) else None
        self.add(kind, text, self.transcript.session, identity, part, replaces=True, model=model, **more)

    def _read_user(self, message: Payload, identity: str) -> None:
        content = message.get("content")
        for part in list_of(content):
            response = mapping_of(part, "functionResponse")
            call_id = text_of(response, "id")
            if call_id and call_id in self.memory.calls:
                self._respond(call_id, function_response(response.get("response")), None)
        text = (parts_text(message.get("displayContent")) or parts_text(content)).strip()
        if text.startswith(_CONTEXT):
            self._say(EventType.SYSTEM, text, identity, "context")
        elif _is_summary(message):
            self._say(EventType.COMPACTION, text, identity, "compaction")
        elif text:
            self._say(EventType.USER_INPUT, text, identity, "prompt", starts_turn=True)

    def _read_answer(self, message: Payload, identity: str, time: int | None) -> None:
        self.memory.model = text_of(message, "model") or self.memory.model
        tokens = tokens_of(
            message.get("tokens"),
            input_tokens="input",
            output_tokens="output",
            cache_read_tokens="cached",
            reasoning_tokens="thoughts",
        )
        key = None
        if tokens:
            # The agent counts thoughts beside the output, and prompts of its own tools beside the input.
            tokens["output_tokens"] = tokens.get("output_tokens", 0) + tokens.get("reasoning_tokens", 0)
            tools = tokens_of(message.get("tokens"), tool="tool").get("tool", 0)
            tokens["input_tokens"] = tokens.get("input_tokens", 0) + tools
            key = self.add_usage(self.transcript.session, identity, **{**tokens, "ts": time})
        for number, thought in enumerate(list_of(message.get("thoughts"))):
            text = "\n".join(filter(None, (text_of(thought, "subject"), text_of(thought, "description"))))
            if text:
                self._say(EventType.REASONING, text, identity, f"thought {number}", usage_key=key)
        calls = only_mappings(message.get("toolCalls"))
        if text := parts_text(message.get("content")):
            self._say(EventType.ASSISTANT_RESPONSE, text, identity, "answer", usage_key=key, may_end_turn=not calls)
        for number, call in enumerate(calls):
            self.ts = time
            self._read_call(call, text_of(call, "id") or f"{identity}/{number}", key)

    def _read_call(self, call: Payload, call_id: str, key: bytes | None) -> None:
        tool = text_of(call, "name") or "unknown"
        # Tabnine writes the call and its result as two messages, the second one without arguments.
        if "args" in call or call_id not in self.memory.calls:
            session = self.transcript.session
            self.add_call(tool, call_id, call.get("args"), session, "call", call_id, replaces=True, usage_key=key)
        result = call.get("result")
        if result is None and "resultDisplay" not in call:
            return
        responses = [mapping_of(part, "functionResponse") for part in list_of(result)]
        texts = [function_response(response.get("response")) for response in responses if response]
        text = "\n".join(texts) or readable(result) or readable(call.get("resultDisplay"))
        self.ts = parse_time(call.get("timestamp")) or self.ts
        self._respond(call_id, text, text_of(call, "status"), tool)

    def _respond(self, call_id: str, text: str, status: str | None, tool: str | None = None) -> None:
        self.add_response(
            text,
            call_id,
            self.transcript.session,
            "response",
            call_id,
            replaces=True,
            tool=tool,
            exit_code=exit_code_in(text, _EXIT_CODE),
            failed=None if status is None else status in _FAILURES,
        )


def _json_header(head: bytes) -> Payload:
    """The strings among the first values of a JSON document, of which only the beginning is at hand."""
    found = dict(re.findall(rb'"(sessionId|projectHash|startTime)"\s*:\s*"([^"\\]{1,200})"', head))
    return {name.decode(): value.decode("utf-8", "replace") for name, value in found.items()}


def _project_of(path: Path) -> str | None:
    """The working directory. Folders of projects are named by a list of projects, or by the digest of the directory."""
    folder = next((parent.parent for parent in path.parents if parent.name == "chats"), path.parent)
    try:
        root = read_file(folder / ".project_root").decode().strip()
    except (OSError, ValueError):
        root = ""
    if root:
        return root
    for project, name in mapping_of(read_mapping(folder.parent.parent / "projects.json"), "projects").items():
        if folder.name in (name, hashlib.sha256(project.encode()).hexdigest()):
            return project
    return None
