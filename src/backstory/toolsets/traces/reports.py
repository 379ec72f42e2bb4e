"""Reports on traces for people: the outline of one, and usage by day, project, session, model, agent or tool.

An outline has the spans of a trace as a tree in drawing order, without their texts. Usage adds up tokens and cost.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from datetime import date, datetime
from string import hexdigits
from typing import Generic, Literal, Protocol, TypeVar

from msgspec import Struct

from ...archive.base import Archive, SessionRow, SessionsRequest
from ...archive.spans import SpanRow, Spans, SpanStats, SpanType, Status, TraceRow, UsageDetail, UsageTotal, Window
from ...prices import Tokens, price

Group = Literal["day", "week", "month", "block", "project", "branch", "session", "model", "agent", "tool"]
SessionOf = Callable[[str], SessionRow | None]
"""A session, given its key."""

_BY_TIME = ("day", "week", "month", "block")
_DETAIL: dict[Group, UsageDetail] = {
    "block": "quarter",
    "session": "session",
    "branch": "session",
    "project": "session",
}
# Anthropic's limits count usage in blocks that begin with the full hour of the first call.
_HOUR_MS = 3_600_000
_BLOCK_MS = 5 * _HOUR_MS
_PROBE = 1_000
_COUNTS = ("calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens", "unpriced")


class OutlineRow(Struct, frozen=True, kw_only=True, array_like=True):
    """One span of an outline, in JSON as a list. `start` and `end` are milliseconds from the beginning of the trace."""

    id: str
    name: str
    type: SpanType
    status: Status
    start: int
    end: int | None
    depth: int
    inside: int
    """The number of spans below it, which are the next rows."""
    critical: bool
    """The trace had to wait for it."""
    model: str | None
    tokens: int | None
    cost: float | None


class Outline(Struct, frozen=True, kw_only=True):
    trace: TraceRow
    begin: int
    """Milliseconds since the epoch."""
    length: int
    """Milliseconds from the first start to the last end, at least 1."""
    rows: list[OutlineRow]
    """Parents before their children."""


def read_outline(spans: Spans, id: str) -> Outline | None:
    """The outline of a trace, or None if there is no such trace."""
    found = spans.trace(id, texts=False)
    if found is None:
        return None
    trace, rows = found
    begin = min((span.start for span in rows), default=trace.start)
    length = max((end_of(span) - begin for span in rows), default=0)
    return Outline(trace=trace, begin=begin, length=max(length, 1), rows=_rows(rows, begin))


def span_number(id: str) -> int | None:
    """The number of a span, given its id (16 hexadecimal digits)."""
    if len(id) != 16 or not all(digit in hexdigits for digit in id):
        return None
    return int.from_bytes(bytes.fromhex(id), "big", signed=True)


class Node(Protocol):
    """A span as far as its place in a trace goes."""

    @property
    def id(self) -> Hashable: ...
    @property
    def parent(self) -> Hashable | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int | None: ...


N = TypeVar("N", bound=Node)


class SpanTree(Generic[N]):
    """The spans of a trace by their parents. A span whose parent the trace does not have is a root."""

    def __init__(self, spans: Sequence[N]) -> None:
        self._children: dict[Hashable | None, list[N]] = {}
        known = {span.id for span in spans}
        for span in spans:
            self._children.setdefault(span.parent if span.parent in known else None, []).append(span)
        # Spans that name one another as their parents have no root; each is shown once.
        self.roots: Sequence[N] = self._children.get(None) or spans

    def children(self, span: N) -> Sequence[N]:
        return self._children.get(span.id, ())

    def walk(self) -> Iterator[tuple[N, int]]:
        """The spans with their depth, parents first."""
        waiting = [(span, 0) for span in reversed(self.roots)]
        seen: set[Hashable] = set()
        while waiting:
            span, depth = waiting.pop()
            if span.id in seen:
                continue
            seen.add(span.id)
            yield span, depth
            waiting += [(child, depth + 1) for child in reversed(self.children(span))]

    def critical_path(self) -> set[Hashable]:
        """The ids of the spans that the trace had to wait for.

        Backwards from the end, the child that ended last before the next one began, in each of these spans again.
        """
        path: set[Hashable] = set()
        waiting = [max(self.roots, key=end_of)] if self.roots else []
        while waiting:
            span = waiting.pop()
            if span.id in path:
                continue
            path.add(span.id)
            moment = end_of(span)
            for child in sorted(self.children(span), key=end_of, reverse=True):
                if child.start < end_of(child) <= moment:
                    waiting.append(child)
                    moment = child.start
        return path


def end_of(span: Node) -> int:
    """The end of a span; the start of an unfinished one."""
    return span.start if span.end is None else span.end


def _rows(spans: list[SpanRow], begin: int) -> list[OutlineRow]:
    tree = SpanTree(spans)
    critical = tree.critical_path()
    order = list(tree.walk())
    inside = _count_inside([depth for _, depth in order])
    return [
        OutlineRow(
            id=f"{span.id & 0xFFFF_FFFF_FFFF_FFFF:016x}",
            name=span.name,
            type=span.type,
            status=span.status,
            start=span.start - begin,
            end=None if span.end is None else span.end - begin,
            depth=depth,
            inside=below,
            critical=span.id in critical,
            model=span.model,
            tokens=span.tokens,
            cost=span.cost,
        )
        for (span, depth), below in zip(order, inside, strict=True)
    ]


def _count_inside(depths: list[int]) -> list[int]:
    """For each row the number of rows that follow it and are deeper."""
    counts = [0] * len(depths)
    open_rows: list[int] = []
    for place, depth in enumerate(depths):
        while open_rows and depths[open_rows[-1]] >= depth:
            row = open_rows.pop()
            counts[row] = place - row - 1
        open_rows.append(place)
    for row in open_rows:
        counts[row] = len(depths) - row - 1
    return counts


class Amount(Struct, kw_only=True):
    """Added-up model calls. `cost` is None when no call has a known price; `unpriced` calls are not in it."""

    name: str | None = None
    calls: int = 0
    input_tokens: int = 0
    """With those read from and written to the cache."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None
    unpriced: int = 0

    def add(self, total: UsageTotal | Amount) -> None:
        for field in _COUNTS:
            setattr(self, field, getattr(self, field) + getattr(total, field))
        if total.cost is not None:
            self.cost = (self.cost or 0.0) + total.cost

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    @property
    def cache_share(self) -> float | None:
        """The part of the input that was read from the cache."""
        return self.cache_read_tokens / self.input_tokens if self.input_tokens else None


