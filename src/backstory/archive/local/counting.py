"""Counting all matches of a question, by everything that can be filtered: columns of the index, added up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from ...model import EVENT_TYPES, EventType
from ..base import Totals
from .documents import turn_number
from .retrieval import Question

Names = Mapping[int, str]
"""The names of numbers in the index."""

# Tantivy refuses to count by more values.
_MOST_SESSIONS = 60_000
_MODELS = 1_000


class Numbered(NamedTuple):
    """Names by their numbers in the index: all sources and projects, the sessions of the hits."""

    sources: Names
    projects: Names
    sessions: Names
    highest_session: int


def count_matches(
    question: Question,
    types: Collection[EventType],
    times: Sequence[int],
    names: Numbered,
    branches_of: Callable[[Mapping[int, int]], dict[str, int]],
) -> Totals | None:
    """All matches. None if the question is not countable. `branches_of` adds up counts by session to those of
    branches."""
    if not question.is_countable:
        return None
    kinds = _by_value(question.aggregate({"type": _values("type", len(EVENT_TYPES))}, typed=False), "type")
    of_types = {EVENT_TYPES[code]: count for code, count in kinds.items()}
    events = sum(of_types.get(kind, 0) for kind in types)
    if min(events, names.highest_session) > _MOST_SESSIONS:
        return None
    asked = {
        "source": _values("source", len(names.sources)),
        "project": _values("project", len(names.projects)),
        "model": _values("model", _MODELS),
        "failed": {"value_count": {"field": "failed"}},
        # The numbers of turns begin with that of their session.
        "session": {"histogram": {"field": "turn", "interval": _TURNS, "min_doc_count": 1}},
    }
    if times:
        asked["since"] = _ranges(sorted(times))
    answer = question.aggregate(asked, typed=True)
    later = dict(zip(sorted(times), _from_each_on(answer, len(times)), strict=True))
    by_session = {number // _TURNS: count for number, count in _by_value(answer, "session").items()}
    return Totals(
        events=events,
        types=of_types,
        sources=_named(_by_value(answer, "source"), names.sources),
        projects=_named(_by_value(answer, "project"), names.projects),
        models={bucket["key"]: bucket["doc_count"] for bucket in answer["model"]["buckets"]} if answer else {},
        branches=branches_of(by_session),
        failed=int(answer["failed"]["value"]) if answer else 0,
        sessions=_named(by_session, names.sessions),
        since=[later[time] for time in times],
    )


_TURNS = turn_number(1, 0)


def _values(field: str, most: int) -> dict[str, Any]:
    """All values of a field; a segment, too, has all of them, so that the counts are exact."""
    return {"terms": {"field": field, "size": most + 1, "segment_size": most + 1}}


def _ranges(times: Sequence[int]) -> dict[str, Any]:
    """From each time to the next one: ranges of tantivy do not overlap."""
    ends = [*({"to": time} for time in times[1:]), {}]
    return {
        "range": {"field": "ts", "ranges": [{"from": start, **end} for start, end in zip(times, ends, strict=True)]}
    }


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
