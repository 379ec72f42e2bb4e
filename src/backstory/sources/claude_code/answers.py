"""Assistant records. One API message is written as several records, mostly one per content block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ...model import EventType, digest
from ..base import About, Event, Item, Usage
from ..content import blocks_of, raw_text, readable
from ..fields import text_of
from ..parsing import remember
from .content import has_only_tags
from .state import Call, Entry, State, Thread
from .usage import read_usage

# In Python 3.11 `EventType.NAME` takes ten times as long as a name of the module.
_ANSWER, _CALL, _RESPONSE = EventType.ASSISTANT_RESPONSE, EventType.TOOL_CALL, EventType.TOOL_RESPONSE
AGENT_TOOLS = {"Task", "Agent"}
# Tools whose answer is a person's.
QUESTIONS = {"AskUserQuestion", "ExitPlanMode"}
_FINAL = {"end_turn", "stop_sequence", "max_tokens", "refusal"}
_CALLS = {"tool_use", "server_tool_use", "mcp_tool_use"}
_MEDIA = {"image", "document", "container_upload"}
_MAX_CALLS = 256
_SYNTHETIC = "<synthetic>"
# From about this version on every message has its stop reason. Before, most had none.
_STOP_REASONS_SINCE = (2, 1, 75)


def read_answer(entry: Entry, message: dict[str, Any], key: bytes, state: State) -> None:
    """`key` is that of the model call (`usage_key`)."""
    blocks = blocks_of(message.get("content"))
    if blocks is None:
        entry.add_unknown()
    elif is_synthetic(entry.record, message):
        _read_synthetic(entry, blocks, message)
    else:
        _read_message(entry, blocks, message, key, state)


def is_synthetic(record: dict[str, Any], message: dict[str, Any]) -> bool:
    """True when Claude Code wrote the record in the model's name."""
    return message.get("model") == _SYNTHETIC or record.get("isApiErrorMessage") is True


def _read_synthetic(entry: Entry, blocks: list[Any], message: dict[str, Any]) -> None:
    """Written by Claude Code in the model's name: an API error that ended the turn, or a stand-in for an answer."""
    text = readable(blocks)
    failed = entry.record.get("isApiErrorMessage") is True
    if failed or text_of(message, "stop_reason") in _FINAL:
        entry.add_stop("0", text, failed=failed or None)
    else:
        entry.add("0", EventType.RUNTIME, text)


def _read_message(entry: Entry, blocks: list[Any], message: dict[str, Any], key: bytes, state: State) -> None:
    thread = entry.thread
    if thread.message != (name := key.hex()):
        thread.message, thread.blocks, thread.usage, thread.counted = name, [], [], []
    usage = _add_usage(entry, message, key, state)
    model = usage.model if usage else text_of(message, "model")
    aborted = entry.record.get("isAbortedMidStream") is True
    events = []
    for number, block in enumerate(blocks):
        event = _read_block(entry, str(number), block, model, state)
        if event:
            event.usage_key = key
            if aborted:
                event.extra = {"interrupted": True}
            events.append(event)
    reason = usage.stop_reason if usage else text_of(message, "stop_reason")
    state.end_turns |= reason == "end_turn"
    if events:
        _follow(thread, events[-1])
        if aborted:
            events[-1].ends_turn = True  # and the marker that mostly follows is a better end
        elif reason in _FINAL:
            events[-1].ends_turn = thread.ended = True
        elif reason is None and thread.answered and not _has_stop_reasons(thread.version):
            events[-1].may_end_turn = all(event.type is not _CALL for event in events)
    elif reason in _FINAL:  # nothing readable in it: a thinking block that only has a signature
        entry.end_turn()


def _follow(thread: Thread, event: Event) -> None:
    thread.ended = thread.prompted = thread.compacted = False
    thread.model = event.model or thread.model
    thread.answered = event.type is _ANSWER
    if thread.answered and thread.child:
        thread.said = digest(event.text.strip()).hex()


def _has_stop_reasons(version: str | None) -> bool:
    """True when a message without a stop reason was cut off; in older versions, and where nothing is known, it may be
    whole."""
    parts = (version or "").split(".")[:3]
    return len(parts) == 3 and all(map(str.isdecimal, parts)) and tuple(map(int, parts)) >= _STOP_REASONS_SINCE


def _add_usage(entry: Entry, message: dict[str, Any], key: bytes, state: State) -> Usage | None:
    """Tokens are repeated in every record of a message, and may grow: yielded when they have changed."""
    usage = read_usage(message, entry.record, key)
    if usage is None:
        return None
    counts = [usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, int(usage.stop_reason is not None)]
    if counts != entry.thread.usage:
        entry.thread.usage = counts
        usage.session, usage.ts = entry.thread.session, entry.ts
        entry.items.append(usage)
        entry.thread.counted = state.costs.add_call(usage, entry.thread.counted)
    return usage


def _read_block(entry: Entry, part: str, block: Any, model: str | None, state: State) -> Event | None:
    if isinstance(block, str):
        block = {"type": "text", "text": block}
    if not isinstance(block, dict):
        return entry.add(part, EventType.UNKNOWN, raw_text(block))
    kind = str(block.get("type"))
    if kind in _CALLS:
        return _read_call(entry, part, block, model, state)
    if kind.endswith("tool_result"):  # of tools that run on the server, in the same message
        call_id = text_of(block, "tool_use_id")
        call = entry.thread.calls.pop(call_id, None) if call_id else None
        return entry.add(
            part,
            _RESPONSE,
            readable(block.get("content")),
            tool=call.tool if call else None,
            call_id=call_id,
            originating_model=model,
            failed="error" in (text_of(block.get("content"), "type") or ""),
        )
    type_, text = _plain_block(kind, block)
    # Since 2.1.100 or so every message begins with a thinking block that has a signature and no text; some models begin
    # with an empty line. And events of this message are not yielded twice.
    if not text.strip() or not _is_new(entry, kind, text):
        return None
    return entry.add(part, type_, text, model=model)


