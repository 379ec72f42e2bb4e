"""Mistral Vibe: `logs/session/<session>/messages.jsonl`; since version 3 the store `logs/session/unified/<session>/`.

The store is a folder. `CURRENT` names a generation, whose manifest names chunks of entries, and a journal with the
changes since. All of it is read again when it changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import Item, Lookup, Parser, Source, Transcript, TurnEnd
from .content import raw_text, readable, spoken
from .decoding import begun_at, head_records, read_document, read_file, read_mapping, records_in
from .fields import Payload, integer, list_of, mapping_of, mappings_of, text_of
from .messages import read_completion
from .parsing import Memory, RecordParser, restored, tokens_of

_UNIFIED = "unified"
_META = "meta.json"
_FAILED = {"failed", "error", "denied", "cancelled"}


class MistralVibe(Source):
    name = "mistral-vibe"

    def accepts(self, path: Path) -> bool:
        return path.name == "messages.jsonl" and _UNIFIED not in path.parts

    def gathers(self, folder: Path) -> bool:
        return folder.parent.name == _UNIFIED and not folder.name.startswith(".")

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        is_store = path.parent.name == _UNIFIED
        folder = path if is_store else path.parent
        if is_store and not (path / "CURRENT").exists():
            return None
        if not is_store and not any("role" in record for record in head_records(path, head)):
            return None
        meta = read_mapping(folder / _META)
        return Transcript(
            source=self.name,
            path=path,
            session=text_of(meta, "session_id") or folder.name,
            parent=text_of(meta, "parent_session_id"),
            begun=begun_at([meta], "start_time"),
        )

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        if transcript.path.parent.name == _UNIFIED:
            return StoreParser(transcript, restored(Memory, state))
        return MessagesParser(transcript, restored(Memory, state))

    def records(self, path: Path) -> Iterator[Any] | None:
        return _entries(path) if path.parent.name == _UNIFIED else None


class VibeParser(RecordParser[Memory]):
    def note_meta(self, meta: Payload) -> None:
        config = mapping_of(meta, "config")
        self.memory.model = self.memory.model or text_of(config, "model_name", "active_model") or text_of(meta, "model")
        rank = 3 if meta.get("title_source") == "manual" else 2
        self.note(
            cwd=text_of(mapping_of(meta, "environment"), "working_directory"),
            branch=text_of(meta, "git_branch"),
            title=text_of(meta, "title"),
            title_rank=rank,
            parent=self.transcript.parent,
        )

    def add_total(self, tokens: dict[str, int]) -> None:
        """The tokens are known for the session as a whole: they count for its first turn."""
        if tokens:
            begun = self.transcript.begun or None
            self.add_usage(self.transcript.session, **tokens, ts=begun, by_time=begun is not None)


class MessagesParser(VibeParser):
    """Messages in the form of OpenAI's API, without times."""

    def read(self, record: Payload) -> None:
        if self.memory.count == 1:
            self.note_meta(read_mapping(self.transcript.path.with_name(_META)))
        call_id = text_of(record, "tool_call_id")
        name = text_of(record, "message_id") or call_id or f"record {self.memory.count}"
        identity = f"{self.transcript.session} {name}"
        role, text = text_of(record, "role"), readable(record.get("content"))
        if role == "user":
            if record.get("injected") is True:
                self.add(EventType.SYSTEM, text, identity)
            elif text.strip():
                self.add_prompt(text.strip(), identity)
        elif role == "assistant":
            read_completion(self, record, identity)
        elif role == "tool":
            failed = text.startswith("<tool_error>")
            self.add_response(text, call_id, identity, "result", tool=text_of(record, "name"), failed=failed)
        elif role != "system":
            self.add_unknown(record, identity)

    def finish(self) -> Iterable[Item]:
        self.reset()
        meta = read_mapping(self.transcript.path.with_name(_META))
        self.note_meta(meta)
        names = {"input_tokens": "session_prompt_tokens", "output_tokens": "session_completion_tokens"}
        self.add_total(tokens_of(meta.get("stats"), **names))
        return [*self.items, TurnEnd(provisional=True)]


