"""JSON Schema for tests that check many answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

_follow = Draft202012Validator.VALIDATORS["$ref"]


def validator(schema: dict[str, Any]) -> Any:
    """A validator for answers to one schema. Many answers contain the same events and sessions: a part that a `$ref`
    describes and that was valid once is not looked at again."""
    valid: set[tuple[str, bytes]] = set()

    def follow_once(validator: Any, reference: str, part: Any, schema: Any) -> Iterator[ValidationError]:
        key = reference, msgspec.json.encode(part)
        if key not in valid:
            errors = list(_follow(validator, reference, part, schema))
            yield from errors
            if not errors:
                valid.add(key)

    return extend(Draft202012Validator, {"$ref": follow_once})(schema)
