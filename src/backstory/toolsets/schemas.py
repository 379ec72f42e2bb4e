"""JSON Schemas of tools, from the types of their arguments and answers.

Agents read the schemas of all listed tools in every prompt, so they are flat and say nothing twice.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import msgspec

from .base import Schema


def input_schema(
    kind: type, required: tuple[str, ...] | None = None, *, nullable: bool = True, null_defaults: bool = False
) -> Schema:
    """The arguments of a tool as one flat object: some clients do not follow references. `required` replaces what the
    type says. Where null says no more than leaving a field out, the schema need not have it, as a type (`nullable`) or
    as a default (`null_defaults`)."""
    return partial(_input_schema, kind, required, nullable, null_defaults)


def output_schema(answer: Any, error: Any = None) -> Schema:
    """The answer, or an error where errors are structured too. Clients require an object at the top level, so the two
    are alternatives of one."""
    return partial(_output_schema, answer, error)


@cache
def _input_schema(kind: type, required: tuple[str, ...] | None, nullable: bool, null_defaults: bool) -> dict[str, Any]:
    schema = _resolved(msgspec.json.schema(kind), nullable, null_defaults)
    return schema if required is None else schema | {"required": list(required)}


@cache
def _output_schema(answer: Any, error: Any) -> dict[str, Any]:
    if error is None:
        return _resolved(msgspec.json.schema(answer), nullable=True, null_defaults=False)
    roots, definitions = msgspec.json.schema_components([answer, error], ref_template="#/$defs/{name}")
    return {"type": "object", "anyOf": list(roots), "$defs": definitions}


def _resolved(schema: dict[str, Any], nullable: bool, null_defaults: bool) -> dict[str, Any]:
    """The schema without references, titles and empty defaults: agents read all of it in every prompt."""
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(part) for part in node]
        if not isinstance(node, dict):
            return node
        if options := node.get("anyOf"):
            node = _merged(node, options, nullable)
        if reference := node.get("$ref"):
            beside = {key: value for key, value in node.items() if key != "$ref"}
            return resolve(definitions[reference.rpartition("/")[2]] | beside)
        return {key: resolve(value) for key, value in node.items() if not superfluous(key, value)}

    def superfluous(key: str, value: Any) -> bool:
        if key == "title":  # of a type; a field of that name has a schema
            return not isinstance(value, dict)
        return key == "default" and value is None and not null_defaults

    resolved: dict[str, Any] = resolve(schema)
    resolved.pop("description", None)
    return resolved


def _merged(node: dict[str, Any], options: list[dict[str, Any]], nullable: bool) -> dict[str, Any]:
    """An optional value as one schema; keywords of the field override those of its type."""
    plain = [option for option in options if option != {"type": "null"}]
    if len(plain) != 1 or len(plain) == len(options) or (nullable and "type" not in plain[0]):
        return node
    rest = {key: value for key, value in node.items() if key != "anyOf"}
    kind = {"type": [plain[0]["type"], "null"]} if nullable else {}
    return {**plain[0], **kind, **rest}
