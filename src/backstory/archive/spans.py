"""The traces of an archive: the rows it keeps, the fields that find them, and the protocol to write and read them.

`archive/local/spans` is the engine on SQLite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar

from msgspec import Struct

Status = Literal["error", "pending", "success"]
SpanType = Literal["EVENT", "GENERATION", "SPAN"]
Operator = Literal["eq", "ne", "gt", "gte", "lt", "lte", "contains"]
Value = str | int | float | bool
# The positions are the codes that are stored: in the order of the alphabet, so that codes sort like the words.
STATUSES: tuple[Status, ...] = ("error", "pending", "success")
SPAN_TYPES: tuple[SpanType, ...] = ("EVENT", "GENERATION", "SPAN")
COUNT_LIMIT = 10_000
UsageDetail = Literal["day", "session", "quarter"]
StatsGroup = Literal["name", "model", "tool"]

T = TypeVar("T")


class Origin(Struct, frozen=True, kw_only=True):
    """The origin of a trace. A field that one batch of spans leaves empty keeps the value of an earlier batch."""

    name: str | None = None
    session: str | None = None
    """Key of a session: `<source>/<the agent's own id>`."""
    source: str | None = None
    project: str | None = None
    dataset_run: str | None = None


class TraceRow(Struct, kw_only=True):
    """One trace. Times are milliseconds since the epoch."""

    id: str
    name: str | None = None
    status: Status = "success"
    start: int = 0
    updated: int = 0
    latency: int | None = None
    cost: float | None = None
    tokens: int | None = None
    session: str | None = None
    source: str | None = None
    project: str | None = None
    dataset_run: str | None = None


class EventRange(Struct):
    """Events of a turn, by the ordinals of the first and the last one."""

    first: int | None = None
    last: int | None = None
    last_turn: int | None = None
    """The turn of `last`, where that is another one."""


class SpanRow(Struct, kw_only=True):
    """One span. `id` and `parent` are the eight bytes of OpenTelemetry as a signed integer."""

    trace: str
    id: int
    parent: int | None = None
    name: str
    type: SpanType = "SPAN"
    status: Status = "success"
    start: int
    end: int | None = None
    model: str | None = None
    input_tokens: int | None = None
    """With what was read from or written to the cache, which stand beside it."""
    output_tokens: int | None = None
    total_tokens: int | None = None
    """Only where the sum is all that was reported."""
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = None
    """The part of `cache_write_tokens` that was written for an hour, not for five minutes."""
    reasoning_tokens: int | None = None
    cost: float | None = None
    cost_reported: bool = False
    """The cost was reported with the call; else it is computed from prices."""
    stop_reason: str | None = None
    exit_code: int | None = None
    waiting: int | None = None
    """Milliseconds of it that the agent waited for a person."""
    call: str | None = None
    """The call that the span reports, as its agent or provider names it: the request id of a model call, the call id of
    a tool. Spans of one session and one type (GENERATION or not) that report the same call are one span. Only the span
    of the call as a whole has it, not those inside (such as a permission prompt)."""
    alias: str | None = None
    """Another name of a model call (`model.call_by_tokens`), for transcripts without its id."""
    logged: bool = False
    """Made from a log record, which may report a call that a span reports as well."""
    twin: tuple[str, int] | None = None
    """Trace and id of the span that shows the call which this one reports; filled in by the store."""
    cause: int | None = None
    """The model call that asked for a tool call, in the same trace."""
    events: EventRange | None = None
    """The events of its turn that hold its texts. Input and output are read from them."""
    event: bytes | None = None
    """The event of the archive it was made from; filled in by the store."""
    metadata: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    input: Any = None
    output: Any = None
    tool_calls: list[dict[str, Any]] = []
    origin: Origin = Origin()
    """Of its trace; filled in by the store."""
    cut: bool = False
    """There is more of it than was asked for."""

    @property
    def tokens(self) -> int | None:
        """The sum of its tokens; None if none were reported."""
        if self.input_tokens is None and self.output_tokens is None:
            return self.total_tokens
        return (self.input_tokens or 0) + (self.output_tokens or 0)


class Condition(Struct, frozen=True):
    """`field` is one of the contract's paths; times are milliseconds."""

    field: str
    operator: Operator
    value: Value