def _plain_block(kind: str, block: dict[str, Any]) -> tuple[EventType, str]:
    if kind == "text":
        return _ANSWER, readable(block.get("text"))
    if kind == "thinking":
        return EventType.REASONING, readable(block.get("thinking"))
    if kind == "redacted_thinking":
        return EventType.REASONING, "[redacted]"
    if kind == "fallback":
        models = [side.get("model") for name in ("from", "to") if isinstance(side := block.get(name), dict)]
        return EventType.RUNTIME, f"model fallback: {' -> '.join(map(str, models))}"
    if kind == "compaction":
        return EventType.COMPACTION, readable(block.get("content"))
    if kind in _MEDIA:
        return _ANSWER, readable(block)
    return EventType.UNKNOWN, raw_text(block)


def _read_call(entry: Entry, part: str, block: dict[str, Any], model: str | None, state: State) -> Event | None:
    call_id, tool, arguments = text_of(block, "id"), text_of(block, "name") or "", block.get("input")
    if tool in AGENT_TOOLS:
        state.costs.agents = True
    if call_id and not _is_new(entry, "call", call_id):
        return None
    event = entry.add(
        part,
        _CALL,
        "",
        tool=tool,
        call_id=call_id,
        model=model,
        originating_model=model,
        arguments=arguments,
    )
    if call_id:
        call = _call(tool, arguments, model)
        remember(entry.thread.calls, call_id, call, _MAX_CALLS)
        if response := entry.thread.early.pop(call_id, None):
            _complete(entry, response, call)
    return event


def _complete(entry: Entry, response: Event, call: Call) -> None:
    """Yield a response that stood before its call once more, with the facts of the call."""
    extra = response.extra
    if call.tool in QUESTIONS:
        extra = {**(extra or {}), "asked": True}
    entry.items.append(
        msgspec.structs.replace(response, replaces=True, tool=call.tool, originating_model=call.model, extra=extra)
    )
    if call.title and extra and "child_session" in extra:
        entry.items.append(About(session=extra["child_session"], title=call.title, title_rank=2))


def _call(tool: str, arguments: Any, model: str | None) -> Call:
    if tool not in AGENT_TOOLS or not isinstance(arguments, dict):
        return Call(tool, model)
    prompt = text_of(arguments, "prompt")
    return Call(tool, model, text_of(arguments, "description"), digest(prompt.strip()).hex() if prompt else None)


def _is_new(entry: Entry, kind: str, content: str) -> bool:
    """True for a block of the message that was not yielded yet. (Nothing else is ever taken for a repetition.)"""
    mark = digest(kind, content).hex()
    if mark in entry.thread.blocks:
        return False
    entry.thread.blocks.append(mark)
    return True


_COMMAND_TAGS = ("command-", "local-command-", "skill-format")
_INJECTED_TAGS = (*_COMMAND_TAGS, "ide_", "system-reminder", "user-prompt-submit-hook")
_INTERRUPTS = ("[Request interrupted by user]", "[Request interrupted by user for tool use]")
_SAID = (_ANSWER, _CALL)


# Exchanges. Where history asks what a person typed, an exchange begins with every user record that has text: also with
# a compaction summary, a notification or a shell line. Left out are meta records, tool results, and records of slash
# commands alone.


def mark_user(entry: Entry, message: dict[str, Any], items: Iterable[Item]) -> None:
    """`items` are those that the user record gave; the first that is no tool response stands for the record."""
    text = _text(entry.record, message.get("content"))
    if text is None:
        return
    spoken = (event for event in _own(entry, items) if event.type is not _RESPONSE)
    begin_exchange(next(spoken, None) or entry.add("exchange", EventType.SYSTEM, text), text)


def begin_exchange(event: Event, text: str) -> None:
    event.exchange = "user"
    event.user_text = text if text != event.text else None


def mark_answers(entry: Entry, message: dict[str, Any], items: Iterable[Item]) -> None:
    """`items` are those that the assistant record gave. Texts that Claude Code wrote in the model's name count, too."""
    record = entry.record
    if record.get("isMeta") is True:
        return
    stand_in = is_synthetic(record, message)
    for event in _own(entry, items):
        if event.type in _SAID or (stand_in and event.type is EventType.RUNTIME):
            event.exchange = "assistant"


def _own(entry: Entry, items: Iterable[Item]) -> Iterator[Event]:
    """The events of the session; a record may also hold some of a subagent."""
    return (item for item in items if isinstance(item, Event) and item.session == entry.thread.session)


def _text(record: dict[str, Any], content: Any) -> str | None:
    """The text of the record, if it begins an exchange."""
    if record.get("isMeta") is True:
        return None
    if isinstance(content, str):
        return content if content.strip() and not has_only_tags(content, _COMMAND_TAGS) else None
    if not isinstance(content, list):
        return None
    spoken = [block for block in content if not isinstance(block, dict) or block.get("type") != "tool_result"]
    if not spoken:
        return None
    texts = [block if isinstance(block, str) else text_of(block, "text") or "" for block in spoken]
    if record.get("isCompactSummary") is True or any(map(_is_typed, texts)):
        return readable(spoken)
    return None


def _is_typed(text: str) -> bool:
    """True for a person's text among the blocks of a list: Claude Code puts others there, too."""
    return bool(text.strip()) and text.strip() not in _INTERRUPTS and not has_only_tags(text, _INJECTED_TAGS)
