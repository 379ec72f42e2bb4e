"""The fields that spans and traces are searched and sorted by, with the columns that hold them in every engine."""

from __future__ import annotations

from collections.abc import Iterable

from .spans import SPAN_TYPES, STATUSES, Condition, Operator

# Longer values of attributes are compared by their beginning.
MAX_VALUE_CHARS = 1024
_MAX_INTEGER = (1 << 63) - 1

NUMBERS = {
    "startTime": "start",
    "endTime": "end",
    "data.inputTokens": "input",
    "data.outputTokens": "output",
    "data.totalCost": "cost",
    "data.metadata.cacheReadTokens": "cache_read",
    "data.metadata.cacheWriteTokens": "cache_write",
    "data.metadata.cacheWrite1hTokens": "cache_write_1h",
    "data.metadata.reasoningTokens": "reasoning",
    "data.metadata.exitCode": "exit_code",
    "data.metadata.waitingMs": "waiting",
    "data.metadata.totalTokens": "total",
}
NAMES = {"name": "name", "data.model": "model", "data.metadata.stopReason": "stop_reason"}
CODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "status": ("status", STATUSES),
    "data.type": ("type", SPAN_TYPES),
}
# Facts of a trace that its spans show as their metadata.
OF_TRACE = {
    "data.metadata.sessionId": "session",
    "data.metadata.source": "source",
    "data.metadata.project": "project",
    "data.metadata.datasetRunId": "dataset_run",
}
# Our own facts among the metadata.
METADATA = {name for name in (*NUMBERS, *NAMES, *OF_TRACE) if name.startswith("data.metadata.")} | {
    "data.metadata.costSource"
}
TRACE_TEXTS = {"id": "uid", "name": "name", "sessionId": "session", "datasetRunId": "dataset_run"}
TRACE_NUMBERS = {
    "latency": "latency",
    "totalCost": "cost",
    "totalTokens": "tokens",
    "createdAt": "start",
    "updatedAt": "updated",
}


def paths_of(fields: Iterable[str]) -> list[str]:
    """The paths at which senders may have put metadata with the names of these fields."""
    names = (field.removeprefix("data.metadata.") for field in fields if field in METADATA)
    return [f"{prefix}.{name}" for name in names for prefix in ("metadata", "attributes")]


def is_comparable(condition: Condition) -> bool:
    """True if the value has the type of the column. Metadata may have any type, a column has one."""
    if condition.field in NUMBERS:
        return condition.operator != "contains" and type(condition.value) in (int, float)
    return condition.operator in ("eq", "ne", "contains") and isinstance(condition.value, str)


def unnegated(operator: Operator) -> Operator:
    return "eq" if operator == "ne" else operator


def within_integers(value: int | float) -> int | float:
    """The number, or the nearest float of one that has more than 64 bits."""
    if isinstance(value, float) or -_MAX_INTEGER <= value <= _MAX_INTEGER:
        return value
    return float(value) if abs(value) < 1 << 1000 else float("inf") * (1 if value > 0 else -1)
