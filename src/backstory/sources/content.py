"""Content as agents record it, as text a person can read: blocks of Anthropic's, OpenAI's and Gemini's APIs."""

from __future__ import annotations

import json
from typing import Any

from .fields import text_of


def raw_text(value: Any) -> str:
    """JSON as it stood in the transcript, for what has no better reading."""
    return json.dumps(value, ensure_ascii=False)


def blocks_of(content: Any) -> list[Any] | None:
    """Content as a list of blocks; None when it is neither text nor a list."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else None


def count_images(content: Any) -> int:
    if not isinstance(content, list):
        return 0
    return sum(1 for block in content if isinstance(block, dict) and block.get("type") == "image")


def readable(content: Any) -> str:
    """The text of a block, of a list of blocks, or of plain text; pictures and files leave a placeholder."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for block in content if (text := readable(block)))
    if isinstance(content, dict):
        return _block(content)
    return "" if content is None else raw_text(content)


def _block(block: dict[str, Any]) -> str:
    kind = block.get("type")
    text = block.get("text")
    if isinstance(text, str):
        return text
    if kind == "image":
        return "[image]"
    if kind == "document":
        title = text_of(block, "title")
        return f"[document {title}]" if title else "[document]"
    if kind == "tool_reference":
        return f"[tool {block.get('tool_name')}]"
    if isinstance(block.get("url"), str):  # a web search hit
        return f"{block.get('title') or ''}\n{block['url']}".strip()
    if "content" in block and kind != "resource":
        return readable(block["content"])
    return raw_text(block)
