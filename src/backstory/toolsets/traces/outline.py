"""The outline of a trace: its spans as a tree in drawing order, without their texts."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from ...archive.spans import SpanRow, Spans, SpanType, Status, TraceRow


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
    """The number of a span, given its id as the tools write it (16 hexadecimal digits)."""
    if len(id) != 16 or not all(digit in "0123456789abcdef" for digit in id):
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
