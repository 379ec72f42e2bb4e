"""The outline of a trace: its spans as a tree in drawing order, without their texts."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ...archive.spans import SpanOutline, Spans, SpanType, Status, TraceRow


class OutlineRow(Struct, frozen=True, kw_only=True):
    """One span of an outline. `start` and `end` are milliseconds from the beginning of the trace."""

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
    found = spans.outline(id)
    if found is None:
        return None
    trace, rows = found
    begin = min((span.start for span in rows), default=trace.start)
    length = max((_end(span) - begin for span in rows), default=0)
    return Outline(trace=trace, begin=begin, length=max(length, 1), rows=_Tree(rows).rows(begin))


def span_number(id: str) -> int | None:
    """The number of a span, given its id as the tools write it (16 hexadecimal digits)."""
    if len(id) != 16 or not all(digit in "0123456789abcdef" for digit in id):
        return None
    return int.from_bytes(bytes.fromhex(id), "big", signed=True)


class _Tree:
    def __init__(self, spans: list[SpanOutline]) -> None:
        self._children: dict[int | None, list[SpanOutline]] = {}
        known = {span.id for span in spans}
        for span in spans:
            parent = span.parent if span.parent in known else None
            self._children.setdefault(parent, []).append(span)
        # Spans that name one another as their parents have no root; each is shown once all the same.
        self._roots = self._children.get(None) or spans
        self._critical = self._critical_path() if spans else set()

    def rows(self, begin: int) -> list[OutlineRow]:
        order = list(self._walk())
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
                critical=span.id in self._critical,
                model=span.model,
                tokens=span.tokens,
                cost=span.cost,
            )
            for (span, depth), below in zip(order, inside, strict=True)
        ]

    def _walk(self) -> Iterable[tuple[SpanOutline, int]]:
        """The spans with their depth, parents first."""
        waiting = [(span, 0) for span in reversed(self._roots)]
        seen: set[int] = set()
        while waiting:
            span, depth = waiting.pop()
            if span.id in seen:
                continue
            seen.add(span.id)
            yield span, depth
            waiting += [(child, depth + 1) for child in reversed(self._children.get(span.id, ()))]

    def _critical_path(self) -> set[int]:
        """Backwards from the end, the child that ended last before the next one began, in each of these again."""
        path: set[int] = set()
        waiting = [max(self._roots, key=_end)]
        while waiting:
            span = waiting.pop()
            if span.id in path:
                continue
            path.add(span.id)
            moment = _end(span)
            for child in sorted(self._children.get(span.id, ()), key=_end, reverse=True):
                if child.start < _end(child) <= moment:
                    waiting.append(child)
                    moment = child.start
        return path


def _count_inside(depths: list[int]) -> list[int]:
    """For each row the number of rows that follow it and lie deeper."""
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


def _end(span: SpanOutline) -> int:
    return span.start if span.end is None else span.end
