"""What the user typed, told apart from what Codex and its clients put around it.

Context for the model travels as user messages: instructions, the environment, notices. Some of it stands in blocks of
its own, some in front of the prompt in the same block.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

__all__ = ["Prompt", "block_texts", "read_blocks", "split"]

# Elements that Codex injects, by name. Any other element is the user's own: people paste HTML.
_ELEMENTS: Final = (
    "environment_context",
    "environments_instructions",
    "user_instructions",
    "INSTRUCTIONS",
    "turn_aborted",
    "skill",
    "skills_instructions",
    "subagent_notification",
    "goal_context",
    "codex_internal_context",
    "extension_context",
    "recommended_plugins",
    "plugins_instructions",
    "apps_instructions",
    "hook_prompt",
    "user_action",
    "user_shell_command",
    "permissions instructions",
    "collaboration_mode",
    "personality_spec",
    "model_switch",
    "realtime_conversation",
    "token_budget",
    r"external_\w+",
)
_ELEMENT = re.compile(rf"<({'|'.join(_ELEMENTS)})(?:\s[^>]*)?>", re.IGNORECASE)
_AGENTS_MD = "# AGENTS.md instructions"
# The IDE extension and the app write their context (open files, selections, attachments) under headings, then this one.
_REQUEST = re.compile(r"^## My request for Codex:[ \t]*\n?", re.MULTILINE)
# Notices without any markup.
_NOTICES: Final = (
    "Another language model started to solve this problem and produced a summary of its thinking process.",
    "Warning: apply_patch was requested via ",
    "Warning: The maximum number of unified exec processes you can keep open is ",
    "Warning: Your account was flagged for potentially high-risk cyber activity",
)
_SPACE = re.compile(r"\s*")
_IMAGE_MARK = re.compile(r"</?image(?:\s[^>]*)?>")


class Prompt(NamedTuple):
    injected: list[str]
    typed: str


def split(text: str, *, peel: bool = True) -> Prompt:
    """Peel what is injected off the front of a text, layer by layer. Without `peel`, only what editors put there."""
    injected = []
    at = _skip_space(text, 0)
    while peel and at < len(text) and (end := _injected_end(text, at)):
        injected.append(text[at:end])
        at = _skip_space(text, end)
    rest = text[at:].rstrip()
    request = _REQUEST.search(rest)
    if request and (request.start() == 0 or rest.startswith("# ")):
        injected.append(rest[: request.start()].rstrip())
        rest = rest[request.end() :].lstrip()
    return Prompt(list(filter(None, injected)), rest)


def _injected_end(text: str, at: int) -> int | None:
    """Where the injected piece that starts here ends, if one does. An unclosed one takes all there is."""
    if text.startswith(_AGENTS_MD, at):
        return _end_of("</INSTRUCTIONS>", text, at)
    if text.startswith("<", at) and (element := _ELEMENT.match(text, at)):
        return _end_of(f"</{element[1]}>", text, at)
    return len(text) if text.startswith(_NOTICES, at) else None


def _end_of(closing: str, text: str, at: int) -> int:
    found = re.compile(re.escape(closing), re.IGNORECASE).search(text, at)
    return found.end() if found else len(text)


def _skip_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return space.end() if space else at


def block_texts(content: Any) -> list[str]:
    """The texts of a message's content, which is a string or a list of blocks. Images and ciphers have none."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [
        text
        for block in content
        if isinstance(text := block.get("text") if isinstance(block, dict) else block, str) and text
    ]


def read_blocks(content: Any, *, peel: bool = True) -> Prompt:
    """A user message. Each block is read on its own: context often is the first block and the prompt the next."""
    injected: list[str] = []
    typed: list[str] = []
    for text in block_texts(content):
        if _IMAGE_MARK.fullmatch(text.strip()):
            continue
        parts = split(text, peel=peel)
        injected += parts.injected
        typed.append(parts.typed)
    prompt = "\n\n".join(filter(None, typed))
    if not prompt and isinstance(content, list) and any(map(_is_image, content)):
        prompt = "[image]"
    return Prompt(injected, prompt)


def _is_image(block: Any) -> bool:
    return isinstance(block, dict) and "image" in str(block.get("type"))
