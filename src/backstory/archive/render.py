"""Tool calls as text: what a person reads, and what the index is given, of a call that was recorded as data."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["render_call"]


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


def _value(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, dict):
        return "{" + ", ".join([f"{key}: {_value(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join([_value(item) for item in value]) + "]"
    return msgspec.json.encode(value).decode()
