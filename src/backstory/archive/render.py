"""Tool calls as text: what a person reads, and what the index is given, of a call that was recorded as data."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["render_call"]

# Nobody nests arguments deeper; what does is left to the encoder, which needs less of the stack.
_MAX_DEPTH = 64


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


def _value(value: Any, depth: int = _MAX_DEPTH) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if depth and isinstance(value, dict):
        return "{" + ", ".join([f"{key}: {_value(item, depth - 1)}" for key, item in value.items()]) + "}"
    if depth and isinstance(value, list | tuple):
        return "[" + ", ".join([_value(item, depth - 1) for item in value]) + "]"
    return msgspec.json.encode(value).decode()
