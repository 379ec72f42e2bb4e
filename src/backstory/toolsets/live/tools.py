"""Live sessions as tools for agents: reading, and appending."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...config import ConfigError, Settings
from ..base import Arguments, Failure, Frame, Tool, Toolset
from .access import Portal
from .functions import Function, functions
from .types import LiveError

_INSTRUCTIONS = (
    "Live: conversations that programs write as they happen. Read with session_list and session_messages; "
    "session_append only when the user wants it: all who follow the session see it at once."
)
_READING = ("list", "get", "messages", "get-message")
# These functions answer `null` for unknown ids; the answer of a tool has to be an object.
_NULL_IS = {"get": "meta", "get-message": "entry"}


def toolset(home: Path, settings: Settings, environ: Mapping[str, str] = os.environ) -> Toolset:
    """The tools over the sessions of a home. Nothing is opened before it is used."""
    portal = Portal(home, environ)
    frame = Frame(
        refuse=_refuse,
        unexpected=partial(_refused, "storage"),
        mode=settings.redact,
    )
    found = {function.id.removeprefix("session::"): function for function in functions()}
    return Toolset(
        name="live",
        tools=tuple(_tool(name, found[name], portal, frame) for name in (*_READING, "append")),
        instructions=_INSTRUCTIONS,
    )


def _tool(name: str, function: Function, portal: Portal, frame: Frame) -> Tool:
    def action(arguments: Arguments) -> Any:
        answer = portal.call(function.id, dict(arguments))
        return {_NULL_IS[name]: None} if answer is None else answer

    reads = name in _READING
    tool = f"session_{name.replace('-', '_')}"
    return Tool(
        name=tool,
        description=function.description,
        input=lambda: function.request_schema,
        output=None if name in _NULL_IS else lambda: function.response_schema,
        handler=frame.raw_handler(tool, action),
        read_only=reads,
        idempotent=reads,
        aliases=(function.id,),
    )


def _refuse(error: Exception) -> Failure | None:
    if isinstance(error, LiveError):
        return _refused(error.code, error.message)
    if isinstance(error, ConfigError):
        return _refused("storage", str(error))
    if isinstance(error, TimeoutError):
        return _refused("storage", "no answer in time")
    return None


def _refused(code: str, message: str) -> Failure:
    return Failure({"error": {"code": code, "message": message}})
