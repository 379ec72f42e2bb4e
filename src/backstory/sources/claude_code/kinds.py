"""The tables of record types, `system` subtypes and attachment types: how each is read, one line each.

Conversation (`user`, `assistant`, queued prompts), titles and links have code of their own in the parser; the tables
name the rest. What stands in no table is not known yet and is kept whole, as an `unknown` event.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...model import EventType
from ..content import raw_text, readable

Table = dict[str, Any]


class Reading(NamedTuple):
    """The event a record becomes, and its text (blank: no event)."""

    type: EventType
    text: Callable[[Table], str]
    ends_turn: bool = False
    """The agent goes no further after this."""


def _field(*names: str) -> Callable[[Table], str]:
    """The named fields that have something to say, a line each."""
    return lambda table: "\n".join(text for name in names if (text := readable(table.get(name)).strip()))


def _error(record: Table) -> str:
    error = record.get("error")
    if isinstance(error, dict):
        nested = error.get("error")
        inner = nested.get("error", nested) if isinstance(nested, dict) else {}
        message = (
            error.get("formatted") or error.get("message") or (inner.get("message") if isinstance(inner, dict) else "")
        )
        error = message or raw_text(error)
    text = f"API error: {readable(error)}" if error else _field("content")(record)
    attempt, limit = record.get("retryAttempt"), record.get("maxRetries")
    return f"{text} (attempt {attempt} of {limit})" if text and isinstance(attempt, int) and attempt else text


def _refusal(record: Table) -> str:
    models = [record.get("originalModel"), record.get("fallbackModel")]
    switch = " -> ".join(model for model in models if isinstance(model, str))
    return "\n".join(filter(None, (_field("content", "apiRefusalExplanation")(record), switch)))


def _hook(*names: str) -> Callable[[Table], str]:
    texts = _field(*names)
    return lambda table: f"{table.get('hookName') or 'hook'}: {text}" if (text := texts(table)) else ""


def _blocking(table: Table) -> str:
    error = table.get("blockingError")
    reason = error.get("blockingError") if isinstance(error, dict) else error
    return f"{table.get('hookName') or 'hook'} blocked: {readable(reason)}" if reason else ""


def _file(table: Table) -> str:
    """A file shown to the agent, under the name it has there; `content` nests the text under `file` or `content`."""
    name = table.get("displayPath") or table.get("filename") or table.get("path") or ""
    inner = table.get("content") or table.get("snippet")
    while isinstance(inner, dict) and isinstance(inner.get("file") or inner.get("content"), dict | str):
        inner = inner.get("file") or inner.get("content")
    return f"{name}\n{readable(inner)}".strip()


def _goal(table: Table) -> str:
    """A goal that was reached. For one that was not, the hook that kept the agent going has an event; for one that
    was set or cleared, the command."""
    reached = table.get("met") is True and table.get("sentinel") is not True
    return f"goal met: {_field('condition', 'reason')(table)}" if reached else ""


def _diagnostics(table: Table) -> str:
    return "\n".join(
        f"{file.get('uri')}: {problem.get('severity')}: {problem.get('message')}"
        for file in _tables(table.get("files"))
        for problem in _tables(file.get("diagnostics"))
    )


def _each(name: str, *fields: str) -> Callable[[Table], str]:
    texts = _field(*fields)
    return lambda table: "\n\n".join(filter(None, map(texts, _tables(table.get(name)))))


def _tables(items: Any) -> list[Table]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


SYSTEM, RUNTIME, COMPACTION = EventType.SYSTEM, EventType.RUNTIME, EventType.COMPACTION

# Title records: the field that holds it, and how it ranks.
TITLES: dict[str, tuple[str, int]] = {
    "custom-title": ("customTitle", 3),
    "agent-name": ("agentName", 3),
    "ai-title": ("aiTitle", 2),
}

# Record types that give no event, with the reason.
SKIPPED_RECORDS: dict[str, str] = {
    "agent-color": "how the prompt looks",
    "agent-setting": "which agent definition is in use",
    "api-request": "parameters of a model call; what was said stands in the records around it",
    "api-request-blob": "messages of a model call, said elsewhere",
    "api-request-shape": "system prompt and tool schemas of a model call",
    "atis-latch": "internal flag",
    "attribution-snapshot": "line counts per file",
    "bridge-session": "id of the remote-control session",
    "content-replacement": "which tool results left the context; they are still in the transcript",
    "file-history-delta": "name of a backup file",
    "file-history-snapshot": "names of backup files",
    "last-prompt": "repeats a prompt that stands in the transcript",
    "marble-origami-commit": "spans folded out of the context; they are still in the transcript",
    "marble-origami-snapshot": "spans to be folded out of the context",
    "mode": "mode switch",
    "permission-mode": "mode switch",
    "result": "journal of a workflow; its agents have transcripts of their own",
    "speculation-accept": "time saved by a guess",
    "started": "journal of a workflow",
    "tag": "label of the session picker",
    "task-summary": "what the agent is doing at the moment; replaced all the time",
    "tools-used": "names of the tools so far; every call stands in the transcript",
}

# `system` records. `turn_duration` and `stop_hook_summary` also say that the turn is over.
SUBTYPES: dict[str, Reading] = {
    "agents_killed": Reading(RUNTIME, _field("content")),
    "api_error": Reading(RUNTIME, _error),
    "api_refusal": Reading(RUNTIME, _refusal),
    "away_summary": Reading(SYSTEM, _field("content")),
    "bridge_status": Reading(RUNTIME, _field("content")),
    "compact_boundary": Reading(COMPACTION, _field("content")),
    "error": Reading(RUNTIME, _error),
    "informational": Reading(SYSTEM, _field("content")),
    "memory_saved": Reading(SYSTEM, _field("content", "writtenPaths")),
    "microcompact_boundary": Reading(COMPACTION, _field("content")),
    "model_refusal_fallback": Reading(RUNTIME, _refusal),
    "permission_retry": Reading(RUNTIME, _field("content")),
    "post_turn_summary": Reading(SYSTEM, _field("content", "summary")),
    "scheduled_task_fire": Reading(SYSTEM, _field("content")),
    "snip_boundary": Reading(COMPACTION, _field("content")),
    "stop_hook_summary": Reading(RUNTIME, _field("hookErrors", "stopReason", "hookAdditionalContext")),
}
SKIPPED_SUBTYPES: dict[str, str] = {
    "api_metrics": "timings of the last request",
    "file_snapshot": "names of backup files",
    "init": "settings of the run",
    "session_start": "no text",
    "task_progress": "subagents have transcripts of their own",
    "thinking": "no text",
    "turn_duration": "only says that the turn is over",
}

# Attachments: what Claude Code shows the agent beside the conversation. `queued_command` is a prompt.
ATTACHMENTS: dict[str, Reading] = {
    "async_hook_response": Reading(SYSTEM, _hook("response", "stdout", "stderr")),
    "critical_system_reminder": Reading(SYSTEM, _field("content")),
    "diagnostics": Reading(SYSTEM, _diagnostics),
    "directory": Reading(SYSTEM, _file),
    "edited_text_file": Reading(SYSTEM, _file),
    "file": Reading(SYSTEM, _file),
    "goal_status": Reading(SYSTEM, _goal),
    "hook_additional_context": Reading(SYSTEM, _hook("content")),
    "hook_blocking_error": Reading(RUNTIME, _blocking),
    "hook_error_during_execution": Reading(RUNTIME, _hook("content", "stderr")),
    "hook_non_blocking_error": Reading(RUNTIME, _hook("stderr", "stdout")),
    "hook_stopped_continuation": Reading(RUNTIME, _hook("message"), ends_turn=True),
    "hook_success": Reading(SYSTEM, _hook("content")),
    "hook_system_message": Reading(SYSTEM, _hook("content")),
    "max_turns_reached": Reading(RUNTIME, lambda table: f"stopped after {table.get('maxTurns')} turns", ends_turn=True),
    "mcp_resource": Reading(SYSTEM, _field("name", "uri", "content")),
    "nested_memory": Reading(SYSTEM, _file),
    "opened_file_in_ide": Reading(SYSTEM, _field("filename")),
    "pdf_reference": Reading(SYSTEM, _field("filename")),
    "plan_file_reference": Reading(SYSTEM, _field("planFilePath", "planContent")),
    "relevant_memories": Reading(SYSTEM, _each("memories", "path", "content")),
    "selected_lines_in_ide": Reading(SYSTEM, _field("filename", "content")),
    "structured_output": Reading(SYSTEM, lambda table: raw_text(table["data"]) if "data" in table else ""),
    "task_status": Reading(SYSTEM, _field("description", "status", "deltaSummary")),
    "teammate_mailbox": Reading(SYSTEM, _each("messages", "from", "text")),
}
_CONTEXT = "the surroundings as the agent sees them in every session: folder, model, date, git status"
_LISTING = "lists what is available: thousands of words in every session that are not part of the conversation"
_MODE = "mode switch"
_REMINDER = "repeats what the transcript has, to remind the agent"
SKIPPED_ATTACHMENTS: dict[str, str] = {
    "agent_listing_delta": _LISTING,
    "agent_mention": _REMINDER,
    "already_read_file": _REMINDER,
    "auto_mode": _MODE,
    "auto_mode_exit": _MODE,
    "batching_reminder_sent": _REMINDER,
    "budget_usd": "running total; every message has its own usage",
    "command_permissions": _LISTING,
    "compact_file_reference": _REMINDER,
    "companion_intro": _REMINDER,
    "context_efficiency": _REMINDER,
    "date": _CONTEXT,
    "date_change": _REMINDER,
    "deferred_tools_delta": _LISTING,
    "deferred_tools_record": _LISTING,
    "dynamic_skill": _LISTING,
    "edited_image_file": _REMINDER,
    "environment": _CONTEXT,
    "hook_cancelled": "no text",
    "hook_permission_decision": "the tool response says how it went",
    "invoked_skills": _REMINDER,
    "mcp_instructions_delta": _LISTING,
    "model": _CONTEXT,
    "output_style": _MODE,
    "output_token_usage": _REMINDER,
    "plan_mode": _MODE,
    "plan_mode_exit": _MODE,
    "plan_mode_reentry": _MODE,
    "prompt_snapshot": "the system prompt",
    "read_truncation_notice": _REMINDER,
    "remote_session_change": _CONTEXT,
    "session_context": _CONTEXT,
    "silent_turn_reminder": _REMINDER,
    "skill_discovery": _LISTING,
    "skill_listing": _LISTING,
    "task_reminder": _REMINDER,
    "team_context": _LISTING,
    "todo_reminder": _REMINDER,
    "token_usage": _REMINDER,
    "total_tokens_reminder": _REMINDER,
    "ultra_effort_enter": _MODE,
    "ultra_effort_exit": _MODE,
    "verify_plan_reminder": _REMINDER,
}
