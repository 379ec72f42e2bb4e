"""The functions of the contract by name: description, request and response schema."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct

__all__ = ["Function", "contract", "functions"]

_DRAFT = "http://json-schema.org/draft-07/schema#"


class Function(Struct, frozen=True):
    id: str
    description: str
    request_schema: dict[str, Any]
    response_schema: dict[str, Any]


@cache
def contract() -> dict[str, Any]:
    """Functions and triggers as the contract has them; the schemas' definitions are shared."""
    text = files(__package__).joinpath("schemas.json").read_bytes()
    parsed: dict[str, Any] = msgspec.json.decode(text)
    return parsed


@cache
def functions() -> tuple[Function, ...]:
    return tuple(
        Function(item["id"], item["description"], _complete(item["request"]), _complete(item["response"]))
        for item in contract()["functions"]
    )


def _complete(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with the definitions it refers to, directly or not."""
    shared = contract()["definitions"]
    used: dict[str, Any] = {}
    waiting = _references(schema)
    while waiting:
        name = waiting.pop()
        if name not in used:
            used[name] = shared[name]
            waiting |= _references(shared[name])
    definitions = {"definitions": dict(sorted(used.items()))} if used else {}
    return {"$schema": _DRAFT, **definitions, **schema}


def _references(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return set().union(*map(_references, schema))
    if not isinstance(schema, dict):
        return set()
    found = set().union(*map(_references, schema.values()))
    if isinstance(schema.get("$ref"), str):
        found.add(schema["$ref"].rpartition("/")[2])
    return found
