"""Counting all matches of a question, by type, source, project, session and time: columns of the index, added up."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ...model import EVENT_TYPES, EventType
from ..base import Totals
from .documents import turn_number
from .retrieval import Question

Names = Mapping[int, str]
"""The names of numbers in the index."""


def count_matches(
    question: Question,
    types: Collection[EventType],
    times: Sequence[int],
    sources: Names,
    projects: Names,
    sessions: Names,
) -> Totals | None:
    """All matches, in `sessions` also by session. None if the question is not countable."""
    if not question.is_countable:
        return None
    kinds = _by_value(question.aggregate({"type": _values("type", len(EVENT_TYPES))}, typed=False), "type")
    asked = {"source": _values("source", len(sources)), "project": _values("project", len(projects))}
    if times:
        asked["since"] = _ranges(sorted(times))
    answer = question.aggregate(asked, typed=True)
    later = dict(zip(sorted(times), _from_each_on(answer, len(times)), strict=True))
    of_types = {EVENT_TYPES[code]: count for code, count in kinds.items()}
    return Totals(
        events=sum(of_types.get(kind, 0) for kind in types),
        types=of_types,
        sources=_named(_by_value(answer, "source"), sources),
        projects=_named(_by_value(answer, "project"), projects),
        sessions=_named(_by_session(question, sessions), sessions),
        since=[later[time] for time in times],
    )


def _values(field: str, most: int) -> dict[str, Any]:
    """All values of a field; a segment, too, has all of them, so that the counts are exact."""
    return {"terms": {"field": field, "size": most + 1, "segment_size": most + 1}}


def _ranges(times: Sequence[int]) -> dict[str, Any]:
    """From each time to the next one: ranges of tantivy do not overlap."""
    ends = [*({"to": time} for time in times[1:]), {}]
    return {
        "range": {"field": "ts", "ranges": [{"from": start, **end} for start, end in zip(times, ends, strict=True)]}
    }


def _by_session(question: Question, sessions: Collection[int]) -> dict[int, int]:
    """A histogram of the numbers of turns, which begin with that of their session."""
    width = turn_number(1, 0)
    asked = {"turn": {"histogram": {"field": "turn", "interval": width, "min_doc_count": 1}}}
    answer = question.aggregate(asked, typed=True, sessions=sessions) if sessions else None
    return {number // width: count for number, count in _by_value(answer, "turn").items()}


def _by_value(answer: Mapping[str, Any] | None, name: str) -> dict[int, int]:
    return {int(bucket["key"]): bucket["doc_count"] for bucket in answer[name]["buckets"]} if answer else {}


def _from_each_on(answer: Mapping[str, Any] | None, times: int) -> list[int]:
    if not answer or not times:
        return [0] * times
    # What lies before the first time is a range of its own.
    counts = [bucket["doc_count"] for bucket in answer["since"]["buckets"] if "from" in bucket]
    return [*accumulate(reversed(counts))][::-1]


def _named(counts: Mapping[int, int], names: Names) -> dict[str, int]:
    return {names[number]: count for number, count in counts.items() if number in names}
