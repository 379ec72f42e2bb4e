"""JSON Schemas of the tools, from their types."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["input_schema", "output_schema"]


def input_schema(kind: type, required: tuple[str, ...] = ()) -> dict[str, Any]:
    """What a client should send. Null is accepted too, but nobody needs to be told."""
    return _plain(kind, without_null=True) | {"required": list(required)}


def output_schema(kind: type) -> dict[str, Any]:
    return _plain(kind, without_null=False)


def _plain(kind: type, *, without_null: bool) -> dict[str, Any]:
    """One schema without references: not every client follows them."""
    schema = msgspec.json.schema(kind)
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, list):
            return [resolve(part) for part in node]
        if not isinstance(node, dict):
            return node
        if reference := node.get("$ref"):
            return resolve(definitions[reference.rpartition("/")[2]])
        if without_null and (options := [part for part in node.get("anyOf", ()) if part != {"type": "null"}]):
            # What is said of the field goes before what is said of its type.
            rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
            return resolve(options[0]) | rest
        return {key: resolve(value) for key, value in node.items() if key != "title" or not isinstance(value, str)}

    resolved: dict[str, Any] = resolve(schema)
    resolved.pop("description", None)
    return resolved
