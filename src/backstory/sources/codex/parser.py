"""Reads the records of one rollout, in order, into items: the parser, the tables of record types, and older formats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from ...model import EventType, parse_time
from ..base import About, Event, Item, Lookup, Transcript, Usage
from ..fields import Payload, mapping_of
from . import lifecycle, messages, tools
from .lifecycle import ThreadHistory, lost_end
from .outputs import as_json
from .session import Session, State


class RolloutParser:
    def __init__(
        self,
        transcript: Transcript,
        state: dict[str, Any] | None,
        lookup: Lookup,
        title: str | None = None,
        history: ThreadHistory | None = None,
    ) -> None:
        self._state = State() if state is None else msgspec.convert(state, State)
        self._history = history
        self._session = Session(transcript.session, self._state, lookup, self._was_interrupted)
        self._session.descend_from(*transcript.after)
        self._title = title

    def parse(self, record: Any) -> Iterable[Item]:
        envelope = open_envelope(record)
        payload = envelope.payload
        self._set_time(envelope.timestamp)
        if payload is not record.get("payload") and isinstance(model := record.get("model"), str):
            self._state.model = model  # before there were envelopes, records named the model themselves
        if isinstance(ordinal := record.get("ordinal"), int):
            self._state.ordinal = ordinal
        if mapping_of(record, "metadata").get("compaction_output") is True:
            return ()  # the summary, as the model wrote it; the compacted record has it
        handler = self._handler(envelope.type, payload)
        if handler is None:
            items: list[Item] = [self._session.event(EventType.UNKNOWN, as_json(record))]
        elif isinstance(handler, str):
            return ()
        elif envelope.type == "event_msg" and payload.get("type") == "item_completed":
            turn = payload.get("turn_id")
            self._session.late_turn = turn if turn in self._state.ended else None
            items = handler(self._session, payload["item"])
            self._session.late_turn = None
        else:
            items = handler(self._session, payload)
        if items and self._session.in_copy:
            return [item for item in items if isinstance(item, About)]
        if self._state.ancestors:
            self._note_origin(items)
        if self._state.replaying and any(isinstance(item, Event) and item.origin is None for item in items):
            self._session.end_copy()
        return items

    def _note_origin(self, items: list[Item]) -> None:
        """Name the ancestor of turns that the archive does not have: it may be forgotten, and have gone on since."""
        for item in items:
            if isinstance(item, Event):
                item.origin = self._session.origin(item.turn_key)
            elif isinstance(item, Usage):
                item.origin = self._session.origin(self._state.turn)

    def _handler(self, kind: str, payload: dict[str, Any]) -> Handler | str | None:
        """The handler of a record; None for one of no known type."""
        if kind == "response_item":
            inner = payload.get("type", "message" if "role" in payload else None)
            return _look_up(RESPONSE_ITEMS, inner)
        if kind != "event_msg":
            return RECORDS.get(kind)
        if payload.get("type") != "item_completed":
            return _look_up(EVENTS, payload.get("type"))
        item = payload.get("item")
        return _look_up(TURN_ITEMS, item.get("type")) if isinstance(item, dict) else None

    def _set_time(self, timestamp: Any) -> None:
        """A record without a time happened when the one before it did."""
        stamp = timestamp if isinstance(timestamp, str) else "" if timestamp is None else str(timestamp)
        state = self._state
        if stamp == state.stamp:
            return
        state.stamp = stamp
        state.counts.clear()
        time = parse_time(timestamp)
        if time is not None:
            state.ts = time
            if state.started is None:
                state.started = time

    def _was_interrupted(self, turn: str, is_last: bool) -> bool:
        state, history = self._state, self._history
        if history is None or state.ordinal is None:
            return False
        return history.was_interrupted(self._session.id, turn, state.ordinal, is_last=is_last)

    def finish(self) -> Iterable[Item]:
        ended = [] if self._session.in_copy else lost_end(self._session, is_last=True)
        return [*ended, *self._session.about(title=self._title)]

    def state(self) -> dict[str, Any]:
        built: dict[str, Any] = msgspec.to_builtins(self._state)
        return built


def _look_up(table: Table, kind: Any) -> Handler | str | None:
    return table.get(kind) if isinstance(kind, str) else None


Handler = Callable[[Session, dict[str, Any]], list[Item]]
Table = dict[str, Handler | str]

_PROGRESS = "progress; the record of its end has all of it"
_SETTINGS = "settings, not anything that was said or done"
_ENCRYPTED = "encrypted; the compacted record marks the place"

RECORDS: Table = {
    # "response_item" and "event_msg" have tables of their own, by the type of the payload
    "session_meta": lifecycle.session_meta,
    "turn_context": lifecycle.turn_context,
    "compacted": messages.compacted,
    "inter_agent_communication": messages.inter_agent,
    "inter_agent_communication_metadata": "says of the next message whether it woke the agent",
    "world_state": "instructions and environment as a baseline to diff against; messages carry them too",
    "state": "2025: an empty marker",
    "token_usage_record": lifecycle.token_usage_record,
}

RESPONSE_ITEMS: Table = {
    "message": messages.message,
    "reasoning": messages.reasoning,
    "agent_message": messages.response_agent_message,
    "function_call": tools.function_call,
    "function_call_output": tools.tool_output,
    "custom_tool_call": tools.custom_tool_call,
    "custom_tool_call_output": tools.tool_output,
    "local_shell_call": tools.local_shell_call,
    "local_shell_call_output": tools.tool_output,
    "tool_call": tools.function_call,
    "tool_result": tools.tool_output,
    "tool_search_call": tools.tool_search_call,
    "tool_search_output": tools.tool_search_output,
    "web_search_call": tools.web_search_call,
    "image_generation_call": tools.image_generation,
    "ghost_snapshot": "a commit of the worktree for undo",
    "compaction": _ENCRYPTED,
    "compaction_summary": _ENCRYPTED,
    "compaction_trigger": _ENCRYPTED,
    "context_compaction": _ENCRYPTED,
    "additional_tools": _SETTINGS,
    "configuration_update": _SETTINGS,
}

EVENTS: Table = {
    # Messages, in their second form
    "user_message": messages.say_user_message,
    "agent_message": messages.say_agent_message,
    "agent_reasoning": messages.reasoning_event,
    "agent_reasoning_raw_content": messages.reasoning_event,
    "context_compacted": messages.context_compacted,
    # Turns
    "task_started": lifecycle.task_started,
    "turn_started": lifecycle.task_started,
    "task_complete": lifecycle.task_complete,
    "turn_complete": lifecycle.task_complete,
    "turn.completed": lifecycle.turn_completed,
    "turn_aborted": lifecycle.turn_aborted,
    "thread_rolled_back": lifecycle.rolled_back,
    "token_count": lifecycle.token_count,
    # Reports of tools
    "exec_command_end": tools.exec_command_end,
    "patch_apply_end": tools.patch_apply_end,
    "mcp_tool_call_end": tools.mcp_tool_call_end,
    "web_search_end": tools.web_search_end,
    "image_generation_end": tools.image_generation_end,
    "view_image_tool_call": tools.view_image,
    "dynamic_tool_call_request": _PROGRESS,
    "dynamic_tool_call_response": tools.dynamic_tool_call,
    "collab_agent_spawn_end": tools.collab_end,
    "collab_agent_interaction_end": tools.collab_end,
    "collab_waiting_end": tools.collab_end,
    "collab_close_end": tools.collab_end,
    "collab_resume_end": tools.collab_end,
    "sub_agent_activity": tools.sub_agent_activity,
    # Notes of the runtime
    "error": lifecycle.notice,
    "stream_error": lifecycle.notice,
    "warning": lifecycle.notice,
    "guardian_warning": lifecycle.notice,
    "deprecation_notice": lifecycle.notice,
    "background_event": lifecycle.notice,
    "undo_completed": lifecycle.notice,
    "guardian_assessment": lifecycle.guardian_assessment,
    "thread_goal_updated": lifecycle.goal_updated,
    "entered_review_mode": lifecycle.entered_review_mode,
    "exited_review_mode": lifecycle.exited_review_mode,
    "thread_name_updated": lifecycle.thread_name_updated,
    # Deliberately nothing
    "thread_settings_applied": _SETTINGS,
    "session_configured": _SETTINGS,
    "account/rateLimits/updated": "rate limits are of the account, not of the session",
    "codex/event/raw_item": _PROGRESS,
    "raw_response_item": "a response item, which is written as such",
    "exec_command_begin": _PROGRESS,
    "exec_command_output_delta": _PROGRESS,
    "terminal_interaction": _PROGRESS,
    "patch_apply_begin": _PROGRESS,
    "patch_apply_updated": _PROGRESS,
    "turn_diff": "the sum of the turn's patches",
    "mcp_tool_call_begin": _PROGRESS,
    "web_search_begin": _PROGRESS,
    "image_generation_begin": _PROGRESS,
    "item_started": _PROGRESS,
    "agent_message_delta": _PROGRESS,
    "agent_message_content_delta": _PROGRESS,
    "agent_reasoning_delta": _PROGRESS,
    "agent_reasoning_raw_content_delta": _PROGRESS,
    "agent_reasoning_section_break": _PROGRESS,
    "reasoning_content_delta": _PROGRESS,
    "reasoning_raw_content_delta": _PROGRESS,
    "plan_delta": _PROGRESS,
    "plan_update": "the call of update_plan has it",
    "collab_agent_spawn_begin": _PROGRESS,
    "collab_agent_interaction_begin": _PROGRESS,
    "collab_waiting_begin": _PROGRESS,
    "collab_close_begin": _PROGRESS,
    "collab_resume_begin": _PROGRESS,
    "hook_started": _PROGRESS,
    "hook_completed": "what a hook has to say it says in a message",
    "undo_started": _PROGRESS,
    "shutdown_complete": "the process ended, which ends no turn",
}

# item_completed: by the type of the item
TURN_ITEMS: Table = {
    "UserMessage": messages.item_user_message,
    "AgentMessage": messages.item_agent_message,
    "Plan": messages.item_plan,
    "Reasoning": messages.item_reasoning,
    "HookPrompt": messages.item_hook_prompt,
    "ContextCompaction": messages.item_context_compaction,
    "CommandExecution": tools.item_command,
    "FileChange": tools.item_file_change,
    "McpToolCall": tools.item_mcp_tool,
    "DynamicToolCall": tools.item_dynamic_tool,
    "CollabAgentToolCall": tools.item_collab,
    "SubAgentActivity": tools.item_sub_agent,
    "WebSearch": tools.item_web_search,
    "Extension": tools.item_extension,
    "ImageView": tools.item_image_view,
    "ImageGeneration": tools.item_image_generation,
    "Sleep": "the agent waited",
}


_BARE_TYPES = {
    "message": "message",
    "reasoning": "reasoning",
    "function_call": "function_call",
    "tool_call": "function_call",
    "local_shell_call": "local_shell_call",
    "custom_tool_call": "custom_tool_call",
    "web_search_call": "web_search_call",
    "function_call_output": "function_call_output",
    "custom_tool_call_output": "custom_tool_call_output",
    "local_shell_call_output": "function_call_output",
    "function_result": "function_call_output",
    "tool_result": "function_call_output",
}


class Envelope(NamedTuple):
    type: str
    payload: Payload
    timestamp: Any


def open_envelope(record: Any) -> Envelope:
    """The record's type, payload and time. Raises ValueError for what was never a record of Codex."""
    if not isinstance(record, dict):
        raise ValueError("record is not a JSON object")
    kind, payload = record.get("type"), record.get("payload")
    if isinstance(kind, str) and isinstance(payload, dict):
        return Envelope(kind, payload, record.get("timestamp"))
    if isinstance(kind, str) and "payload" in record:
        raise ValueError(f"payload of a {kind[:60]} record is not a JSON object")
    time = record.get("timestamp", record.get("created_at"))
    if is_bare_record(record):
        return Envelope("response_item", _response_item(record), time)
    if _is_header(record):
        return Envelope("session_meta", record, time)
    if isinstance(kind, str) or isinstance(kind := record.get("record_type"), str):
        return Envelope(kind, record, time)
    raise ValueError("record has neither type nor role")


def is_bare_record(record: Payload) -> bool:
    kind = record.get("type")
    if isinstance(kind, str):
        return kind in _BARE_TYPES
    return record.get("role") in ("user", "assistant", "system", "developer")


def _is_header(record: Payload) -> bool:
    return "type" not in record and isinstance(record.get("id"), str) and ("timestamp" in record or "git" in record)


def _response_item(record: Payload) -> Payload:
    kind = record.get("type")
    item = {**record, "type": _BARE_TYPES[kind] if isinstance(kind, str) else "message"}
    if "content" not in item and "message" in item:
        item["content"] = item["message"]
    return item


def json_records(document: Any) -> Iterator[Any]:
    """The records of the one-file format."""
    if not isinstance(document, dict) or not isinstance(items := document.get("items"), list):
        raise ValueError("not a Codex session: it has no list of items")
    session = document.get("session")
    if isinstance(session, dict):
        yield {"timestamp": session.get("timestamp"), "type": "session_meta", "payload": session}
    yield from items
