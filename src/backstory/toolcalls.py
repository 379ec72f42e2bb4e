"""Tool calls and responses as text: for the index, for answers and for people."""

from __future__ import annotations

import re
from typing import Any

import msgspec

# Real arguments are not nested deeper. Those that are go to the encoder as they are, which needs less of the stack.
_MAX_DEPTH = 64
# The names agents give the argument a person looks for, most telling first.
_MAIN_ARGUMENTS = (
    "command",
    "cmd",
    "file_path",
    "notebook_path",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "skill",
    "prompt",
    "message",
    "input",
)
# What editors have as `command` beside a path, which says more.
_EDITOR_COMMANDS = frozenset(("view", "create", "str_replace", "insert", "undo_edit", "write", "delete", "rename"))

# The lines that Codex puts before the output of a command.
_PREAMBLE = re.compile(
    r"(?:(?:Chunk ID:|Wall time|Process exited with|Process running with|Original token count:|Total output lines:"
    r"|Script completed|Script failed|Exit code:)[^\n]{0,200}\n){2,8}(?:Output:\n)?"
)


def without_preamble(text: str) -> str:
    """A tool's output without the lines that its client puts before it."""
    preamble = _PREAMBLE.match(text)
    return text[preamble.end() :] if preamble and preamble.end() < len(text) else text


def render_call(tool: str | None, arguments: Any) -> str:
    """`exec_command(cmd="cargo test", workdir="/x")`.

    Strings keep their line breaks: as `\\n` they would melt into the next word and hide it from a search.
    """
    name = tool or "tool"
    if arguments is None:
        return f"{name}()"
    try:
        if isinstance(arguments, dict):
            return f"{name}({', '.join([f'{key}={_value(value)}' for key, value in arguments.items()])})"
        return f"{name}({_value(arguments)})"
    except RecursionError:
        return f"{name}(…)"


def main_argument(arguments: Any) -> str | None:
    """The most telling argument of a call (its command, file, pattern, query ...), on one line; None without any."""
    if isinstance(arguments, str):
        return " ".join(arguments.split()) or None
    if not isinstance(arguments, dict):
        return None
    for name in _MAIN_ARGUMENTS:
        if line := " ".join(_words(arguments, name).split()):
            return line
    texts = (" ".join(value.split()) for value in arguments.values() if isinstance(value, str))
    return next(filter(None, texts), None)


def shell_command(arguments: Any) -> str | None:
    """The command of a call that runs one."""
    if not isinstance(arguments, dict):
        return None
    command = _words(arguments, "command") or _words(arguments, "cmd")
    return command if command.strip() else None


def _words(arguments: dict[str, Any], name: str) -> str:
    """An argument that is a text, or a list of words."""
    value = arguments.get(name)
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        value = " ".join(value)
    if not isinstance(value, str) or (name == "command" and value in _EDITOR_COMMANDS and "path" in arguments):
        return ""
    return value


def _value(value: Any, depth: int = _MAX_DEPTH) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if depth and isinstance(value, dict):
        return "{" + ", ".join([f"{key}: {_value(item, depth - 1)}" for key, item in value.items()]) + "}"
    if depth and isinstance(value, list | tuple):
        return "[" + ", ".join([_value(item, depth - 1) for item in value]) + "]"
    return msgspec.json.encode(value).decode()
