"""Calls that are reported several times: by a transcript, by spans and by log records of telemetry.

A call is shown and counted once. These rules are the same for every engine; an engine applies them whenever it writes a
span that reports a call, in the same transaction, so the order in which reports come does not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Struct

from ..model import digest
from .spans import SpanType, Status

# Reports of a model call start at about the same time. Some agents name calls by their token counts, which may repeat.
NEAR_MS = 3_600_000
_NEVER = -(1 << 62)


class CallReport(Struct, frozen=True):
    """A span that reports a call. `number` is the engine's own number of the span, at least during one change."""

    number: int
    call: str
    alias: str | None
    scope: int
    projected: bool
    """Made from a turn; others were received."""
    of_model: bool
    logged: bool
    start: int
    twin: int | None

    @property
    def name_by_tokens(self) -> str:
        return self.alias or self.call


class CallFacts(Struct, kw_only=True):
    """The columns of a span that several reports of its call may fill in. Model and stop reason are the engine's own
    keys of these names."""

    type: SpanType
    status: Status
    start: int
    end: int | None = None
    model: int | str | None = None
    stop_reason: int | str | None = None
    exit_code: int | None = None
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None
    reasoning: int | None = None
    cost: float | None = None
    cost_reported: bool = False
    waiting: int | None = None
    """For a received span, with the waiting of the spans inside it."""


_COUNTS = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
_NAMES = ("model", "stop_reason", "exit_code")


class UsageReport(Struct, frozen=True):
    """A received span that reports the usage of a call."""

    number: int
    call: str
    start: int
    logged: bool
    has_twin: bool
    cost: float | None
    """The cost that was reported, not one that was computed."""


class Repeated(NamedTuple):
    """Reports that do not count, and costs that only they have, with the reports that get them."""

    numbers: set[int]
    costs: list[tuple[int, float]]


class Node(NamedTuple):
    """A span in the tree of its trace."""

    id: int
    parent: int | None
    reports_usage: bool


def call_scope(session: str | None) -> int | None:
    """The number that the reports of a session's calls have in common, by the agent's own id of the session. Subagents
    of Claude Code (`<session>/agent-...`) report under the id of the session that started them."""
    if session is None:
        return None
    return int.from_bytes(digest("scope", session.partition("/")[0])[:8], "big", signed=True)


def pair_reports(reports: Sequence[CallReport], names: Collection[str]) -> dict[int, int]:
    """Received spans with the projected ones that show them: by the ids of their calls, then by their tokens."""
    by_call: dict[tuple[str, int, bool], list[CallReport]] = defaultdict(list)
    for report in reports:
        by_call[report.call, report.scope, report.of_model].append(report)
    pairs: dict[int, int] = {}
    for group in by_call.values():
        pairs |= _nearest_pairs(group)
    paired = {*pairs, *pairs.values()}
    by_tokens: dict[tuple[str, int], list[CallReport]] = defaultdict(list)
    for report in reports:
        if report.of_model and report.number not in paired and report.name_by_tokens in names:
            by_tokens[report.name_by_tokens, report.scope].append(report)
    for group in by_tokens.values():
        pairs |= _nearest_pairs(group)
    return pairs


def _nearest_pairs(reports: Sequence[CallReport]) -> dict[int, int]:
    """The nearest in time: each projected span with one span and one log record, as far as there are enough of them."""
    distances = sorted(
        (abs(shown.start - report.start), report.number, shown.number, report.logged)
        for shown in reports
        if shown.projected
        for report in reports
        if not report.projected
    )
    near = [entry for entry in distances if entry[0] <= NEAR_MS or not reports[0].of_model]
    pairs: dict[int, int] = {}
    taken: set[tuple[int, bool]] = set()
    for _, received, shown, logged in near:
        if received not in pairs and (shown, logged) not in taken:
            pairs[received] = shown
            taken.add((shown, logged))
    for _, received, shown, _ in near:
        pairs.setdefault(received, shown)
    return pairs


def merge_reports(shown: CallFacts, received: Iterable[CallFacts]) -> CallFacts:
    """The facts of a projected span, completed by those of the received spans, the best source first."""
    own = msgspec.structs.replace(shown)
    is_timed = False
    for other in received:
        if other.end is not None:
            if own.type == "GENERATION" and other.end > other.start and not is_timed:
                # A transcript has only the time at which the record of an answer was written.
                own.start, own.end, is_timed = other.start, other.end, True
            if own.status == "pending":
                own.status, own.end = other.status, max(own.start, other.end)
        if other.status == "error":
            own.status = "error"
        for name in _COUNTS:
            if (count := getattr(other, name)) is not None:
                setattr(own, name, max(getattr(own, name) or 0, count))
        for name in _NAMES:
            if getattr(own, name) is None:
                setattr(own, name, getattr(other, name))
        if other.cost_reported or own.cost is None:
            own.cost, own.cost_reported = other.cost, other.cost_reported
        own.waiting = max((ms for ms in (own.waiting, other.waiting) if ms), default=None)
    return own


def repeated_reports(reports: Iterable[UsageReport]) -> Repeated:
    """The reports of calls that other reports count already. Reports come in the order of time.

    Of a call that both spans and log records report, the spans count, unless there are more log records of it.
    """
    repeated = Repeated(set(), [])
    for spans, records in _group_calls(reports):
        counted, others = (spans, records) if len(spans) >= len(records) else (records, spans)
        repeated.numbers.update(report.number for report in others)
        # A transcript may show a call by its log record alone: spans of Codex do not name their session.
        shown = sum(report.has_twin for report in others)
        unshown = [report for report in counted if not report.has_twin]
        elsewhere = shown - (len(counted) - len(unshown))
        repeated.numbers.update(report.number for report in unshown[: max(elsewhere, 0)])
        for report, other in zip(counted, others, strict=False):
            if report.cost is None and other.cost is not None:
                repeated.costs.append((report.number, other.cost))
    return repeated


def _group_calls(reports: Iterable[UsageReport]) -> list[tuple[list[UsageReport], list[UsageReport]]]:
    """The spans and the log records of each call. A name that comes again hours later is another call."""
    groups: list[tuple[list[UsageReport], list[UsageReport]]] = []
    latest: dict[str, tuple[int, int]] = {}
    for report in reports:
        before, group = latest.get(report.call, (_NEVER, 0))
        if report.start - before > NEAR_MS:
            group = len(groups)
            groups.append(([], []))
        latest[report.call] = report.start, group
        groups[group][report.logged].append(report)
    return groups


def above_usage(nodes: Sequence[Node]) -> set[int]:
    """The spans above one with usage: their own usage does not count."""
    parents = {node.id: node.parent for node in nodes}
    covered: set[int] = set()
    for node in nodes:
        above = node.parent if node.reports_usage else None
        while above is not None and above in parents and above not in covered:
            covered.add(above)
            above = parents[above]
    return covered
