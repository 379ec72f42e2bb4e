"""Postings as SQL: how events become postings, and how the words of a query are looked for in them.

A word is a hash of 64 bits in the table of postings, and one of 32 bits in the words of a document in their order. An
event is named by the version of its batch and a number within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...model import EventType

_K1, _B = 1.2, 0.75
GAIN = _K1 + 1
"""The highest score of a word, for each unit of its weight."""
# Tantivy keeps the length of a text in one byte: exact up to 40, then with four significant bits. Here it is the same,
# so that the scores are.
_KEPT_LENGTH = "if({0} < 40, {0}, 24 + bitShiftLeft(bitShiftRight({0} - 24, {1}), {1}))"
_SHIFT = "toUInt8(log2(greatest({0}, 40) - 24)) - 3"


def _kept_length(length: str) -> str:
    return _KEPT_LENGTH.format(length, _SHIFT.format(length))


def postings(source: str) -> str:
    """The postings of rows with `version`, `number`, `words` and `stems`, the lengths, and the hashes `terms` of words,
    0 for a gap, and `stem_terms` of stems. An event with its length is one number, which comes as often as the event
    has the word."""
    event = "bitOr(bitShiftLeft(toUInt64(number), 16), toUInt64(least({}, 65535)))"
    of_words, of_stems = (event.format(_kept_length(count)) for count in ("words", "stems"))
    return (
        "SELECT term, version, arrayMap(each -> toUInt32(bitShiftRight(each, 16)), once) AS numbers, "
        "arrayMap(times -> toUInt8(least(times, 255)), "
        "arrayPopFront(arrayDifference(arrayPushBack(starts, length(every) + 1)))) AS frequencies, "
        "arrayMap(each -> toUInt16(each), once) AS lengths "
        "FROM (SELECT term, version, arraySort(groupArray(event)) AS every, arrayCompact(every) AS once, "
        "arrayFilter((place, step) -> step <> 0, arrayEnumerate(every), "
        "arrayPushFront(arrayPopFront(arrayDifference(every)), 1)) AS starts "
        "FROM (SELECT version, arrayConcat(terms, stem_terms) AS every_term, arrayConcat("
        f"arrayWithConstant(length(terms), {of_words}), arrayWithConstant(length(stem_terms), {of_stems})) "
        f"AS every_event FROM {source}) ARRAY JOIN every_term AS term, every_event AS event WHERE term <> 0 "
        "GROUP BY term, version)"
    )


DOCUMENTS = (
    "SELECT version, number, session, turn, ordinal, uid, type, project, ts, words, stems, "
    f"arrayMap(term -> toUInt32(term), terms) AS terms FROM {{}} WHERE type <> {EventType.UNKNOWN.code}"
)
# What is inserted into `arrival` goes through these into the tables.
VIEWS = {
    "place": "SELECT uid, version, session, turn, ordinal, ts FROM {}",
    "document": DOCUMENTS,
    "posting": postings("{}"),
    "event": (
        "SELECT session, turn, ordinal, version, uid, type, ts, source, project, tool, model, originating_model, "
        "usage_key, facts, body, number FROM {}"
    ),
}


def create_view(view: str, source: str, target: str, query: str, on_cluster: str = "") -> str:
    return f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view}{on_cluster} TO {target} AS {query.format(source)}"


DOCUMENTS_WITH = "SELECT version, arrayJoin(numbers) FROM posting WHERE term IN ({})"
# The numbers of events by the places of tokens in a list.
COUNTS = (
    "SELECT groupArray((indexOf(hashes, term), documents)) FROM (SELECT term, sum(length(numbers)) AS documents "
    "FROM posting WHERE term IN (SELECT arrayJoin(hashes)) GROUP BY term)"
)
HASHES = "arrayMap(token -> cityHash64(token), CAST(%(tokens)s AS Array(String))) AS hashes"


def posting_terms(name: str, tokens: Iterable[str], values: dict[str, Any]) -> str:
    """The terms of postings as a list; adds the tokens to `values`."""
    names = [f"{name}{number}" for number, _ in enumerate(tokens)]
    values |= zip(names, tokens, strict=True)
    return ", ".join(f"cityHash64(%({each})s)" for each in names)


class Weight(NamedTuple):
    """Of a word in a score."""

    weight: float
    """0 for a word that is only looked for."""
    promise: float
    """The same, with what it may add as a part of a quoted phrase."""
    average: float
    """The average length of the texts."""


def scored_documents(
    words: Mapping[str, Weight], required: Iterable[str], values: dict[str, Any], within: str = "true"
) -> str:
    """A query for the events that have any of the words, and all that are required: `version`, `number`, `score` by
    BM25, and `expected` with the promises. `within` is a condition on postings."""
    hashes = posting_terms("t", words, values)
    weights = [each.weight * GAIN for each in words.values()]
    promises = [each.promise * GAIN for each in words.values()]
    slopes = [_K1 * _B / max(each.average, 1.0) for each in words.values()]
    part = f"frequency / (frequency + {_K1 * (1 - _B)!r} + slope * length)"
    expected, having = "score", ""
    if needed := set(required):
        expected = f"sum(promise * {part})"
        having = f" HAVING uniqExactIf(place, {[int(word in needed) for word in words]}[place] = 1) = {len(needed)}"
    return (
        f"SELECT version, number, sum(weight * {part}) AS score, {expected} AS expected "
        f"FROM (SELECT version, numbers, frequencies, lengths, indexOf([{hashes}], term) AS place, "
        f"{weights}[place] AS weight, {promises}[place] AS promise, {slopes}[place] AS slope "
        f"FROM posting WHERE term IN ({hashes}) AND {within}) "
        f"ARRAY JOIN numbers AS number, frequencies AS frequency, lengths AS length GROUP BY version, number{having}"
    )


def phrase_test(name: str, phrase: Iterable[str], values: dict[str, Any]) -> str:
    """The condition that a document has a phrase."""
    return f"hasSubstr(terms, [{', '.join(_document_terms(name, phrase, values))}])"


def phrase_scores(name: str, phrases: Mapping[tuple[str, ...], float], average: float, values: dict[str, Any]) -> str:
    """The sum of the scores of words and phrases in a document, with their weights; `name` is that of parameters."""
    norm = f"({_K1 * (1 - _B)!r} + {_K1 * _B / max(average, 1.0)!r} * {_kept_length('words')})"
    parts = ["0."]
    for number, (phrase, weight) in enumerate(phrases.items()):
        frequency = _frequency(f"{name}{number}", phrase, values)
        parts.append(f"{weight * GAIN!r} * {frequency} / ({frequency} + {norm})")
    return " + ".join(parts)


def _frequency(name: str, phrase: Sequence[str], values: dict[str, Any]) -> str:
    """The number of times that a document has a phrase."""
    terms = _document_terms(name, phrase, values)
    if len(terms) == 1:
        return f"countEqual(terms, {terms[0]})"
    letters = [f"{name}_{place}" for place in range(len(terms))]
    shifted = ", ".join(f"arrayShiftLeft(terms, {place})" if place else "terms" for place in range(len(terms)))
    equal = " AND ".join(f"{each} = {term}" for each, term in zip(letters, terms, strict=True))
    rare = " AND ".join(f"has(terms, {term})" for term in terms)
    return f"if({rare}, arrayCount(({', '.join(letters)}) -> {equal}, {shifted}), 0)"


def _document_terms(name: str, phrase: Iterable[str], values: dict[str, Any]) -> list[str]:
    given = {f"{name}_{place}": token for place, token in enumerate(phrase)}
    values |= given
    return [f"toUInt32(cityHash64(%({each})s))" for each in given]
