"""The input schemas, as the contract writes them."""

from __future__ import annotations

from typing import Any

__all__ = ["GET_TRACE", "LIST_TRACES", "SEARCH_SPANS", "SEARCH_TRACES"]


def _filters(field: dict[str, str], operator: dict[str, str], value: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {
                "field": {"type": "string", **field},
                "operator": {
                    "type": "string",
                    "enum": ["eq", "ne", "gt", "gte", "lt", "lte", "contains"],
                    **operator,
                },
                "value": {"oneOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}], **value},
            },
            "required": ["field", "operator", "value"],
        },
        "default": [],
        "description": "Filter criteria (combined with AND)",
    }


def _closed(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = list(required)
    return {**schema, "additionalProperties": False}


def _limit(**description: str) -> dict[str, Any]:
    return {"type": "number", "minimum": 1, "maximum": 200, "default": 50, **description}


_ORDER = {"type": "string", "enum": ["asc", "desc"], "default": "desc"}

LIST_TRACES = _closed(
    {
        "limit": _limit(description="Maximum number of traces to return"),
        "sessionId": {"type": "string", "description": "Filter traces by session ID"},
        "datasetRunId": {"type": "string", "description": "Filter traces by dataset run ID"},
    }
)
SEARCH_TRACES = _closed(
    {
        "filters": _filters(
            {"description": "Attribute path to filter (e.g., 'status', 'data.model')"},
            {"description": "Comparison operator"},
            {"description": "Value to compare against"},
        ),
        "limit": _limit(description="Results per page"),
        "cursor": {"type": "string", "description": "Pagination cursor from previous response"},
        "sortBy": {"type": "string", "default": "createdAt", "description": "Field to sort by"},
        "sortOrder": {**_ORDER, "description": "Sort direction"},
    }
)
GET_TRACE = _closed(
    {"traceId": {"type": "string", "minLength": 1, "description": "The trace ID to retrieve"}}, "traceId"
)
SEARCH_SPANS = _closed(
    {
        "filters": _filters({}, {}, {}),
        "traceId": {"type": "string", "description": "Limit search to specific trace"},
        "limit": _limit(),
        "cursor": {"type": "string"},
        "sortBy": {"type": "string", "default": "startTime"},
        "sortOrder": _ORDER,
    }
)
