"""What kind of session it was, from the tools it called."""

from __future__ import annotations

from ..archive.base import Mode

__all__ = ["wider_mode"]

_ORDER: tuple[Mode, ...] = ("chat", "tool_calling", "mcp_internal", "web_search")
_WEB_WORDS = ("websearch", "webfetch", "web_search", "web_fetch", "google_web_search", "fetch_url", "read_url", "fetch")
_OWN_TOOLS = frozenset(
    """
    search_sessions list_sessions search_conversations list_conversations read_turn read_conversation
    list_traces search_traces get_trace search_spans
    """.split()
)


def wider_mode(mode: Mode, tool: str) -> Mode:
    """The mode of a session that was `mode` until it called this tool."""
    return max(mode, _mode_of(tool), key=_ORDER.index)


def _mode_of(tool: str) -> Mode:
    # MCP clients prefix the server: `mcp__backstory__open`, `backstory.open`.
    name = tool.lower().rsplit("__", 1)[-1].rsplit(".", 1)[-1]
    if name in _WEB_WORDS:
        return "web_search"
    if name in _OWN_TOOLS or "backstory" in tool.lower() or tool.startswith(("moss.", "moss_", "capsule_")):
        return "mcp_internal"
    return "tool_calling"
