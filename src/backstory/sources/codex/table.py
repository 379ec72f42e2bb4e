"""Every record Codex is known to write: what becomes of it, or, as a text, why nothing does.

What is in no table is kept as an `unknown` event with the record as its text, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import Item
from . import lifecycle, messages, tools, usage
from .session import Session

__all__ = ["EVENTS", "RECORDS", "RESPONSE_ITEMS", "TURN_ITEMS", "Table"]

Handler = Callable[[Session, dict[str, Any]], list[Item]]
Table = dict[str, Handler | str]

_PROGRESS = "progress that the record of its end tells in full"
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
    "token_usage_record": usage.token_usage_record,
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
    "token_count": usage.token_count,
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
