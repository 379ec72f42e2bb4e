"""Answers as they may leave: many thousand short strings, nearly all of them harmless."""

from __future__ import annotations

from typing import Any

from ...redact import Mode, egress, egress_value

__all__ = ["as_it_may_leave"]

_ITEMS_AT_ONCE = 100


def as_it_may_leave(answer: dict[str, Any], mode: Mode) -> dict[str, Any]:
    """The answer without secrets and hostile characters. Long lists in it are looked at in large pieces."""
    return {name: _leave(value, mode) for name, value in answer.items()}


def _leave(value: Any, mode: Mode) -> Any:
    if isinstance(value, dict):
        return as_it_may_leave(value, mode)
    if not isinstance(value, list):
        return egress_value(value, mode)
    left: list[Any] = []
    for start in range(0, len(value), _ITEMS_AT_ONCE):
        items = value[start : start + _ITEMS_AT_ONCE]
        if not _harmless(items, mode):
            items = [item if _harmless([item], mode) else egress_value(item, mode) for item in items]
        left += items
    return left


def _harmless(items: list[Any], mode: Mode) -> bool:
    """Whether nothing in them has to change: asked of all their strings as one text, in a fraction of the time. A field
    stands in it as an assignment, so that its name counts as it would alone."""
    lines: list[str] = []
    pending: list[Any] = [items]
    while pending:
        container = pending.pop()
        for key, item in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(item, str):
                lines.append(item if isinstance(key, int) else f'{key}: "{item}"')
            else:
                if isinstance(key, str):
                    lines.append(key)
                if isinstance(item, dict | list):
                    pending.append(item)
    text = "\n".join(lines)
    return egress(text, mode) == text