class Line(Amount, kw_only=True):
    """One line of a report."""

    reasoning_tokens: int = 0
    saved: float | None = None
    """The additional cost of the tokens read from the cache, had they been plain input."""

    def add_total(self, total: UsageTotal) -> None:
        self.add(total)
        self.cost = None if self.cost is None else round(self.cost, 6)
        self.reasoning_tokens += total.reasoning_tokens
        if (saved := _saved(total)) is not None:
            self.saved = round((self.saved or 0.0) + saved, 6)


class ToolUse(Struct, kw_only=True):
    """The calls of one tool. Tokens and cost are those of the model calls that asked for it, in equal parts."""

    tool: str
    calls: int
    errors: int
    milliseconds: int
    """Without the time spent waiting for a person."""
    tokens: int
    cost: float | None

    @classmethod
    def of(cls, stats: SpanStats) -> ToolUse:
        return cls(
            tool=stats.name,
            calls=stats.count,
            errors=stats.errors,
            milliseconds=stats.milliseconds,
            tokens=stats.tokens,
            cost=stats.cost,
        )


class Report(Struct, kw_only=True):
    by: Group
    lines: list[Line] = []
    tools: list[ToolUse] = []
    """Instead of lines, when the report is by tool."""
    total: Line


def folders_of(archive: Archive, project: str | None) -> tuple[str, ...]:
    """The folders of the sessions that belong to a project, by a part of its path or of its identity."""
    if project is None:
        return ()
    sessions = archive.sessions(SessionsRequest(project=project))
    return tuple(sorted({session.cwd for session in sessions if session.cwd}))


def usage_report(spans: Spans, window: Window, by: Group, session_of: SessionOf) -> Report:
    totals = spans.usage(window, _DETAIL.get(by, "day"))
    total = Line(name="total")
    for entry in totals:
        total.add_total(entry)
    if by == "tool":
        return Report(
            by=by, tools=[ToolUse.of(stats) for stats in spans.stats(window, "tool", latencies=False)], total=total
        )
    lines: dict[str | None, Line] = {}
    for name, entry in _named(totals, by, session_of):
        lines.setdefault(name, Line(name=name)).add_total(entry)
    if by in _BY_TIME:
        ordered = sorted(lines.values(), key=lambda line: line.name or "", reverse=True)
    else:
        ordered = sorted(lines.values(), key=lambda line: (line.cost or 0.0, line.input_tokens), reverse=True)
    return Report(by=by, lines=ordered, total=total)


def _named(totals: list[UsageTotal], by: Group, session_of: SessionOf) -> Iterable[tuple[str | None, UsageTotal]]:
    """Each total with the name of the line it belongs to."""
    if by == "block":
        yield from _blocks(totals)
        return
    sessions: dict[str | None, SessionRow | None] = {None: None}
    for entry in totals:
        match by:
            case "week":
                year, week, _ = date.fromisoformat(entry.day).isocalendar()
                yield f"{year}-W{week:02}", entry
            case "month":
                yield entry.day[:7], entry
            case "branch":
                session = _session(sessions, entry, session_of)
                yield session.branch if session else None, entry
            case "project":
                session = _session(sessions, entry, session_of)
                yield (session.project if session else None) or entry.project, entry
            case "agent":
                yield entry.source, entry
            case _:
                yield getattr(entry, by), entry


def _session(known: dict[str | None, SessionRow | None], entry: UsageTotal, session_of: SessionOf) -> SessionRow | None:
    if entry.session not in known:
        known[entry.session] = session_of(entry.session or "")
    return known[entry.session]


def _blocks(totals: list[UsageTotal]) -> Iterable[tuple[str, UsageTotal]]:
    """Blocks of five hours: a new one begins with the first call after the last one's end."""
    begin = -_BLOCK_MS
    for entry in sorted(totals, key=lambda entry: entry.start):
        if entry.start >= begin + _BLOCK_MS:
            begin = entry.start - entry.start % _HOUR_MS
        yield datetime.fromtimestamp(begin / 1000).astimezone().strftime("%Y-%m-%d %H:%M"), entry


def _saved(total: UsageTotal) -> float | None:
    # By the price of a small call: the tokens of many calls together would count as one beyond the model's first tier.
    plain = price(total.model, Tokens(input=_PROBE), total.start)
    cached = price(total.model, Tokens(input=_PROBE, cache_read=_PROBE), total.start)
    if not total.cache_read_tokens or plain is None or cached is None:
        return None
    return (plain - cached) * total.cache_read_tokens / _PROBE
