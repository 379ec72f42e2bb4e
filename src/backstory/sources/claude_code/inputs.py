"""User records: prompts, what was injected in their name, and tool responses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...model import EventType
from ..base import About, TurnEnd
from .answers import AGENT_TOOLS
from .children import Children
from .content import blocks_of, count_images, readable, string
from .entry import Entry
from .prompts import Part, Piece, is_assignment, split_prompt
from .queue import PromptQueue
from .results import exit_code_of, response_text
from .state import Call

__all__ = ["add_pieces", "add_prompt", "read_input"]

# Who speaks, where the record says (`origin.kind`): everybody but a person.
_NOT_PEOPLE = {"coordinator", "peer", "task-notification"}
# Tools whose answer is a person's.
_QUESTIONS = {"AskUserQuestion", "ExitPlanMode"}


def read_input(entry: Entry, message: dict[str, Any], queue: PromptQueue, children: Children, folder: Path) -> None:
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
    if not spoken:
        return
    record, thread = entry.record, entry.thread
    text = readable(spoken)
    if record.get("isCompactSummary") is True:
        entry.add("prompt", EventType.COMPACTION, text)
        return
    meta = record.get("isMeta") is True
    if not thread.started and not meta and (text.strip() if thread.child else is_assignment(text)):
        pieces = [Piece(Part.PROMPT, text)]  # the task it was given, whatever it looks like
    else:
        pieces = [piece for block in spoken for piece in split_prompt(readable(block))]
    speaker = string(record.get("origin"), "kind")
    typed = not meta and record.get("promptSource") != "system" and (speaker not in _NOT_PEOPLE or thread.child)
    queued = record.get("promptSource") == "queued"
    if not thread.child:
        for words in (text, *(piece.text for piece in pieces if piece.part is Part.COMMAND)):
            queued |= queue.claim(words)
    if record.get("promptSource") == "sdk":  # every prompt of a headless run goes through the queue
        queued = False
    add_pieces(entry, pieces, typed=typed, queued=queued, images=count_images(spoken))


def add_pieces(entry: Entry, pieces: list[Piece], *, typed: bool, queued: bool, images: int = 0) -> None:
    """A prompt first, for it opens the turn that what was injected beside it belongs to."""
    prompt = "\n".join(piece.text for piece in pieces if piece.part is Part.PROMPT)
    if prompt and typed:
        add_prompt(entry, prompt, queued=queued, images=images)
    elif prompt:
        entry.add("prompt", EventType.SYSTEM, prompt)
    for number, (part, text) in enumerate(pieces):
        name = f"piece {number}"
        if part is Part.INTERRUPT:
            entry.add_stop(name, text, extra={"interrupted": True})
        elif part is Part.SUMMARY:
            entry.add(name, EventType.COMPACTION, text)
        elif part is not Part.PROMPT:
            entry.add(name, EventType.SYSTEM, text)
            if part is Part.COMMAND and text.startswith("/rename "):
                title = text.removeprefix("/rename ").strip()
                entry.items.append(About(session=entry.thread.session, title=title, title_rank=3))


def add_prompt(entry: Entry, text: str, *, queued: bool, images: int = 0) -> None:
    extra: dict[str, Any] = {}
    if queued:
        extra["queued"] = True
    if images:
        extra["images"] = images
    entry.add("prompt", EventType.USER_INPUT, text, starts_turn=True, extra=extra or None)
    thread = entry.thread
    thread.started, thread.answered, thread.ended = True, False, False


def _add_response(entry: Entry, part: str, block: dict[str, Any], children: Children, folder: Path) -> None:
    thread, result = entry.thread, entry.record.get("toolUseResult")
    call_id = string(block, "tool_use_id") or string(entry.record, "sourceToolUseID")
    call = thread.calls.pop(call_id, None) if call_id else None
    text = response_text(block, result, folder)
    failed = block.get("is_error") is True
    child = _child_of(call, call_id, result, children)
    entry.add(
        part,
        EventType.TOOL_RESPONSE,
        text,
        tool=call.tool if call else None,
        call_id=call_id,
        originating_model=call.model if call else None,
        exit_code=exit_code_of(text, result, failed),
        failed=failed,
        extra=_facts(block, entry.record, call, child),
    )
    thread.answered, thread.ended = True, False
    if child:
        if about := children.link(child, call_id, call.title if call else None):
            entry.items.append(about)
        if children.is_inline(child) and string(result, "status") != "async_launched":
            entry.items.append(TurnEnd(session=child))


def _child_of(call: Call | None, call_id: str | None, result: Any, children: Children) -> str | None:
    """The subagent that a response is of."""
    if agent := string(result, "agentId"):
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
    if (call and call.tool in _QUESTIONS) or _waited_for_permission(record, "duration_ms" in facts):
        facts["asked"] = True
    return facts or None


def _waited_for_permission(record: dict[str, Any], timed: bool) -> bool:
    """A person decided, and it is known which part of the time was theirs: all of it where the tool did not run."""
    permission = record.get("permissionDecision")
    by_person = (string(permission, "source") or "").startswith("user")
    return by_person and (timed or string(permission, "decision") == "reject")
