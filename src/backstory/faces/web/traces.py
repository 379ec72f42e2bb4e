"""The pages of traces: a list with filters, a trace as a waterfall or a tree, and one of its spans."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Struct
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from ...model import rfc3339, session_id
from ...toolcalls import main_argument
from ...toolsets.traces.reports import Outline, OutlineRow, read_outline, span_number
from ...toolsets.traces.service import span_view
from ...toolsets.traces.types import SPAN_FIELDS, TRACE_FIELDS, Span, stored_trace_id
from ..words import parse_moment
from . import money, short_number, took
from .lists import session_url
from .site import Answer, Nav, Site

if TYPE_CHECKING:
    from ...library import Library

Of = Literal["traces", "spans"]
OPERATORS = {"contains": "contains", "eq": "is", "ne": "is not", "gt": ">", "gte": "≥", "lt": "<", "lte": "≤"}
# Rows of an outline that the page has without scripts; scripts read all of them from the twin.
ROWS = 200
_LABEL_CHARS = 160
_BLOCK_CHARS = 40_000
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
    rows: list[OutlineRow]
    labels: dict[str, str] = {}
    """The most telling arguments of tool calls among the rows that are shown, by the id of the span."""

    @property
    def shown(self) -> list[OutlineRow]:
        return self.rows[self.first :][:ROWS]

    @property
    def ticks(self) -> list[int]:
        return axis_ticks(self.length)


class Block(Struct, frozen=True):
    """The beginning of an input or output, and the number of characters that it leaves out."""

    title: str
    text: str
    language: str
    more: int

    @classmethod
    def of(cls, title: str, value: Any) -> Block:
        text = value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        return cls(title, text[:_BLOCK_CHARS], "" if isinstance(value, str) else "json", len(text[_BLOCK_CHARS:]))


class SpanPage(Struct, kw_only=True):
    """The data of `/traces/<id>/<span>`."""

    trace: str
    span: Span

    @property
    def facts(self) -> list[str]:
        data, facts = self.span.data, []
        if data.model:
            facts.append(data.model)
        if self.span.endTime is not UNSET and data.type != "EVENT":
            facts.append(took(self.span.endTime - self.span.startTime))
        if data.inputTokens is not UNSET or data.outputTokens is not UNSET:
            facts.append(f"{short_number(data.inputTokens or 0)} in, {short_number(data.outputTokens or 0)} out")
        if data.totalCost is not UNSET:
            facts.append(money(data.totalCost))
        return facts

    @property
    def event(self) -> str | None:
        """The address of the event that the span was made from."""
        session, event = (self._metadata.get(name) for name in ("sessionId", "eventId"))
        return session_url(session, event=event) if isinstance(session, str) and isinstance(event, str) else None

    @property
    def shown_by(self) -> str | None:
        """The address of the span that shows the same call."""
        match self._metadata.get("shownBy"):
            case {"traceId": str(trace), "spanId": str(span)}:
                return f"/traces/{quote(trace, safe='')}/{span}"
        return None

    @property
    def blocks(self) -> list[Block]:
        data = self.span.data
        given = (("Input", data.input), ("Output", data.output), ("Tool calls", data.toolCalls))
        return [Block.of(title, value) for title, value in given if value is not UNSET and value is not None]

    @property
    def tables(self) -> list[tuple[str, dict[str, str]]]:
        given = (("Attributes", self.span.data.attributes or {}), ("Metadata", self._metadata))
        return [(title, {name: _text(value) for name, value in table.items()}) for title, table in given if table]

    @property
    def _metadata(self) -> dict[str, Any]:
        return self.span.data.metadata or {}


def routes(site: Site) -> list[Route]:
    library = site.library

    def trace(request: Request) -> Any:
        id, query = stored_trace_id(request.path_params["id"]), request.query_params
        if "labels" in query:
            return {"labels": read_labels(library, id, query["labels"].split(",")[:ROWS])}
        return read_trace(library, id, query)

    def span(request: Request) -> SpanPage:
        return read_span(library, stored_trace_id(request.path_params["id"]), request.path_params["span"])

    def listing(request: Request) -> Answer:
        page = list_traces(library, request.query_params)
        return Answer(page, 200 if page.error is None else 400)

    return [
        *site.page("/traces", "traces.html", listing, nav=Nav("Traces", "/traces", "t")),
        *site.page("/traces/{id}/{span}", "span.html", span, parts=["span"]),
        *site.page("/traces/{id}", "trace.html", trace),
    ]


# The list


def list_traces(library: Library, query: QueryParams) -> TraceList:
    of: Of = "spans" if query.get("of") == "spans" else "traces"
    page = TraceList(
        of=of,
        given={
            field.name: text
            for field in FIELDS
            if (of == "traces" or field.of_spans) and (text := query.get(field.name, "").strip())
        },
        conditions=_conditions(query),
        sort=query.get("sort") or ("createdAt" if of == "traces" else "startTime"),
        order="asc" if query.get("order") == "asc" else "desc",
    )
    arguments: dict[str, Any] = {"filters": _filters(page), "sortBy": page.sort, "sortOrder": page.order}
    if query.get("cursor"):
        arguments["cursor"] = query["cursor"]
    answer = library.call(f"search_{of}", arguments)
    if "error" in answer:
        if answer["code"] != "INVALID_QUERY":
            raise HTTPException(503, answer["error"])
        page.error = answer["error"]
    else:
        page.items, page.warnings = answer["items"], answer.get("warnings", [])
        page.total, page.cursor = answer.get("total"), answer.get("cursor")
    return library.egress(page)


def _conditions(query: QueryParams) -> list[Condition]:
    """The conditions of the address, and the one that the form adds."""
    given = [text.split(":", 2) for text in query.getlist("f")]
    if query.get("field") and query.get("value"):
        given.append([query["field"].strip(), query.get("operator", "eq"), query["value"].strip()])
    return [Condition(*parts) for parts in given if len(parts) == 3]


def _filters(page: TraceList) -> list[dict[str, Any]]:
    filters: list[dict[str, Any]] = []
    for field in FIELDS:
        path = field.of_traces if page.of == "traces" else field.of_spans
        if field.name in page.given and path is not None:
            value = _typed(path, page.given[field.name])
            if field.name == "slower" and isinstance(value, float):
                value *= 1000
            elif field.name == "since" and (moment := parse_moment(page.given["since"])) is not None:
                value = moment
            filters.append({"field": path, "operator": field.operator, "value": value})
    own = ((each.field, each.operator, each.value) for each in page.conditions)
    return [*filters, *({"field": path, "operator": op, "value": _typed(path, value)} for path, op, value in own)]


def _typed(path: str, text: str) -> str | float | bool:
    """The value of a condition: a number where the field is one; in metadata also where the text is one."""
    if path in _NUMBERS or path.startswith(("data.metadata.", "data.attributes.")):
        try:
            number = float(text)
        except ValueError:
            return {"true": True, "false": False}.get(text, text)
        if math.isfinite(number):
            return number
    return text


# A trace


def read_trace(library: Library, id: str, query: QueryParams) -> TracePage:
    outline = read_outline(library.archive.spans, id)
    if outline is None:
        raise HTTPException(404, "There is no such trace.")
    trace = outline.trace
    first = query.get("from", "0")
    start = int(first) if first.isascii() and first.isdecimal() and len(first) < 9 else 0
    start = min(start, max(len(outline.rows) - 1, 0)) // ROWS * ROWS
    page = TracePage(
        id=trace.id,
        name=trace.name,
        status=trace.status,
        started_at=rfc3339(trace.start),
        length=outline.length,
        latency=trace.latency,
        cost=trace.cost,
        tokens=trace.tokens,
        errors=sum(row.status == "error" for row in outline.rows),
        session=session_id(trace.session) if trace.session else None,
        source=trace.source,
        project=trace.project,
        view="tree" if query.get("view") == "tree" else "waterfall",
        first=start,
        rows=[],
    )
    page = library.egress(page)
    page.rows = _rows(library, outline)
    page.labels = read_labels(library, id, [row.id for row in outline.rows[start : start + ROWS]])
    return page


def _rows(library: Library, outline: Outline) -> list[OutlineRow]:
    """The rows of an outline. Only names and models are texts of others; each different one passes egress once."""
    texts = list({text for row in outline.rows for text in (row.name, row.model) if text is not None})
    clean: dict[str | None, str | None] = dict(zip(texts, library.egress(texts), strict=True))
    changed = {text for text in texts if clean[text] != text}
    return [
        msgspec.structs.replace(row, name=clean[row.name], model=clean.get(row.model))
        if row.name in changed or row.model in changed
        else row
        for row in outline.rows
    ]


def read_labels(library: Library, id: str, spans: Sequence[str]) -> dict[str, str]:
    """The most telling arguments of tool calls, by the id of the span."""
    numbers = {number: span for span in spans if (number := span_number(span)) is not None}
    found = library.archive.spans.trace(id, list(numbers)) if numbers else None
    inputs = {numbers[row.id]: row.input for row in (found[1] if found else ()) if row.type == "SPAN" and row.parent}
    labels = {span: main_argument(value) for span, value in library.egress(inputs).items()}
    return {span: label[:_LABEL_CHARS] for span, label in labels.items() if label}


def read_span(library: Library, id: str, span: str) -> SpanPage:
    number = span_number(span)
    found = library.archive.spans.trace(id, [number]) if number is not None else None
    if found is None or not found[1]:
        raise HTTPException(404, "There is no such span.")
    return SpanPage(trace=library.egress(id), span=library.egress(span_view(found[1][0])))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def axis_ticks(length: int) -> list[int]:
    """Round times in milliseconds from 0 up to the length of a trace, for its axis."""
    step = next((step for step in _STEPS if length <= step * _MOST_TICKS), max(length, 1))
    return list(range(0, length + 1, step))
