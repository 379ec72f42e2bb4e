"""Live sessions: the files of Backstory's own conversation store, read like any transcript.

A message may be rewritten many times while it is streamed. As long as the status of the session is `working`, such a
message waits until it is complete. Without a status its latest state is read each time, and only the text that was
added since is emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from ..config import LIVE_STATE, configured_live_folder
from ..model import EventType, digest, session_of_file
from .base import About, Event, Item, Lookup, Parser, Source, Transcript, TurnEnd, Usage

_RECENT = 50
_MOST = 2**53
_FINAL = ("end", "length")
_GROWING = (EventType.ASSISTANT_RESPONSE, EventType.REASONING)
# Events that say something without any text.
_TELLING = (EventType.TOOL_CALL, EventType.TOOL_RESPONSE)
Json = dict[str, Any]
Emitted = list[tuple[int, str]]
"""For each text of a message: the length that was emitted, and a digest of it."""


def roots_of(home: Path, environ: Mapping[str, str]) -> list[Path]:
    folder = configured_live_folder(home, environ)
    return [folder] if folder is not None else []


class Live(Source):
    name = "live"

    def accepts(self, path: Path) -> bool:
        return session_of_file(path.name) is not None and path.parent.parent.name != LIVE_STATE

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        session = session_of_file(path.name)
        if session is None or not head.startswith(b'{"type":'):
            return None
        return Transcript(source=self.name, path=path, session=session)

    def parser(self, transcript: Transcript, state: Json | None, lookup: Lookup) -> Parser:
        return _Parser(transcript.session, msgspec.convert(state or {}, _State))


class _State(msgspec.Struct):
    about: tuple[str, str, str | None] | None = None
    status: str = "idle"
    copied_until: int | None = None
    """The time of the fork that made the session. Its entries up to then are copies."""
    model: str | None = None
    """The model of the latest answer, to which the results of functions belong."""
    failure: str | None = None
    """The failure that the latest entry names."""
    waiting: Json | None = None
    """The latest entry, which may be rewritten soon."""
    emitted: dict[str, Emitted] = {}
    """The latest entries, with the texts that were emitted."""


class _Parser:
    def __init__(self, session: str, state: _State) -> None:
        self._session = session
        self._state = state

    def state(self) -> Json:
        plain: Json = msgspec.to_builtins(self._state)
        return plain

    def parse(self, record: Any) -> Iterable[Item]:
        kind = record["type"]
        if kind in ("entry", "append"):
            yield from self._written(record["entry"])
        if kind in ("meta", "append"):
            yield from self._described(record["meta"])

    def finish(self) -> Iterable[Item]:
        if self._state.waiting is not None and not self._is_streamed(self._state.waiting):
            yield from self._release()

    def _described(self, meta: Json) -> Iterator[Item]:
        about = (str(meta["title"]), str(meta["description"]), meta.get("forked_from"))
        if about != self._state.about:
            self._state.about = about
            title, description, source = about
            yield About(title=title or None, title_rank=3, summary=description or None, forked_from=source)
            self._state.copied_until = meta["created_at"] if source else None
        before, self._state.status = self._state.status, str(meta["status"])
        if before != "error" == self._state.status and (self._state.waiting or self._state.emitted):
            yield from self._release()
            if self._state.failure is None or meta.get("status_reason") not in (None, "", self._state.failure):
                yield _failure(self._session, meta)
        elif before == "working" != self._state.status:
            yield from self._release()
            yield TurnEnd()

    def _written(self, entry: Json) -> Iterator[Item]:
        waiting = self._state.waiting
        if waiting is not None and waiting["id"] != entry["id"]:
            yield from self._release()
        self._state.waiting = entry

    def _is_streamed(self, entry: Json) -> bool:
        """True if the message is still being streamed."""
        message = entry.get("message") or {}
        unfinished = entry.get("revision") or not _has_text(message.get("content"))
        return self._state.status == "working" and message.get("role") == "assistant" and bool(unfinished)

    def _release(self) -> Iterator[Item]:
        entry, self._state.waiting = self._state.waiting, None
        if entry is None:
            return
        before = self._state.emitted.pop(entry["id"], [])
        emitted: Emitted = []
        self._state.failure = None
        is_copy = self._state.copied_until is not None and entry["timestamp"] <= self._state.copied_until
        for item in _items(self._session, entry, self._state.model):
            if is_copy and isinstance(item, Usage):
                continue  # it counts where it was spent
            if isinstance(item, Event) and item.type in _GROWING:
                item, part = _added(item, before[len(emitted)] if len(emitted) < len(before) else (0, _mark("")))
                emitted.append(part)
            if isinstance(item, Event):
                self._state.model = item.model or self._state.model
                if item.type is EventType.RUNTIME and item.failed:
                    self._state.failure = item.text
            if not isinstance(item, Event) or item.text.strip() or item.type in _TELLING:
                yield item
        self._state.emitted[entry["id"]] = emitted
        if len(self._state.emitted) > _RECENT:
            del self._state.emitted[next(iter(self._state.emitted))]


def _added(answer: Event, before: tuple[int, str]) -> tuple[Event, tuple[int, str]]:
    """The text that was added to an answer, from the start of the word at the seam, and the new state of the text."""
    text, (length, mark) = answer.text, before
    if 0 < length <= len(text) and _mark(text[:length]) == mark:
        start = length
        within_word = length < len(text) and not text[length].isspace()
        while within_word and start and not text[start - 1].isspace():
            start -= 1
        answer = msgspec.structs.replace(answer, text=text[start:], uid=digest(answer.uid.hex(), str(start)))
    return answer, (len(text), _mark(text))


def _mark(text: str) -> str:
    return digest(text).hex()


def _items(session: str, entry: Json, model: str | None) -> Iterator[Item]:
    """The items of an entry. The same text of the same entry has the same uid, wherever in the file it is repeated."""
    common: Json = {"ts": entry["timestamp"]}
    is_revised = bool(entry.get("revision"))

    def uid(*parts: str) -> bytes:
        return digest("live", session, entry["id"], *parts)

    if entry["kind"] == "custom":
        text = _custom_text(entry)
        kind = EventType.COMPACTION if entry["custom_type"] == "compaction" else EventType.RUNTIME
        yield Event(uid=uid("custom", text), type=kind, text=text, **common)
        return
    message = entry["message"]
    text = _text(message["content"])
    match message["role"]:
        case "user":
            for block in message["content"]:
                if block["type"] == "function_result":
                    yield _response(block, uid, {"originating_model": model, "replaces": is_revised, **common})
            text = _text([block for block in message["content"] if block["type"] != "function_result"])
            yield Event(uid=uid("user", text), type=EventType.USER_INPUT, text=text, starts_turn=True, **common)
        case "assistant":
            yield from _answer(message, uid, common, is_revised)
        case "function_result":
            common |= {"tool": message["function_id"], "originating_model": model, "replaces": is_revised}
            yield _response(message, uid, common)
        case _:
            text = text or str(message.get("display") or "")
            yield Event(uid=uid("notice", text), type=EventType.SYSTEM, text=text, **common)


def _response(result: Json, uid: Any, common: Json) -> Event:
    """The result of a call, which is a message or a block of one."""
    call, failed = result["function_call_id"], bool(result.get("is_error"))
    text = _text(result["content"])
    kind = EventType.TOOL_RESPONSE
    return Event(uid=uid("result", call), type=kind, text=text, call_id=call, failed=failed, **common)


def _answer(message: Json, uid: Any, common: Json, is_revised: bool) -> Iterator[Item]:
    common = common | {"model": message["model"], "originating_model": message["model"]}
    reason = message["stop_reason"]
    results = {block["function_call_id"] for block in message["content"] if block["type"] == "function_result"}
    calls = {block["id"] for block in message["content"] if block["type"] == "function_call"}
    ends = reason in _FINAL and calls <= results
    if reason == "aborted":
        common["extra"] = {"interrupted": True}
    usage = message.get("usage")
    if usage:
        yield _usage(uid("usage"), message, usage, common["ts"])
        common["usage_key"] = uid("usage")
    for number, (kind, group) in enumerate(groupby(message["content"], key=_kind_in_answer)):
        for block in [{"type": kind, "text": _text(list(group))}] if kind in ("text", "thinking") else group:
            match kind:
                case "text":
                    kind_ = EventType.ASSISTANT_RESPONSE
                    text = block["text"]
                    yield Event(uid=uid("answer", str(number), text), type=kind_, text=text, ends_turn=ends, **common)
                case "thinking":
                    yield Event(
                        uid=uid("thinking", block["text"]), type=EventType.REASONING, text=block["text"], **common
                    )
                case "function_call":
                    about: Json = {"tool": block["function_id"], "call_id": block["id"], "replaces": is_revised}
                    about["arguments"] = block.get("arguments")
                    yield Event(uid=uid("call", block["id"]), type=EventType.TOOL_CALL, text="", **about, **common)
                case "function_result":
                    yield _response(block, uid, {"replaces": is_revised, **common})
    if ends and (usage or is_revised or _has_text(message["content"])):  # otherwise it may just have begun
        yield TurnEnd()
    text = message.get("error_message") or ""
    if reason == "aborted":
        text = text or "The request was aborted."
        yield Event(uid=uid("error", text), type=EventType.RUNTIME, text=text, ends_turn=True, **common)
    elif text or reason == "error":
        text = text or message.get("error_kind") or "The request failed."
        ends = reason == "error"
        yield Event(uid=uid("error", text), type=EventType.RUNTIME, text=text, failed=True, ends_turn=ends, **common)


def _kind_in_answer(block: Json) -> str:
    """The type of a block. An image is a part of the text, which has a placeholder for it."""
    return "text" if block["type"] == "image" else str(block["type"])


def _failure(session: str, meta: Json) -> Event:
    """The end of a turn by the status of its session."""
    time, text = meta["updated_at"], meta.get("status_reason") or "The session failed."
    uid = digest("live", session, "failure", str(time), text)
    return Event(uid=uid, type=EventType.RUNTIME, text=text, ts=time, failed=True, ends_turn=True)


def _usage(key: bytes, message: Json, usage: Json, ts: int) -> Usage:
    # The archive stores counts up to this.
    usage = {name: min(value, _MOST) if isinstance(value, int) else value for name, value in usage.items()}
    read, write = usage.get("cache_read") or 0, usage.get("cache_write") or 0
    return Usage(
        key=key,
        model=message["model"],
        ts=ts,
        input_tokens=min((usage.get("input") or 0) + read + write, _MOST),
        output_tokens=usage.get("output") or 0,
        cache_read_tokens=read,
        cache_write_5m_tokens=write,
        reasoning_tokens=usage.get("reasoning") or 0,
        cost=usage.get("cost_usd"),
        stop_reason=message["stop_reason"],
    )


def _text(content: list[Json]) -> str:
    return "\n".join(filter(None, map(_block_text, content)))


def _block_text(block: Json) -> str:
    match block["type"]:
        case "image":
            return f"[image {block['mime']}]"
        case "function_result":
            return _text(block["content"])
    return str(block.get("text", ""))


def _has_text(content: Any) -> bool:
    return any(block.get("text") or block.get("type") == "function_call" for block in content or [])


def _custom_text(entry: Json) -> str:
    """The summary of a compaction or a text; otherwise the data as JSON."""
    data = entry.get("data")
    if isinstance(data, dict) and isinstance(data.get("summary"), str):
        return str(data["summary"])
    if data is None or isinstance(data, str):
        return data or str(entry["custom_type"])
    return f"{entry['custom_type']}: {msgspec.json.encode(data).decode()}"
