"""What a tool is. Declared once, served by MCP, `backstory call`, HTTP and the library."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

__all__ = ["Arguments", "BadArgument", "Reply", "Tool", "Toolset", "decode_arguments"]

Arguments = Mapping[str, Any]
T = TypeVar("T")


class Reply(Struct, frozen=True):
    """A tool's answer: the object and the same object as JSON text. `is_error` is the MCP flag."""

    data: dict[str, Any]
    text: str
    is_error: bool = False

    @classmethod
    def of(cls, data: Any, *, is_error: bool = False, indent: int = 0) -> Reply:
        encoded = msgspec.json.encode(data)
        plain = data if isinstance(data, dict) else msgspec.json.decode(encoded)
        if indent:
            encoded = msgspec.json.format(encoded, indent=indent)
        return cls(plain, encoded.decode(), is_error)


class Tool(Struct, frozen=True, kw_only=True):
    """One tool of a contract. The handler takes the arguments as they came and never raises: errors are replies."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    handler: Callable[[Arguments], Reply]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    aliases: tuple[str, ...] = ()


class Toolset(Struct, frozen=True, kw_only=True):
    """The tools of one contract and what an agent should be told about when to use them."""

    name: str
    tools: tuple[Tool, ...]
    instructions: str = ""


class BadArgument(ValueError):
    """An argument that does not fit: which field, and why."""

    def __init__(self, field: str | None, message: str) -> None:
        super().__init__(message)
        self.field = field
        self.message = message


def decode_arguments(kind: type[T], arguments: Arguments) -> T:
    """Typed arguments, strictly: nothing is coerced, unknown fields are refused (by the Struct's own setting)."""
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        raise _bad_argument(str(error)) from None


def _bad_argument(text: str) -> BadArgument:
    """msgspec says ``Expected `int`, got `str` - at `$.n_hits` `` or ``Object contains unknown field `x` ``."""
    message, _, where = text.partition(" - at `$")
    path = where.removesuffix("`").removeprefix(".")
    if message.startswith("Object contains unknown field"):
        name = message.split("`")[1]
        field = f"{path}.{name}" if path else name
        return BadArgument(field, f"unknown field: {field}")
    if message.startswith("Object missing required field"):
        name = message.split("`")[1]
        field = f"{path}.{name}" if path else name
        return BadArgument(field, f"{field} is required")
    return BadArgument(path or None, f"{path or 'arguments'}: {message[0].lower()}{message[1:].replace('`', '')}")
