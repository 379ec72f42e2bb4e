"""User records: prompts, what was injected in their name, and tool responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...model import EventType, digest
from ..base import About, Event, Item, TurnEnd
from ..content import blocks_of, count_images, readable
from ..fields import text_of
from ..parsing import remember
from .answers import AGENT_TOOLS, QUESTIONS
from .children import Children
from .content import (
    Part,
    Piece,
    exit_code_of,
    is_assignment,
    is_hook_stop,
    is_summary,
    response_text,
    split_prompt,
)
from .state import Call, Entry, State, Thread, Waiting

_INPUT, _RESPONSE = EventType.USER_INPUT, EventType.TOOL_RESPONSE
# Who speaks, where the record says (`promptSource`, `turnOrigin`, `origin.kind`). Other values are left open.
_PEOPLE = {"human", "queued", "sdk", "typed"}
MACHINES = {"coordinator", "peer", "scheduled", "task-notification", "task_notification"}
_PROMPTS = (Part.PROMPT, Part.TASK)
_COMMANDS = (Part.TASK, Part.COMMAND, Part.SHELL)
# Commands of Claude Code after which the model may go on with something else, which they did not ask for.
_CLIENT_COMMANDS = frozenset(
    "add-dir agents allowed-tools bashes branch btw bug clear color compact config context continue copy cost diff "
    "doctor effort exit export extra-usage fast feedback files fork heapdump help hooks ide install-github-app "
    "install-slack-app keybindings login logout mcp memory mobile model new output-style passes permissions plugin "
    "privacy-settings quit rate-limit-options release-notes reload-plugins remote-control remote-env rename reset "
    "resume rewind sandbox session settings skills stats status stickers tag tasks terminal-setup theme todos upgrade "
    "usage vim voice".split()
)
_MAX_EARLY = 8
_MAX_EARLY_CHARS = 256 << 10


def read_input(entry: Entry, message: dict[str, Any], state: State, children: Children, folder: Path) -> None:
    blocks = blocks_of(message.get("content"))
    if blocks is None:
        entry.add_unknown()
        return
    spoken: list[Any] = []
    for number, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            _add_response(entry, str(number), block, children, folder)
        else:
            spoken.append(block)
    thread = entry.thread
    if spoken:
        _read_spoken(entry, spoken, state)
        thread.compacted = False
    elif thread is state.main:
        state.waiting = None


def _read_spoken(entry: Entry, spoken: list[Any], state: State) -> None:
    record, thread, text = entry.record, entry.thread, readable(spoken)
    meta, person = record.get("isMeta") is True, _is_by_a_person(record)
    if record.get("isCompactSummary") is True or (thread.compacted and not person and is_summary(text)):
        entry.add("prompt", EventType.COMPACTION, text)
        return
    if thread.prompted and not meta and not person and is_hook_stop(text):
        entry.add("prompt", EventType.SYSTEM, text, ends_turn=True)
        thread.ended = True
        return
    if not thread.started and not meta and (text.strip() if thread.child else is_assignment(text)):
        pieces = [Piece(Part.PROMPT, text)]  # the task it was given, even if it looks like a command
    else:
        pieces = [piece for block in spoken for piece in split_prompt(readable(block), typed=person)]
    typed = not meta and not _is_by_a_machine(record, thread)
    if typed and record.get("queueTranscriptOnly") is True and not thread.child and not state.queue.repeat(text):
        return
    queued = record.get("promptSource") == "queued"
    if not thread.child:
        for words in (text, *(piece.text for piece in pieces if piece.part in _COMMANDS)):
            queued |= state.queue.claim(words)
        _wait(entry, pieces, state, meta=meta)
    if record.get("promptSource") == "sdk":  # every prompt of a headless run goes through the queue
        queued = False
    add_pieces(entry, pieces, typed=typed, queued=queued, images=count_images(spoken))


def _speakers(record: dict[str, Any]) -> set[str | None]:
    """The speaker, by the record's own fields."""
    return {text_of(record, "turnOrigin"), text_of(record.get("origin"), "kind"), text_of(record, "promptSource")}


def _is_by_a_person(record: dict[str, Any]) -> bool:
    return not _speakers(record).isdisjoint(_PEOPLE)


def _is_by_a_machine(record: dict[str, Any], thread: Thread) -> bool:
    unseen = record.get("isVisibleInTranscriptOnly") is True  # by the model, that is
    if unseen or record.get("promptSource") == "system" or text_of(record, "sourceToolUseID"):
        return True
    # Subagents are spoken to by machines: that is their conversation.
    return not thread.child and not _speakers(record).isdisjoint(MACHINES)


def _wait(entry: Entry, pieces: list[Piece], state: State, *, meta: bool) -> None:
    """Note what may be a prompt, if the model goes on with it. Anything else that is said comes between them."""
    waiting, state.waiting = state.waiting, None
    for part, text in pieces:
        if part is Part.OUTPUT or (meta and part is Part.PROMPT):
            if waiting:
                waiting.printed |= part is Part.OUTPUT
                waiting.begun |= part is Part.OUTPUT and _is_by_a_person(entry.record)
                waiting.expanded |= part is Part.PROMPT
            state.waiting = waiting
        elif part is Part.SHELL or (part is Part.COMMAND and text[1:].partition(" ")[0] not in _CLIENT_COMMANDS):
            stamp = text_of(entry.record, "timestamp")
            waiting = Waiting(entry.identity, text, stamp, part is Part.SHELL)
            state.waiting = None if meta else waiting


