"""Traces as a person reads them: lists, trees of spans with bars, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ...toolcalls import main_argument
from ...toolsets.traces.reports import SpanTree, end_of
from ..words import duration, fit, handle
from .output import (
    Column,
    Console,
    Part,
    Plain,
    count,
    dollars,
    facts,
    headline,
    hint,
    moment,
    percent,
    put,
    put_facts,
    show_table,
    stdout_console,
    warn,
)

if TYPE_CHECKING:
    from ...archive.spans import SpanStats

_COLORS = {"error": "red", "pending": "yellow", "success": "green"}
_TIME = 10
_MARKS = {"GENERATION": "✦", "EVENT": "·", "SPAN": "▸"}
# Shorter runs of calls of the same tool are shown call by call.
_LEAST_RUN = 4


def show_traces(answer: dict[str, Any], traces: list[dict[str, Any]], *, filtered: bool = False) -> None:
    console = stdout_console()
    for trace in traces:
        headline(console, trace.get("name") or trace["id"])
        put(console, _status(trace), facts(*_trace_facts(trace), _short(trace["id"])), indent=2)
    warn(answer.get("warnings", ()))
    if not traces:
        hint("No trace matches." if filtered else "No traces. Everything agents did becomes one: backstory sync")
        return
    total = f"{answer['total']:,} in all · " if "total" in answer else ""
    hint(f"{total}see one: backstory traces show {_short(traces[0]['id'])}")


def show_spans(answer: dict[str, Any]) -> None:
    console = stdout_console()
    for span in answer["items"]:
        data = span["data"]
        headline(console, span["name"])
        took = duration((span["endTime"] - span["startTime"]) / 1000) if "endTime" in span else None
        tokens = _tokens(data)
        parts = (took, tokens, dollars(data["totalCost"]) if "totalCost" in data else None, _short(span["traceId"]))
        put(console, _status(span), facts(*parts), indent=2)
        for side in ("input", "output"):
            if side in data:
                text = data[side] if isinstance(data[side], str) else _one_line(data[side])
                put(console, facts(side), "  ", " ".join(text.split())[:200], indent=2)
    warn(answer.get("warnings", ()))
    if not answer["items"]:
        hint("No spans match.")


def show_trace(trace: dict[str, Any], *, errors_only: bool = False) -> None:
    console = stdout_console()
    headline(console, trace.get("name") or trace["id"])
    put(console, _status(trace), facts(*_trace_facts(trace)))
    put_facts(console, trace["id"])
    console.print()
    tree = _Tree(trace["spans"])
    shown = tree.with_errors() if errors_only else None
    if shown is not None and not shown:
        put(console, "No span of this trace failed.")
        return
    layout = _Layout.of(console)
    for run, depth in tree.runs(shown):
        _put_run(console, tree, run, depth, layout)
    hint("━ critical path: what the trace had to wait for · ✗ failed")


def show_stats(stats: list[SpanStats], by: str) -> None:
    names = [entry.name for entry in stats]
    columns = [
        Column("count", [f"{entry.count:,}" for entry in stats]),
        Column("errors", [percent(entry.errors, entry.count) for entry in stats]),
        Column("P50", [_milliseconds(entry.p50) for entry in stats]),
        Column("P95", [_milliseconds(entry.p95) for entry in stats]),
        Column("tokens", [count(entry.tokens) for entry in stats], rank=1),
        Column("cost", [dollars(entry.cost) for entry in stats], rank=2),
    ]
    # No bars: at 80 columns they would take the room of the cost.
    show_table(by, names, columns)


def _short(trace_id: str) -> str:
    """The handle of a turn; other ids are as short as possible already."""
    return handle(trace_id) if trace_id.startswith(("turn:", "session:")) else trace_id


class _Layout(Struct, frozen=True):
    """The widths of the columns of a tree."""

    name: int
    bar: int
    is_wide: bool

    @classmethod
    def of(cls, console: Console) -> _Layout:
        columns = 120 if isinstance(console, Plain) else console.width
        is_wide = columns >= 100
        bar = 24 if is_wide else 12 if columns >= 70 else 6
        amounts = 30 if is_wide else 19 if columns >= 70 else 0
        return cls(name=max(16, columns - bar - _TIME - amounts - 4), bar=bar, is_wide=is_wide)


def _put_run(console: Console, tree: _Tree, run: list[_Span], depth: int, layout: _Layout) -> None:
    """One span, or a run of calls of the same tool, with a bar for the time it took."""
    first, end = run[0], run[-1].end
    data, failed = first.data, first.status == "error"
    mark = "✗" if failed else _MARKS[data["type"]]
    times = f" ×{len(run)}" if len(run) > 1 else ""
    is_call = data["type"] == "SPAN" and len(run) == 1 and first.parent is not None
    argument = main_argument(data.get("input")) if is_call else None
    name = fit(
        "  " * min(depth, 12) + f"{mark} {first.name}{times}" + (f"  {argument}" if argument else ""), layout.name
    )
    left = min((first.start - tree.begin) * layout.bar // tree.length, layout.bar - 1)
    long = max(1, (end_of(run[-1]) - first.start) * layout.bar // tree.length)
    line = "━" if any(span.id in tree.critical for span in run) else "─"
    bar = fit(" " * left + line * min(long, layout.bar - left), layout.bar)
    took = "" if data["type"] == "EVENT" else duration((end - first.start) / 1000) if end is not None else "unfinished"
    cost = dollars(data["totalCost"]) if "totalCost" in data else None
    put(
        console,
        (f"{name} ", "bold red" if failed else ""),
        (f"{bar} ", _COLORS[first.status]),
        f"{took:>{_TIME}}  ",
        facts(*((_tokens(data), cost if layout.is_wide else None) if layout.bar > 6 else ())),
    )


def _milliseconds(ms: int | None) -> str:
    return "—" if ms is None else duration(ms / 1000)


def _status(item: dict[str, Any]) -> Part:
    status = item.get("status", "success")
    return f"{status}  ", _COLORS[status]


def _trace_facts(trace: dict[str, Any]) -> tuple[str | None, ...]:
    return (
        moment(trace["createdAt"]),
        duration(trace["latency"] / 1000) if "latency" in trace else None,
        f"{count(trace['totalTokens'])} tokens" if "totalTokens" in trace else None,
        dollars(trace["totalCost"]) if "totalCost" in trace else None,
    )


def _tokens(data: dict[str, Any]) -> str | None:
    if "inputTokens" not in data:
        return None
    return f"{count(data['inputTokens'])} in, {count(data.get('outputTokens', 0))} out"


def _one_line(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()


class _Span(Struct, frozen=True):
    """A span of an answer, with what its place in the tree and its line need."""

    id: str
    parent: str | None
    start: int
    end: int | None
    name: str
    status: str
    data: dict[str, Any]


class _Tree:
    """The spans of a trace, with runs of calls of the same tool, and the critical path."""

    def __init__(self, items: list[dict[str, Any]]) -> None:
        spans = [_span(item) for item in items]
        self._spans = {span.id: span for span in spans}
        self._tree = SpanTree(spans)
        self.begin: int = min(span.start for span in spans)
        self.length: int = max(max(map(end_of, spans)) - self.begin, 1)
        self.critical = self._tree.critical_path()

    def runs(self, only: set[str] | None = None) -> Iterator[tuple[list[_Span], int]]:
        """Spans with their depth, parents first; successful calls of one tool in a row come together."""
        waiting = [(run, 0) for run in reversed(self._grouped(self._tree.roots, only))]
        seen: set[str] = set()
        while waiting:
            run, depth = waiting.pop()
            if run[0].id in seen:
                continue
            seen.update(span.id for span in run)
            yield run, depth
            children = self._tree.children(run[0]) if len(run) == 1 else []
            waiting += [(inner, depth + 1) for inner in reversed(self._grouped(children, only))]

    def with_errors(self) -> set[str]:
        """The ids of the spans that failed, and of those above them."""
        kept: set[str] = set()
        for span in self._spans.values():
            here: _Span | None = span if span.status == "error" else None
            while here is not None and here.id not in kept:
                kept.add(here.id)
                here = self._spans.get(here.parent or "")
        return kept

    def _grouped(self, spans: Sequence[_Span], only: set[str] | None) -> list[list[_Span]]:
        runs: list[list[_Span]] = []
        for span in spans:
            if only is not None and span.id not in only:
                continue
            if runs and self._joins(runs[-1][-1], span):
                runs[-1].append(span)
            else:
                runs.append([span])
        return [part for run in runs for part in ([run] if len(run) >= _LEAST_RUN else [[span] for span in run])]

    def _joins(self, before: _Span, span: _Span) -> bool:
        return (
            before.name == span.name
            and before.data["type"] == span.data["type"] == "SPAN"
            and before.status == span.status == "success"
            and not self._tree.children(before)
            and not self._tree.children(span)
        )


def _span(item: dict[str, Any]) -> _Span:
    return _Span(
        id=item["id"],
        parent=item.get("parentId"),
        start=item["startTime"],
        end=item.get("endTime"),
        name=item["name"],
        status=item["status"],
        data=item["data"],
    )
