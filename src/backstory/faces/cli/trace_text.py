"""Traces as a person reads them: lines, trees with bars, amounts."""

from __future__ import annotations

from typing import Any

from .handles import handle
from .output import hint, warn
from .render import Console, Part, facts, headline, moment, put, stdout_console
from .words import duration, plural

__all__ = ["count", "dollars", "show_spans", "show_table", "show_trace", "show_traces"]

_COLORS = {"error": "red", "pending": "yellow", "success": "green"}
_BAR_CHARS = 24
_NAME_CHARS = 44
_MARKS = {"GENERATION": "✦", "EVENT": "·", "SPAN": "▸"}


def show_traces(answer: dict[str, Any], traces: list[dict[str, Any]]) -> None:
    console = stdout_console()
    for trace in traces:
        headline(console, trace.get("name") or trace["id"])
        put(console, _status(trace), facts(*_trace_facts(trace), short(trace["id"])), indent=2)
    warn(answer.get("warnings", ()))
    if not traces:
        hint("No traces. Everything agents did becomes one: backstory sync")
        return
    total = f"{answer['total']:,} in all · " if "total" in answer else ""
    hint(f"{total}see one: backstory traces show {short(traces[0]['id'])}")


def show_spans(answer: dict[str, Any]) -> None:
    console = stdout_console()
    for span in answer["items"]:
        data = span["data"]
        headline(console, span["name"])
        took = duration((span["endTime"] - span["startTime"]) / 1000) if "endTime" in span else None
        tokens = _tokens(data)
        parts = (took, tokens, dollars(data["totalCost"]) if "totalCost" in data else None, short(span["traceId"]))
        put(console, _status(span), facts(*parts), indent=2)
        for side in ("input", "output"):
            if side in data:
                text = data[side] if isinstance(data[side], str) else _one_line(data[side])
                put(console, facts(side), "  ", " ".join(text.split())[:200], indent=2)
    warn(answer.get("warnings", ()))
    if not answer["items"]:
        hint("No spans match.")


def show_trace(trace: dict[str, Any]) -> None:
    console = stdout_console()
    headline(console, trace.get("name") or trace["id"])
    put(console, _status(trace), facts(*_trace_facts(trace)))
    put(console, facts(trace["id"]))
    console.print()
    spans = trace["spans"]
    begin = min(span["startTime"] for span in spans)
    end = max(span.get("endTime", span["startTime"]) for span in spans)
    children: dict[str | None, list[dict[str, Any]]] = {}
    for span in spans:
        children.setdefault(span["parentId"], []).append(span)
    # Spans that name one another as their parents have no root; each is shown once all the same.
    waiting = [(span, 0) for span in reversed(children.get(None) or spans)]
    shown: set[str] = set()
    while waiting:
        span, depth = waiting.pop()
        if span["id"] in shown:
            continue
        shown.add(span["id"])
        _show_span(console, span, depth, begin, max(end - begin, 1))
        waiting += [(child, depth + 1) for child in reversed(children.get(span["id"], []))]


def show_table(rows: list[list[str]], *, bold_last: bool = False) -> None:
    """Columns under headings; the first holds names, the others amounts."""
    console = stdout_console()
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        bold = number == 0 or (bold_last and number == len(rows) - 1)
        put(console, ("   ".join(cells), "bold" if bold else ""))


def short(trace_id: str) -> str:
    """A turn's id as people copy it; others are as short as they get."""
    return handle(trace_id) if trace_id.startswith(("turn:", "session:")) else trace_id


def count(tokens: int) -> str:
    """`950`, `12.3k`, `4.5M`."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:,.1f}k" if tokens < 999_950 else f"{tokens / 1e6:,.1f}M"


def dollars(amount: float | None) -> str:
    """`$12.34`, and more digits for small amounts; what has no price is not free."""
    if amount is None:
        return "—"
    return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def _show_span(console: Console, span: dict[str, Any], depth: int, begin: int, length: int) -> None:
    data = span["data"]
    start = span["startTime"]
    end = span.get("endTime")
    name = "  " * min(depth, 12) + f"{_MARKS[data['type']]} {span['name']}"
    name = name if len(name) <= _NAME_CHARS else name[: _NAME_CHARS - 1] + "…"
    left = (start - begin) * _BAR_CHARS // length
    width = max(1, ((end if end is not None else start) - start) * _BAR_CHARS // length)
    bar = " " * min(left, _BAR_CHARS - 1) + "━" * min(width, _BAR_CHARS - min(left, _BAR_CHARS - 1))
    color = _COLORS[span["status"]]
    took = "" if data["type"] == "EVENT" else duration((end - start) / 1000) if end is not None else "unfinished"
    cost = dollars(data["totalCost"]) if "totalCost" in data else None
    put(
        console,
        (f"{name:<{_NAME_CHARS}} ", color if span["status"] == "error" else ""),
        (f"{bar:<{_BAR_CHARS}} ", color),
        f"{took:>12}  ",
        facts(_tokens(data), cost),
    )


def _status(item: dict[str, Any]) -> Part:
    status = item.get("status", "success")
    return f"{status}  ", _COLORS[status]


def _trace_facts(trace: dict[str, Any]) -> tuple[str | None, ...]:
    return (
        moment(trace["createdAt"]),
        duration(trace["latency"] / 1000) if "latency" in trace else None,
        plural(trace["totalTokens"], "token") if "totalTokens" in trace else None,
        dollars(trace["totalCost"]) if "totalCost" in trace else None,
    )


def _tokens(data: dict[str, Any]) -> str | None:
    if "inputTokens" not in data:
        return None
    return f"{count(data['inputTokens'])} in, {count(data.get('outputTokens', 0))} out"


def _one_line(value: Any) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
