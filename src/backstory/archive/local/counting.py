"""Numbers of documents: those that have a word, by which its rarity, its stems and similar words are known; and all
matches of a question, by everything that can be filtered: columns of the index, added up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from ...model import EVENT_TYPES, EventType
from ..base import Totals
from ..forms import other_forms
from ..phrases import best_corrections, edits, is_corrected
from ..query import STEMMERS, analyzer
from ..ranking import STEM_LANGUAGES, rarity
from .documents import turn_number
from .index import stem_field

if TYPE_CHECKING:
    import tantivy

    from .retrieval import Question

# Words whose numbers of documents are kept in memory, with their stems: some megabytes.
_REMEMBERED = 20_000
_ENGLISH = stem_field("en")


class Vocabulary:
    """The words of one snapshot. Questions share it, because words come again: in one question for score, rarity and
    corrections, and in the next one while somebody types."""

    def __init__(self, schema: tantivy.Schema, snapshot: tantivy.Searcher, *, has_stems: bool) -> None:
        self._schema = schema
        self.snapshot = snapshot
        self._has_stems = has_stems
        self._counted: dict[tuple[str, str], int] = {}
        self._stemmed: dict[str, list[tuple[str, str]]] = {}

    def documents(self, field: str, token: str) -> int:
        """The number of documents that have a word."""
        count = self._counted.get((field, token))
        if count is None:
            if len(self._counted) >= _REMEMBERED:
                self._counted.clear()
                self._stemmed.clear()
            count = self._counted[field, token] = self.snapshot.doc_freq(field, token)
        return count

    def rarity(self, field: str, token: str) -> float:
        return self.rarity_of(self.documents(field, token))

    def rarity_of(self, having: int) -> float:
        """The rarity of a word that so many documents have."""
        return rarity(self.snapshot.num_docs, having)

    def stems(self, token: str) -> list[tuple[str, str]]:
        """(field, stem) of a word in the languages that have the stem, and of its other forms."""
        if not self._has_stems or token.isdigit():
            return []
        stems = self._stemmed.get(token)
        if stems is None:
            known = [(count, *one) for one in _stems_of(token) if (count := self.documents(*one))]
            known.sort(key=itemgetter(0), reverse=True)
            stems = [(field, stem) for _, field, stem in known[:STEM_LANGUAGES]]
            stems += [(_ENGLISH, form) for form in other_forms(token) if self.documents(_ENGLISH, form)]
            self._stemmed[token] = stems
        return stems

    def corrections(self, word: str) -> tuple[str, ...]:
        """The commonest words of the index that are one edit away from a word it does not have."""
        import tantivy

        if not is_corrected(word) or self.stems(word):
            return ()
        similar = tantivy.Query.fuzzy_term_query(self._schema, "text", word, distance=1, transposition_cost_one=True)
        if not self.snapshot.search(similar, 1, count=False).hits:  # mostly, and then there are hundreds of edits
            return ()
        return best_corrections({near: self.snapshot.doc_freq("text", near) for near in edits(word)})


@lru_cache(maxsize=4_096)  # people ask for the same things again
def _stems_of(token: str) -> tuple[tuple[str, str], ...]:
    """(field, stem) of a word in every language."""
    return tuple((field, stem) for field, stemmer in stemmers().items() for stem in stemmer.analyze(token))


@cache
def stemmers() -> dict[str, tantivy.TextAnalyzer]:
    """By the field of their stems."""
    return {stem_field(language): analyzer(language) for language in STEMMERS}


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
