"""Filters as people write them: `status=error`, `latency>5s`, `model~opus`, `cost>=0.5`, `created>3d`."""

from __future__ import annotations

import re
from typing import Any

import click

from .words import parse_moment

__all__ = ["field_name", "parse_expression"]

_EXPRESSION = re.compile(r"\s*([A-Za-z][\w.:/-]*?)\s*(!=|>=|<=|==|=|>|<|~)\s*(.*?)\s*", re.DOTALL)
_OPERATORS = {
    "=": "eq", "==": "eq", "!=": "ne", ">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "~": "contains",
}  # fmt: skip
_OF_TRACES = {
    "duration": "latency",
    "cost": "totalCost",
    "tokens": "totalTokens",
    "created": "createdAt",
    "updated": "updatedAt",
}
_OF_SPANS = {"cost": "data.totalCost", "start": "startTime", "end": "endTime", "trace": "traceId", "parent": "parentId"}
_OF_BOTH = {
    "model": "data.model",
    "type": "data.type",
    "input": "data.inputTokens",
    "output": "data.outputTokens",
    "project": "data.metadata.project",
    "source": "data.metadata.source",
    "agent": "data.metadata.source",
    "session": "data.metadata.sessionId",
}
_TIMES = {"createdAt", "updatedAt", "startTime", "endTime"}
_TEXTS = {"id", "name", "status", "traceId", "parentId", "data.model", "data.type"}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_MILLISECONDS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def parse_expression(text: str, *, of_spans: bool) -> dict[str, Any]:
    """The filter a text means. Raises click.UsageError for what is none."""
    match = _EXPRESSION.fullmatch(text)
    if match is None or not match[3]:
        raise click.UsageError(
            f"{text!r} is not a filter: write FIELD OPERATOR VALUE, e.g. status=error, latency>5s, model~opus; "
            "operators are = != > >= < <= and ~ (contains)",
            click.get_current_context(),
        )
    name, sign, value = match[1], match[2], match[3].strip("\"'")
    field = field_name(name, of_spans=of_spans)
    return {"field": field, "operator": _OPERATORS[sign], "value": _value(field, sign, value)}


def field_name(name: str, *, of_spans: bool) -> str:
    """The contract's path for a short name; everything else is taken for a path."""
    return ((_OF_SPANS if of_spans else _OF_TRACES) | _OF_BOTH).get(name, name)


def _value(field: str, sign: str, text: str) -> Any:
    if field in _TEXTS or sign == "~":
        return text
    if field in _TIMES:
        moment = parse_moment(text)
        return text if moment is None else moment
    if field == "latency" and (given := _DURATION.fullmatch(text)):
        return float(given[1]) * _MILLISECONDS[given[2]]
    if field.endswith("otalCost"):
        text = text.removeprefix("$")
    if text in ("true", "false"):
        return text == "true"
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text or "e" in text.lower() else int(text)
    return text
