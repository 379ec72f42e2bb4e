"""Live sessions as tools for agents: reading, and appending."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...config import ConfigError, Settings
from ...redact import egress_value
from ..base import Arguments, Reply, Tool, Toolset
from .errors import LiveError
from .functions import Function, functions
from .portal import Portal

__all__ = ["toolset"]

_INSTRUCTIONS = (
    "Live: conversations that programs write as they happen. Read with session_list and session_messages; "
    "session_append only when the user wants it: all who follow the session see it at once."
)
_READING = ("list", "get", "messages", "get-message")
# `null` where there is nothing, as these functions answer, is no object; a tool's answer has to be one.
_NULL_IS = {"get": "meta", "get-message": "entry"}


def toolset(home: Path, settings: Settings, environ: Mapping[str, str] = os.environ) -> Toolset:
    """The tools over the sessions of a home. Nothing is opened before it is used."""
    portal = Portal(home, environ)
    found = {function.id.removeprefix("session::"): function for function in functions()}
    return Toolset(
        name="live",
        tools=tuple(_tool(name, found[name], portal, settings) for name in (*_READING, "append")),
        instructions=_INSTRUCTIONS,
    )


def _tool(name: str, function: Function, portal: Portal, settings: Settings) -> Tool:
    def handler(arguments: Arguments) -> Reply:
        try:
            answer = portal.call(function.id, dict(arguments))
        except LiveError as error:
            return _refused(error.code, error.message)
        except ConfigError as error:
            return _refused("storage", str(error))
        except TimeoutError:
            return _refused("storage", "no answer in time")
        if answer is None:
            answer = {_NULL_IS[name]: None}
        return Reply.of(egress_value(answer, mode=settings.redact))

    reads = name in _READING
    return Tool(
        name=f"session_{name.replace('-', '_')}",
        description=function.description,
        input_schema=function.request_schema,
        output_schema=None if name in _NULL_IS else function.response_schema,
        handler=handler,
        read_only=reads,
        idempotent=reads,
        aliases=(function.id,),
    )


def _refused(code: str, message: str) -> Reply:
    answer: dict[str, Any] = {"error": {"code": code, "message": message}}
    return Reply.of(answer, is_error=True)
