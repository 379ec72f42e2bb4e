"""The pages of traces: a list with filters, a trace as a waterfall or a tree, and one of its spans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ...model import rfc3339, session_id
from ...toolcalls import main_argument
from ...toolsets.traces.filters import SPAN_FIELDS, TRACE_FIELDS
from ...toolsets.traces.outline import Outline, OutlineRow, read_outline, span_number
from ...toolsets.traces.types import Span
from ...toolsets.traces.views import span_view
from .site import Nav, Site

if TYPE_CHECKING:
    from ...library import Library

Of = Literal["traces", "spans"]
OPERATORS = {"contains": "contains", "eq": "is", "ne": "is not", "gt": ">", "gte": "≥", "lt": "<", "lte": "≤"}
# Rows of an outline that the page has without scripts; scripts read all of them from the twin.
ROWS = 200
_LABEL_CHARS = 160
_MOST_TICKS = 6
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 5, 10, 20, 50, 100, 200)),
)
_NUMBERS = {name for fields in (TRACE_FIELDS, SPAN_FIELDS) for name, kind in fields.items() if kind == "number"}


class Field(NamedTuple):
    """A field of the filter bar that is a condition: its parameter, label, operator, and path in traces and spans."""

    name: str
    label: str
    operator: str
    of_traces: str
    of_spans: str | None


FIELDS = (
    Field("name", "Name", "contains", "name", "name"),
    Field("status", "Status", "eq", "status", "status"),
    Field("model", "Model", "contains", "data.model", "data.model"),
    Field("slower", "Slower than (s)", "gt", "latency", None),
    Field("dearer", "Costs over ($)", "gt", "totalCost", "data.totalCost"),
    Field("since", "Since", "gte", "createdAt", "startTime"),
    Field("session", "Session id", "eq", "data.metadata.sessionId", "data.metadata.sessionId"),
    Field("run", "Dataset run", "eq", "data.metadata.datasetRunId", "data.metadata.datasetRunId"),
    Field("trace", "Trace id", "eq", "id", "traceId"),
)


class Condition(Struct, frozen=True):
    """A condition of its own, in the address as `f=<field>:<operator>:<value>`."""

    field: str
    operator: str
    value: str

    @property
    def text(self) -> str:
        return f"{self.field}:{self.operator}:{self.value}"


class TraceList(Struct, kw_only=True):
    """The data of `/traces`: the answer of search_traces or search_spans, and the filters that were applied."""

    of: Of
    given: dict[str, str]
    """The fields of the filter bar that are filled in."""
    conditions: list[Condition]
    sort: str
    order: str
    items: list[dict[str, Any]] = []
    total: int | None = None
    cursor: str | None = None
    """Of the next page."""
    warnings: list[str] = []
    error: str | None = None

    fields: ClassVar[tuple[Field, ...]] = FIELDS
    operators: ClassVar[dict[str, str]] = OPERATORS

    @property
    def query(self) -> list[tuple[str, str]]:
        """The filters as they stand in the address."""
        return [
            *([("of", "spans")] if self.of == "spans" else []),
            *self.given.items(),
            *(("f", condition.text) for condition in self.conditions),
        ]

    @property
    def sorts(self) -> list[str]:
        return list(TRACE_FIELDS if self.of == "traces" else SPAN_FIELDS)

    @property
    def paths(self) -> list[str]:
        """Fields to choose from for a condition; there are more: any path of metadata and attributes."""
        if self.of == "spans":
            return list(SPAN_FIELDS)
        return [*TRACE_FIELDS, *(name for name in SPAN_FIELDS if name.startswith("data."))]


class TracePage(Struct, kw_only=True):
    """The data of `/traces/<id>`. Rows are lists of the values of `columns`: a trace may have ten thousand spans."""

    id: str
    name: str | None
    status: str
    started_at: str
    length: int
    """Milliseconds from the first start to the last end."""
    latency: int | None
    cost: float | None
    tokens: int | None
    errors: int
    session: str | None
    """Id of the session."""
    source: str | None
    project: str | None
    view: Literal["waterfall", "tree"]
    first: int
    """The number of the first row that is shown without scripts."""
    columns: tuple[str, ...] = OutlineRow.__struct_fields__
    rows: list[Any]
    labels: dict[str, str] = {}
    """The most telling arguments of tool calls among the rows that are shown, by the id of the span."""

    @property
    def shown(self) -> list[OutlineRow]:
        return [OutlineRow(**dict(zip(self.columns, row, strict=True))) for row in self.rows[self.first :][:ROWS]]

    @property
    def ticks(length: int) -> list[int]:
    """Round times in milliseconds from 0 up to the length of a trace, for its axis."""
    step = next((step for step in _STEPS if length <= step * _MOST_TICKS), max(length, 1))
    return list(range(0, length + 1, step))
