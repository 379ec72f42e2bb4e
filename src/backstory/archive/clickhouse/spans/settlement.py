"""The totals of a trace from its spans: the spans that show one call, and those that count.

The rules are those of `archive/calls.py`. Spans are written first and read again here, so of two processes that write
to a trace at the same time the one that reads last sees the spans of both, and its totals are the newest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ....prices import Tokens, price
from ...calls import (
    NEAR_MS,
    CallFacts,
    CallReport,
    Node,
    UsageReport,
    above_usage,
    call_scope,
    merge_reports,
    pair_reports,
    repeated_reports,
)
from ...spans import SPAN_TYPES, STATUSES
from ..server import Server
from .rows import (
    SPAN_COLUMNS,
    SPAN_OUTLINE,
    Key,
    StoredSpan,
    StoredTrace,
    content_text,
    facts_text,
    read_spans,
    read_spans_at,
    read_traces,
    write_spans,
    write_traces,
)

_ERROR, _PENDING, _SUCCESS = (STATUSES.index(status) for status in ("error", "pending", "success"))
_SPAN, _GENERATION = SPAN_TYPES.index("SPAN"), SPAN_TYPES.index("GENERATION")
_FACTS = [name for name in CallFacts.__struct_fields__ if name not in ("type", "status")]
_WITH_CALL = "FROM span WHERE call IS NOT NULL"

_decode = msgspec.json.Decoder().decode


class Settlement:
    """One pass over traces that have changed. `version` is taken before anything is read."""

    def __init__(self, server: Server, version: int) -> None:
        self._server = server
        self._version = version
        self._traces: dict[str, StoredTrace] = {}
        self._spans: dict[str, dict[int, StoredSpan]] = {}
        self._changes: dict[Key, dict[str, Any]] = defaultdict(dict)

    def know(self, trace: StoredTrace, spans: Iterable[StoredSpan]) -> None:
        """A trace that is new, with all its spans: there is no need to read it."""
        self._traces[trace.uid] = trace
        self._spans[trace.uid] = {span.uid: span for span in spans}

    def settle(self, traces: Collection[str], written: Collection[Key] | None = None) -> None:
        """Apply the rules to these traces and to those that report the same calls. `written` are the received spans
        that are new; without it, spans of turns were written."""
        self._load(traces)
        self._set_scopes(traces)
        touched = {*traces, *self._unite(traces, written)}
        if written is not None:
            calls = {
                span.call: span.start
                for span in map(self._span, written)
                if span is not None and span.call is not None and span.type == _GENERATION
            }
            touched |= self._traces_of_calls(calls, calls.values())
        self._load(touched)
        totals = [self._total(trace) for trace in sorted(touched) if trace in self._traces]
        self._write_changes()
        write_traces(self._server, totals)

    def settle_without(self, gone: Collection[StoredSpan], deleted: Collection[str]) -> None:
        """Settle what is left where spans are gone; `deleted` are the traces that are gone as a whole."""
        keys = {span.key for span in gone}
        rows = self._server.rows_of(
            "SELECT DISTINCT trace FROM span FINAL WHERE twin_trace IN %(names)s",
            list({span.trace for span in gone}),
        )
        shown = {(span.twin_trace or "", span.twin) for span in gone if span.twin is not None}
        touched = {trace for (trace,) in rows} | {trace for trace, _ in shown} | {span.trace for span in gone}
        touched |= self._traces_of_calls({span.call for span in gone if span.call is not None})
        touched.difference_update(deleted)
        self._load(touched)
        for span in [span for trace in touched for span in self._spans[trace].values()]:
            if (span.twin_trace, span.twin) in keys:
                self._change(span, twin_trace=None, twin=None)
            if span.key in shown:  # it has the texts of a span that is gone
                self._changes[span.key] |= {"facts": "", "content": ""}
        self.settle(touched)

    def _load(self, traces: Iterable[str]) -> None:
        missing = [trace for trace in traces if trace not in self._spans]
        self._traces |= read_traces(self._server, missing)
        self._spans |= {trace: {} for trace in missing}
        for span in read_spans(self._server, missing):
            self._spans[span.trace][span.uid] = span

    def _span(self, key: Key) -> StoredSpan | None:
        return self._spans.get(key[0], {}).get(key[1])

    def _change(self, span: StoredSpan, **fields: Any) -> None:
        changed = {name: value for name, value in fields.items() if getattr(span, name) != value}
        if changed:
            self._changes[span.key].update(changed)
            for name, value in changed.items():
                setattr(span, name, value)

    def _write_changes(self) -> None:
        """Write the changed spans one version later: what another process has written meanwhile stays."""
        spans = read_spans_at(self._server, [key for key, fields in self._changes.items() if fields])
        for key, span in spans.items():
            for name, value in self._changes[key].items():
                setattr(span, name, value)
            span.version += 1
        write_spans(self._server, spans.values())

    # Reports of one call

    def _set_scopes(self, traces: Iterable[str]) -> None:
        """The session of a trace may be known only after some of its spans."""
        for uid in traces:
            trace = self._traces.get(uid)
            if trace is not None and not trace.projected:
                scope = call_scope(trace.native)
                for span in self._spans[uid].values():
                    if span.call is not None:
                        self._change(span, scope=scope)

    def _unite(self, traces: Iterable[str], written: Collection[Key] | None) -> set[str]:
        """Let spans of turns show what telemetry reports of the same calls. Returns the traces that this changed."""
        named = [
            span
            for trace in traces
            for span in self._spans[trace].values()
            if span.call is not None and span.scope is not None
        ]
        names = {name for span in named for name in (span.call, span.alias) if name is not None}
        found = self._reports(names, named)
        numbers = {span.key: number for number, span in enumerate(found)}
        reports = [_report(number, span, numbers) for number, span in enumerate(found)]
        pairs = pair_reports(reports, names)
        news = None if written is None else self._with_parents(written)
        shown: dict[int, list[int]] = defaultdict(list)
        renewed: set[int] = set()
        touched: set[str] = set()
        for report, span in zip(reports, found, strict=True):
            twin = pairs.get(report.number)
            if twin is not None:
                shown[twin].append(report.number)
            if twin != report.twin and (twin is not None or report.name_by_tokens in names):
                target = None if twin is None else found[twin]
                self._change(span, twin_trace=target and target.trace, twin=target and target.uid)
            elif news is not None and span.key not in news:
                continue
            touched.add(span.trace)
            if twin is not None:
                renewed.add(twin)
                touched.add(found[twin].trace)
        self._load(touched)
        for number in renewed:
            self._enrich(found[number], [found[other] for other in shown[number]])
        return touched | self._beside(touched) if touched else touched

    def _reports(self, names: Collection[str], named: Collection[StoredSpan]) -> list[StoredSpan]:
        """The spans that report the calls of these spans, and those that may be their twins by another name; none where
        no telemetry reports calls. Spans come before log records: they know more."""
        scopes = {span.scope for span in named}
        of_telemetry = f"{_WITH_CALL} AND scope IN %(names)s AND session = ''"
        heard = {scope for (scope,) in self._server.rows_of(f"SELECT DISTINCT scope {of_telemetry}", [*scopes])}
        heard |= {span.scope for span in named if not span.session}
        rows = self._server.rows_of(f"SELECT DISTINCT trace {_WITH_CALL} AND scope IN %(names)s", [*heard])
        self._load([trace for (trace,) in rows])
        spans = [
            span
            for trace in self._spans.values()
            for span in trace.values()
            if span.scope in heard and span.call is not None
        ]
        calls = {span.call for span in spans if span.call in names or span.alias in names}
        chosen = [span for span in spans if span.call in calls]
        return sorted(chosen, key=lambda span: (span.logged, span.start, span.key))

    def _with_parents(self, written: Collection[Key]) -> set[Key]:
        """The spans, and the parents of those with waiting time, which is a fact of the call around it."""
        parents = (
            (span.trace, span.parent)
            for span in map(self._span, written)
            if span is not None and span.waiting is not None and span.parent is not None
        )
        return {*written, *parents}

    def _enrich(self, shown: StoredSpan, received: Sequence[StoredSpan]) -> None:
        """Complete the span of a turn by the received spans that report the same call."""
        facts = merge_reports(shown.call_facts(), [self._received_facts(span) for span in received])
        fields = {name: getattr(facts, name) for name in _FACTS}
        self._change(shown, type=SPAN_TYPES.index(facts.type), status=STATUSES.index(facts.status), **fields)
        parent = self._span((shown.trace, shown.parent or 0))
        if facts.waiting and parent is not None:
            inside = [span.waiting or 0 for span in self._spans[shown.trace].values() if span.parent == parent.uid]
            self._change(parent, waiting=max(parent.waiting or 0, sum(inside)))
        metadata: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        input = output = None
        tool_calls: list[Any] = []
        texts = read_spans_at(self._server, [span.key for span in received])
        for other in (texts[span.key] for span in reversed(received) if span.key in texts):
            data = _decode(other.facts) if other.facts else {}
            metadata |= data.get("metadata", {})
            attributes |= data.get("attributes", {})
            parts = _decode(other.content) if other.content else (None, None, None)
            input = input if parts[0] is None else parts[0]
            output = output if parts[1] is None else parts[1]
            tool_calls = parts[2] or tool_calls
        self._changes[shown.key] |= {
            "facts": facts_text(metadata, attributes),
            "content": content_text(input, output, tool_calls),
        }

    def _received_facts(self, span: StoredSpan) -> CallFacts:
        facts = span.call_facts()
        inside = sum(
            each.waiting or 0
            for each in self._spans[span.trace].values()
            if each.parent == span.uid and not each.session
        )
        if inside:
            facts.waiting = max(facts.waiting or 0, inside)
        return facts

    def _traces_of_calls(self, calls: Collection[str], starts: Collection[int] = ()) -> set[str]:
        """The traces with reports of these calls, of all times or near those at which they started."""
        near = f" AND start BETWEEN {min(starts) - NEAR_MS} AND {max(starts) + NEAR_MS}" if starts else ""
        rows = self._server.rows_of(
            f"SELECT DISTINCT trace FROM span FINAL WHERE session = '' AND call IN %(names)s{near}", sorted(calls), {}
        )
        return {trace for (trace,) in rows}

    def _beside(self, traces: Iterable[str]) -> set[str]:
        """The traces with other reports of those calls that these traces report and a transcript shows."""
        calls = {
            span.call: span.start
            for trace in traces
            for span in self._spans[trace].values()
            if span.call is not None and span.twin is not None and span.type == _GENERATION
        }
        return self._traces_of_calls(calls, calls.values())

    # Totals

    def _total(self, uid: str) -> StoredTrace:
        """The row of a trace, added up from its spans."""
        trace, spans = self._traces[uid], list(self._spans[uid].values())
        trace.version, trace.spans = self._version, len(spans)
        trace.deleted = not spans
        if not spans:
            return trace
        reports = [span for span in spans if span.reports_usage]
        named = any(span.call is not None for span in reports)
        if any(not span.session for span in spans) and (len(reports) > 1 or named):
            self._count_once(spans)
        counted = [span for span in reports if span.counts and span.twin is None]
        costs = [span.cost for span in counted if span.cost is not None]
        known = self._spans[uid]
        roots = [span for span in spans if span.parent is None or span.parent not in known]
        roots.sort(key=lambda span: (span.start, not span.session, span.uid))
        pending = any(root.end is None for root in roots)
        start, latest = min(span.start for span in spans), max(_end(span) for span in spans)
        latency = None if pending else latest - start
        if (turn := next((root for root in roots if root.session), None)) is not None:
            start, latency = turn.start, _turn_end(turn, spans) - turn.start
        if not trace.named:
            trace.name = roots[0].name if roots else None
        failed = any(span.status == _ERROR for span in spans)
        trace.status = _ERROR if failed else _PENDING if pending else _SUCCESS
        trace.start, trace.updated, trace.latency = start, latest, latency
        trace.cost = sum(costs) if costs else None
        trace.tokens = sum(_tokens(span) for span in counted) if counted else None
        return trace

    def _count_once(self, spans: Sequence[StoredSpan]) -> None:
        """Mark the spans of a trace whose usage counts: none above a span with usage, none that repeats a report."""
        received = [span for span in spans if not span.session]
        for span in received:
            if span.model is None and span.type == _GENERATION and not span.input is span.output is None:
                self._inherit_model(span)
        covered = above_usage([Node(span.uid, span.parent, span.reports_usage) for span in spans])
        calls = {span.call for span in received if span.reports_usage and span.call is not None}
        repeated = self._repeated(calls)
        for span in spans:
            self._change(span, counts=span.uid not in covered and span.key not in repeated)

    def _inherit_model(self, call: StoredSpan) -> None:
        """A model call whose model only a span around it names gets the name, and its price."""
        spans, above, seen = self._spans[call.trace], call.parent, set[int]()
        while above is not None and above in spans and above not in seen:
            seen.add(above)
            if (model := spans[above].model) is not None:
                hour = call.cache_write_1h or 0
                tokens = Tokens(
                    call.input or 0, call.output or 0, call.cache_read or 0, (call.cache_write or 0) - hour, hour
                )
                cost = price(model, tokens, call.start) if call.cost is None else call.cost
                self._change(call, model=model, cost=cost)
                return
            above = spans[above].parent

    def _repeated(self, calls: Collection[str]) -> set[Key]:
        """The reports that do not count. A cost that only they report goes to the others."""
        rows = self._server.rows_of(
            f"SELECT {SPAN_OUTLINE} FROM span s FINAL WHERE s.session = '' AND s.call IN %(names)s", sorted(calls), {}
        )
        stored = [StoredSpan(**dict(zip(SPAN_COLUMNS, row, strict=True))) for row in rows]
        spans = [span for span in (self._span(each.key) or each for each in stored) if span.reports_usage]
        spans.sort(key=lambda span: (span.start, span.key))
        repeated = repeated_reports(
            UsageReport(
                number,
                span.call or "",
                span.start,
                span.logged,
                span.twin is not None,
                span.cost if span.cost_reported else None,
            )
            for number, span in enumerate(spans)
        )
        for number, cost in repeated.costs:
            self._change(spans[number], cost=cost, cost_reported=True)
        return {spans[number].key for number in repeated.numbers}


def _report(number: int, span: StoredSpan, numbers: Mapping[Key, int]) -> CallReport:
    return CallReport(
        number=number,
        call=span.call or "",
        alias=span.alias,
        scope=span.scope or 0,
        projected=bool(span.session),
        of_model=span.type == _GENERATION,
        logged=span.logged,
        start=span.start,
        twin=numbers.get((span.twin_trace or "", span.twin or 0)),
    )


def _end(span: StoredSpan) -> int:
    return span.start if span.end is None else span.end


def _tokens(span: StoredSpan) -> int:
    return (span.input or 0) + (span.output or 0) + (span.total or 0)


def _turn_end(turn: StoredSpan, spans: Iterable[StoredSpan]) -> int:
    """The time of the last thing that the agent did in a turn, so far if it goes on. Markers and calls without events
    may be later."""
    if turn.end is not None:
        return turn.end
    return max(
        _end(span)
        for span in spans
        if span.session and (span.type == _SPAN or (span.type == _GENERATION and span.first is not None))
    )