def add_waiting(state: State) -> list[Item]:
    """The model goes on: a command that waited for that was a prompt."""
    items: list[Item] = []
    waiting, state.waiting = state.waiting, None
    if waiting and waiting.is_prompt:
        entry = Entry({"timestamp": waiting.timestamp}, state.main, waiting.identity, items)
        add_prompt(entry, waiting.text, queued=False)
    return items


def add_pieces(entry: Entry, pieces: list[Piece], *, typed: bool, queued: bool, images: int = 0) -> None:
    """A prompt first, for it opens the turn that what was injected beside it belongs to."""
    prompt = "\n".join(piece.text for piece in pieces if piece.part in _PROMPTS)
    if prompt and typed:
        add_prompt(entry, prompt, queued=queued, images=images)
    elif prompt:
        entry.add("prompt", EventType.SYSTEM, prompt)
    for number, (part, text) in enumerate(pieces):
        name = f"piece {number}"
        if part is Part.INTERRUPT:
            entry.add_stop(name, text, extra={"interrupted": True})
        elif part not in _PROMPTS:
            entry.add(name, EventType.SYSTEM, text)
            if part is Part.COMMAND and text.startswith("/rename "):
                title = text.removeprefix("/rename ").strip()
                entry.items.append(About(session=entry.thread.session, title=title, title_rank=3))


def add_prompt(entry: Entry, text: str, *, queued: bool, images: int = 0) -> Event:
    extra: dict[str, Any] = {}
    if queued:
        extra["queued"] = True
    if images:
        extra["images"] = images
    event = entry.add("prompt", _INPUT, text, starts_turn=True, extra=extra or None)
    thread = entry.thread
    thread.started, thread.prompted, thread.answered, thread.ended = True, True, False, False
    thread.early = {}
    return event


def _add_response(entry: Entry, part: str, block: dict[str, Any], children: Children, folder: Path) -> None:
    thread, result = entry.thread, entry.record.get("toolUseResult")
    call_id = text_of(block, "tool_use_id") or text_of(entry.record, "sourceToolUseID")
    call = thread.calls.pop(call_id, None) if call_id else None
    text = response_text(block, result, folder)
    failed = block.get("is_error") is True
    child = _child_of(call, call_id, result, children)
    event = entry.add(
        part,
        _RESPONSE,
        text,
        tool=call.tool if call else None,
        call_id=call_id,
        originating_model=call.model if call else None,
        exit_code=exit_code_of(text, result, failed),
        failed=failed,
        extra=_facts(block, entry.record, call, child),
    )
    thread.answered = thread.ended = thread.prompted = thread.compacted = False
    if call_id and not call and len(text) <= _MAX_EARLY_CHARS:
        remember(thread.early, call_id, event, _MAX_EARLY)
    if child:
        if about := children.link(child, call_id, call.title if call else None):
            entry.items.append(about)
        if children.is_inline(child) and text_of(result, "status") != "async_launched" and not failed:
            answer = readable(result.get("content")) if isinstance(result, dict) else ""
            _end_child(entry, part, children.thread(child), answer.strip() or text.strip())


def _end_child(entry: Entry, part: str, child: Thread, answer: str) -> None:
    """A subagent has handed back its answer, which its own records may have, too."""
    if child.answered and (not child.repeated or child.said == digest(answer).hex()):
        entry.items.append(TurnEnd(session=child.session))
    elif answer:
        event = Entry(entry.record, child, entry.identity, entry.items).add(
            f"{part} of child", EventType.ASSISTANT_RESPONSE, answer, model=child.model, ends_turn=True
        )
        child.answered, child.said = True, digest(event.text).hex()
    child.ended = True


def _child_of(call: Call | None, call_id: str | None, result: Any, children: Children) -> str | None:
    """The subagent that a response is of."""
    if agent := text_of(result, "agentId"):
        return children.session_of(agent)
    return children.started_by(call_id) if call_id and call and call.tool in AGENT_TOOLS else None


def _facts(
    block: dict[str, Any], record: dict[str, Any], call: Call | None, child: str | None
) -> dict[str, Any] | None:
    facts: dict[str, Any] = {}
    result = record.get("toolUseResult")
    if child:
        facts["child_session"] = child
    if images := count_images(block.get("content")):
        facts["images"] = images
    if isinstance(result, dict):
        duration = result.get("totalDurationMs") or result.get("durationMs")
        if isinstance(duration, int | float) and duration > 0:
            facts["duration_ms"] = duration
        if result.get("interrupted") is True:
            facts["interrupted"] = True
    if (call and call.tool in QUESTIONS) or _waited_for_permission(record, "duration_ms" in facts):
        facts["asked"] = True
    return facts or None


def _waited_for_permission(record: dict[str, Any], timed: bool) -> bool:
    """A person decided, and it is known which part of the time was theirs: all of it where the tool did not run."""
    permission = record.get("permissionDecision")
    if permission is None:
        return False
    by_person = (text_of(permission, "source") or "").startswith("user")
    return by_person and (timed or text_of(permission, "decision") == "reject")
