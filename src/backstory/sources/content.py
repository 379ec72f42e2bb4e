"""Content as agents record it, as text a person can read: blocks of Anthropic's, OpenAI's and Gemini's APIs."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from .fields import text_of

_EDGE = 4_096
_MAX_REMINDERS = 64
# "Command exited with code 3", "Exit code: 3", "exit_code=3", "<return-code>3".
_EXIT_CODE = re.compile(r"(?:exit(?:ed with)?[ _]code|return-code>)[^\w-]{0,3}(-?\d{1,10})\b", re.IGNORECASE)
_COMMANDS = re.compile(r"bash|shell|command|terminal|exec|process|^run", re.IGNORECASE)
_NEAR_END = 400
_PART_FIELDS = ("text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData", "fileData")
# Blocks of the kinds `image`, `image_url`, `input_image`, `audio_url` and so on.
_MEDIA = re.compile(r"image|audio|video|file")


def raw_text(value: Any) -> str:
    """A value as JSON text, for records that have no better text."""
    return json.dumps(value, ensure_ascii=False)


def blocks_of(content: Any) -> list[Any] | None:
    """Content as a list of blocks; None when it is neither text nor a list."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else None


def texts_of(content: Any) -> str:
    """The texts of blocks, without a placeholder for any other block; plain text as it is."""
    if isinstance(content, list):
        return "\n".join(text for block in content if (text := text_of(block, "text")))
    return content if isinstance(content, str) else ""


def count_images(content: Any) -> int:
    if not isinstance(content, list):
        return 0
    return sum(1 for block in content if isinstance(block, dict) and block.get("type") == "image")


def readable(content: Any) -> str:
    """The text of a block, of a list of blocks, or of plain text; pictures and files leave a placeholder. A block of an
    unknown kind is shown as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for block in content if (text := readable(block)))
    if isinstance(content, dict):
        said = _block(content)
        return raw_text(content) if said is None else said
    return "" if content is None else raw_text(content)


def is_unknown(block: Any) -> bool:
    """True for a block of a kind that has no text and no placeholder."""
    return isinstance(block, dict) and _block(block) is None


def spoken(content: Any) -> str:
    """The text of what a person or a model said, without blocks of unknown kinds."""
    return readable([block for block in content if not is_unknown(block)] if isinstance(content, list) else content)


def _block(block: dict[str, Any]) -> str | None:
    kind = block.get("type")
    text = block.get("text")
    if isinstance(text, str):
        return text
    if kind == "document":
        title = text_of(block, "title")
        return f"[document {title}]" if title else "[document]"
    if isinstance(kind, str) and (media := _MEDIA.search(kind)):
        return f"[{media[0]}]"
    if kind == "tool_reference":
        return f"[tool {block.get('tool_name')}]"
    if isinstance(block.get("url"), str):  # a web search hit
        return f"{block.get('title') or ''}\n{block['url']}".strip()
    if "content" in block and kind != "resource":
        return readable(block["content"])
    return None


def part_text(part: Any) -> str:
    """The text of a part of Gemini's API; a thought and a function call have none here."""
    if isinstance(part, str):
        return part
    if not isinstance(part, dict) or part.get("thought"):
        return ""
    if isinstance(text := part.get("text"), str):
        return text
    for name in ("inlineData", "fileData"):
        if isinstance(data := part.get(name), dict):
            return f"[{text_of(data, 'displayName', 'fileUri', 'mimeType') or 'file'}]"
    return ""


def is_unknown_part(part: Any) -> bool:
    """True for a part of Gemini's API of a kind that nothing is read from."""
    return isinstance(part, dict) and part.keys().isdisjoint(_PART_FIELDS)


def parts_text(content: Any) -> str:
    """The text of content in the form of Gemini's API: a string, a part or a list of parts."""
    parts = content if isinstance(content, list) else [content]
    return "\n".join(text for part in parts if (text := part_text(part)))


def function_response(response: Any) -> str:
    """The text of a function's response: its output or its error, else all of it."""
    if not isinstance(response, dict):
        return readable(response)
    for name in ("output", "error", "content", "result"):
        if name in response:
            return readable(response[name])
    return raw_text(response)


def exit_code_in(text: str, pattern: re.Pattern[str]) -> int | None:
    """The exit code that an agent wrote into the output of a command, by the last match of its phrase."""
    if len(text) > 2 * _EDGE:
        text = f"{text[:_EDGE]}\n{text[-_EDGE:]}"
    codes = pattern.findall(text)
    return int(codes[-1]) if codes else None


def command_exit_code(text: str, tool: str | None) -> int | None:
    """The exit code in the text of a result, at its beginning or end, of an agent that has it nowhere else. Only tools
    that run commands have one: what another tool read may speak of exit codes, too."""
    if tool is None or not _COMMANDS.search(tool):
        return None
    found = _EXIT_CODE.search(text[:_NEAR_END]) or _EXIT_CODE.search(text[-_NEAR_END:])
    return int(found[1]) if found else None


def inside(text: str, tag: str) -> str | None:
    """The text inside a tag, if the text begins with it."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.find(opening)
    if start < 0 or text[:start].strip():
        return None
    end = text.find(closing, start)
    return text[start + len(opening) : end if end >= 0 else None].strip()


def split_reminders(text: str, tags: tuple[str, ...] = ("system-reminder",)) -> tuple[str, list[str]]:
    """A prompt without the tagged texts before and after it, and those texts."""
    reminders: list[str] = []
    text = text.strip()
    for _ in range(_MAX_REMINDERS):
        before = len(reminders)
        for tag in tags:
            opening, closing = f"<{tag}>", f"</{tag}>"
            if text.startswith(opening) and (end := text.find(closing)) >= 0:
                reminders.append(text[: end + len(closing)])
                text = text[end + len(closing) :].strip()
            elif text.endswith(closing) and (start := text.rfind(opening)) >= 0:
                reminders.append(text[start:])
                text = text[:start].strip()
        if len(reminders) == before:
            break
    return text, reminders


class ToolCall(NamedTuple):
    id: str | None
    name: str
    arguments: Any


def tool_calls_of(message: Any) -> list[ToolCall]:
    """The tool calls of a message in the form of OpenAI's API, with or without the `function` around them."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    found: list[ToolCall] = []
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            function = call["function"] if isinstance(call.get("function"), dict) else call
            found.append(
                ToolCall(text_of(call, "id"), text_of(function, "name") or "unknown", function.get("arguments"))
            )
    return found