class Position(Struct, frozen=True):
    """The end of a page: the value it was sorted by, and a number that decides among equals."""

    value: Value | None
    number: int


class TraceQuery(Struct, frozen=True, kw_only=True):
    """A search for traces or spans."""

    conditions: tuple[Condition, ...] = ()
    sort: str
    descending: bool = True
    limit: int = 50
    after: Position | None = None
    deadline: float | None = None
    """`time.monotonic()` after which what was found so far is the answer."""


class Found(Struct, Generic[T], kw_only=True):
    rows: list[T]
    more: bool = False
    total: int | None = None
    """None: above COUNT_LIMIT, or there was no time to count."""
    last: Position | None = None
    complete: bool = True
    """False: the time was up before everything was looked at."""


class Window(Struct, frozen=True, kw_only=True):
    """A time, and the projects and sources in it."""

    since: int | None = None
    until: int | None = None
    project: str | None = None
    """Part of a project's path, in any case."""
    folders: tuple[str, ...] = ()
    """With `project`: also the projects at these paths."""
    source: str | None = None


class UsageTotal(Struct, kw_only=True):
    """Tokens and cost of the model calls of one day, project, model and agent."""

    day: str
    """The local date. `start` and `end` are the times of the first and the last call."""
    start: int
    end: int
    session: str | None = None
    """Key of the session, where usage is asked for by session."""
    project: str | None
    model: str | None
    source: str | None
    calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost: float | None
    unpriced: int
    """Calls of models without a known price; they are not in `cost`."""


class SpanStats(Struct, kw_only=True):
    """The spans of one name, model or tool. Latencies are milliseconds, of the spans that have ended.

    A tool has the tokens and the cost of the model calls that asked for it, in equal parts with the other tools of the
    same model call. Its latencies are without the time spent waiting for a person.
    """

    name: str
    count: int
    errors: int
    milliseconds: int
    p50: int | None
    p95: int | None
    tokens: int
    cost: float | None


class Spans(Protocol):
    """The traces of an archive. Any number of threads and processes may read, and put spans that they received.

    The spans of turns are written by a projection (`archive/changes.py`).
    """

    def put(self, spans: Sequence[SpanRow], origins: Mapping[str, Origin]) -> None:
        """Write spans, each in the place of what was known under its trace and id. `origins` is by trace."""

    def traces(self, query: TraceQuery) -> Found[TraceRow]: ...
    def spans(self, query: TraceQuery, chars: int) -> Found[SpanRow]:
        """Inputs, outputs and values of attributes come with at most so many characters."""

    def trace(
        self, id: str, only: Collection[int] | None = None, *, texts: bool = True
    ) -> tuple[TraceRow, list[SpanRow]] | None:
        """A trace with its spans by their start, or with `only` those of these ids. Without `texts`, they have
        what a drawing of ten thousand spans needs: place, name, type, status, times, model, tokens and cost; an engine
        may leave out the rest."""

    def usage(self, window: Window, detail: UsageDetail = "day") -> list[UsageTotal]:
        """A call counts once, whether a transcript, telemetry or both report it. Telemetry that does not name its calls
        counts for sessions without a transcript. `detail` also separates sessions, or sessions and the quarter hours of
        a day."""

    def stats(self, window: Window, by: StatsGroup, *, latencies: bool = True) -> list[SpanStats]:
        """Counts, errors and latencies of spans by name, model or tool; the most frequent first. Without `latencies`,
        `p50` and `p95` may be missing: sums alone are cheaper."""

    def check(self) -> None:
        """Raise ArchiveError, with the remedy, if the traces are damaged."""


# The fields that spans and traces are searched and sorted by, with the columns that hold them in every engine

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