class StoreParser(VibeParser):
    """Entries of the store, which change until they are completed. The last record is the state of the session."""

    def read(self, record: Payload) -> None:
        self.ts = parse_time(record.get("createdAt"))
        identity = text_of(record, "id") or str(self.memory.count)
        kind = text_of(record, "type")
        if kind == "meta":
            self.note_meta(record)
        elif kind == "message":
            self._read_message(record, identity)
        elif kind == "reasoning":
            if text := text_of(record, "text"):
                self.add_reasoning(text, identity, replaces=True)
        elif kind == "effect":
            self._read_effect(record, identity)
        elif kind == "state":
            self._read_state(record)
        else:
            self.add_unknown(record, identity).replaces = True

    def _read_message(self, record: Payload, identity: str) -> None:
        text, role = spoken(record.get("content")), record.get("role")
        turn = text_of(record, "turnId")
        if role == "assistant":
            self.add_answer(text, identity, replaces=True, may_end_turn=True, turn_key=turn)
        elif role == "user" and record.get("source") in ("turn_start", "queue", "steer"):
            self.add_prompt(text, identity, replaces=True, turn_key=turn)
        else:
            self.add(EventType.SYSTEM, text, identity, replaces=True)
        self.add_unknown_blocks(record.get("content"), identity)

    def _read_effect(self, record: Payload, identity: str) -> None:
        detail, state = mapping_of(record, "detail"), mapping_of(record, "state")
        tool = text_of(detail, "toolName") or text_of(record, "title") or "unknown"
        self.add_call(tool, identity, detail.get("input"), identity, "call", replaces=True)
        output = mapping_of(state, "output")
        if not output:
            return
        structured = mapping_of(output, "structured_content")
        printed = "\n".join(filter(None, (text_of(structured, "stdout"), text_of(structured, "stderr"))))
        text = printed or text_of(state, "outputText") or readable(output.get("content"))
        self.ts = parse_time(record.get("updatedAt")) or self.ts
        self.add_response(
            text or (raw_text(structured) if structured else ""),
            identity,
            identity,
            "result",
            replaces=True,
            exit_code=integer(structured.get("returncode")),
            failed=text_of(output, "type") in _FAILED or text_of(state, "status") in _FAILED,
        )

    def _read_state(self, record: Payload) -> None:
        snapshot = mapping_of(record, "snapshot")
        names = {
            "input_tokens": "inputTokens",
            "output_tokens": "outputTokens",
            "cache_read_tokens": "cachedInputTokens",
        }
        self.add_total(tokens_of(mapping_of(snapshot, "session", "tokenUsage"), **names))
        turn = mapping_of(snapshot, "latestTurn")
        status = text_of(turn, "status")
        if status == "completed":
            self.end_turn()
        elif status in ("cancelled", "interrupted", "failed"):
            self.ts = parse_time(turn.get("completedAt"))
            extra = None if status == "failed" else {"interrupted": True}
            identity = f"{text_of(turn, 'id')} {status}"
            self.add(EventType.RUNTIME, f"Turn ended: {status}", identity, ends_turn=True, extra=extra, replaces=True)


def _entries(folder: Path) -> Iterator[Any]:
    """The metadata, the entries of the current generation with the changes of its journal, and the state."""
    yield {**read_mapping(folder / _META), "type": "meta"}
    generation = text_of(read_mapping(folder / "CURRENT"), "generation") or ""
    if not generation.isdigit():
        raise ValueError("CURRENT names no generation")
    place = folder / "generations" / generation
    manifest = mapping_of(read_document(place / "manifest.json"))
    entries: dict[str, Any] = {}
    chunks = mapping_of(manifest, "projection_state").get("chunks")
    for name in list_of(chunks):
        if isinstance(name, str) and name.isalnum():
            try:
                chunk = list_of(read_document(folder / "chunks" / f"{name}.json"))
            except ValueError:
                yield None
                continue
            entries |= {str(mapping_of(entry).get("id")): entry for entry in chunk}
    state = read_mapping(place / "projection-state.json")
    journal = Path(text_of(mapping_of(manifest, "recovery_journal_segment"), "path") or "").name
    for delta in _deltas(folder / "journal" / journal) if journal else ():
        if delta.get("op") == "set_envelope":
            state = {"snapshot": mapping_of(delta, "state")}
        elif isinstance(entry := delta.get("entry"), dict):
            entries[str(entry.get("id"))] = entry
    yield from entries.values()
    yield {**state, "type": "state"}


def _deltas(path: Path) -> Iterator[Payload]:
    try:
        data = read_file(path)
    except FileNotFoundError:
        return
    for record in records_in(data):
        yield from mappings_of(mapping_of(record, "payload").get("delta"))
