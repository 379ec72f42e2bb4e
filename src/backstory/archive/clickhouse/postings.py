"""Postings as SQL: how events become postings, and how the words of a query are looked for in them.

A word is a hash of 64 bits in the table of postings, and one of 32 bits in the words of a document in their order; a
pair of common words is a small number. An event is named by the version of its batch and a number within it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import NamedTuple

from ...model import EventType
from .common import pairs
from .server import array, literal

_K1, _B = 1.2, 0.75
GAIN = _K1 + 1
"""The highest score of a word, for each unit of its weight."""
# Tantivy keeps the length of a text in one byte, its size: exact up to 40, then with four significant bits. Here it is
# the same, so that the scores are.
_EXACT = 40
_KEPT_LENGTH = "if({0} < 40, {0}, 24 + bitShiftLeft(bitShiftRight({0} - 24, {1}), {1}))"
_SHIFT = "toUInt8(log2(greatest({0}, 40) - 24)) - 3"
_SIZE = "if({0} < 40, {0}, 24 + 8 * ({1}) + bitShiftRight({0} - 24, {1}))"
_LENGTH_OF_SIZE = (
    "if(size < 40, toUInt32(size), 24 + bitShiftLeft(toUInt32(8 + bitAnd(size, 7)), bitShiftRight(size, 3) - 4))"
)


def _kept_length_of(length: str) -> str:
    return _KEPT_LENGTH.format(length, _SHIFT.format(length))


def size_of(length: str) -> str:
    return f"toUInt8({_SIZE.format(length, _SHIFT.format(length))})"


def postings(source: str, number: str = "UInt32") -> str:
    """The postings of rows with `version`, `number`, `words` and `stems`, the lengths, and the hashes `terms` of words
    in their order, 0 for a gap, and `stem_terms` of stems, each once. An event is a number of the type `number` with
    its size: that of a batch has less than 16 million events."""
    return _grouped(
        "arrayConcat(terms, pairs, stem_terms)",
        "arrayConcat(arrayWithConstant(length(terms) + length(pairs), {}), arrayWithConstant(length(stem_terms), {}))",
        source,
        number,
    )


def pair_postings(source: str) -> str:
    """Those of pairs alone."""
    return _grouped("pairs", "arrayWithConstant(length(pairs), {})", source, "UInt64")


def _grouped(terms: str, events: str, source: str, number: str) -> str:
    """An event with its size is one number, which comes as often as the event has the word. The last of the equal ones
    tells how often."""
    sizes = (size_of(length) for length in ("words", "stems"))
    of_words, of_stems = (f"bitOr(bitShiftLeft(to{number}(number), 8), {size})" for size in sizes)
    return (
        "SELECT term, version, arrayMap(each -> toUInt32(bitShiftRight(each, 8)), once) AS numbers, "
        "arrayMap((end, start) -> toUInt8(least(end - start, 255)), ends, arrayPushFront(arrayPopBack(ends), 0)) "
        "AS frequencies, arrayMap(each -> toUInt8(each), once) AS sizes "
        "FROM (SELECT term, version, arraySort(groupArray(event)) AS every, "
        "arrayPushBack(arrayPopFront(every), 0) AS following, "
        "arrayFilter((each, next) -> each <> next, every, following) AS once, "
        "arrayFilter((place, each, next) -> each <> next, arrayEnumerate(every), every, following) AS ends "
        f"FROM (SELECT version, {pairs('terms')} AS pairs, {terms} AS every_term, "
        f"{events.format(of_words, of_stems)} AS every_event FROM {source}) "
        "ARRAY JOIN every_term AS term, every_event AS event WHERE term <> 0 GROUP BY term, version)"
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


HAVING_BITS = 64
"""The number of words that a score tells about."""
# A letter is a byte, 0 is any other word, and a text of them is ASCII.
_LETTERS = 127


def documents_with(terms: Iterable[int]) -> str:
    """A query for the names of the events that have any of the terms."""
    return f"SELECT version, arrayJoin(numbers) FROM posting WHERE term IN {array(terms, 'UInt64')}"


def _document_terms(terms: Iterable[int]) -> str:
    """Terms as documents have them."""
    return array((term & 0xFFFFFFFF for term in terms), "UInt32")


class Weight(NamedTuple):
    """Of a word in a score."""

    weight: float
    """0 for a word that is only looked for."""
    average: float
    """The average length of the texts."""


def scored_documents(
    words: Mapping[int, Weight],
    required: Mapping[tuple[int, ...], float],
    within: Sequence[str] = (),
    batches: str | None = None,
) -> str:
    """A query for the events that have any of the terms, and all of the phrases that are required: `version`, `number`,
    `score` by BM25, those that they have as the bits of `having`, in their order, and `reach`, the highest score that
    they can have with the phrases, by their weights: a text has a phrase no more often than its rarest word.
    `within` are conditions on the names of events, `batches` a query for the versions that are looked at.
    """
    bits = {word: 1 << place if place < HAVING_BITS else 0 for place, word in enumerate(words)}
    given = {
        "weight": array((each.weight * GAIN for each in words.values()), "Float64"),
        "slope": array((_slope(each.average) for each in words.values()), "Float64"),
        "bit": array(bits.values(), "UInt64"),
    }
    part = f"frequency / (frequency + {_K1 * (1 - _B)!r} + slope * {_LENGTH_OF_SIZE})"
    needed, reach = 0, "score"
    for phrase, weight in required.items():
        of_phrase = reduce(or_, map(bits.__getitem__, phrase))
        needed |= of_phrase
        if weight:
            reach += f" + {weight * GAIN!r} * minIf({part}, bitAnd(bit, {of_phrase}) <> 0)"
    terms, of_words = array(words, "UInt64"), ", ".join(f"{values}[place] AS {name}" for name, values in given.items())
    of_batches = f" AND version GLOBAL IN ({batches})" if batches else ""
    tests = f" WHERE {' AND '.join(within)}" if within else ""
    having = f" HAVING bitAnd(having, {needed}) = {needed}" if needed else ""
    return (
        f"SELECT version, number, sum(weight * {part}) AS score, groupBitOr(bit) AS having, {reach} AS reach "
        f"FROM (SELECT version, numbers, frequencies, sizes, indexOf({terms}, term) AS place, {of_words} "
        f"FROM posting WHERE term IN {terms}{of_batches}) "
        "ARRAY JOIN numbers AS number, frequencies AS frequency, sizes AS size"
        f"{tests} GROUP BY version, number{having}"
    )


def phrase_test(phrase: Iterable[int]) -> str:
    """The condition that a document has a phrase."""
    return f"hasSubstr(terms, {_document_terms(phrase)})"


class Letters:
    """Texts of documents with a letter for each word of some phrases, and another one for all other words. They are
    short, and Python counts phrases in them faster than any SQL does."""

    def __init__(self, phrases: Iterable[Sequence[str]], terms: Mapping[str, int]) -> None:
        self._letters: dict[str, str] = {}
        for phrase in phrases:
            new = [word for word in dict.fromkeys(phrase) if word not in self._letters]
            if len(self._letters) + len(new) <= _LETTERS:
                self._letters |= {word: chr(len(self._letters) + place) for place, word in enumerate(new, 1)}
        letters = _document_terms(terms[word] for word in self._letters)
        self.text = f"arrayStringConcat(arrayMap(term -> char(indexOf({letters}, term)), terms))"
        """The text of a document as SQL."""

    def score(self, text: str, words: int, phrases: Mapping[tuple[str, ...], float], average: float) -> float:
        """The sum of the scores of words and phrases in a text of so many words, with their weights."""
        norm = _K1 * (1 - _B) + _slope(average) * _kept_length(words)
        total = 0.0
        for spelled, weight in self._spelled(phrases):
            frequency = text.count(spelled)
            total += weight * GAIN * frequency / (frequency + norm)
        return total

    def has_any(self, text: str, phrases: Iterable[tuple[str, ...]]) -> bool:
        return any(spelled in text for phrase in phrases if (spelled := self._spell(phrase)))

    def score_of_text(self, phrases: Mapping[tuple[str, ...], float], average: float) -> str:
        """The same as SQL."""
        norm = f"({_K1 * (1 - _B)!r} + {_slope(average)!r} * {_kept_length_of('words')})"
        parts = ["0."]
        for spelled, weight in self._spelled(phrases):
            frequency = f"countSubstrings({self.text}, {literal(spelled)})"
            parts.append(f"{weight * GAIN!r} * {frequency} / ({frequency} + {norm})")
        return " + ".join(parts)

    def _spelled(self, phrases: Mapping[tuple[str, ...], float]) -> Iterator[tuple[str, float]]:
        for phrase, weight in phrases.items():
            if spelled := self._spell(phrase):
                yield spelled, weight

    def _spell(self, phrase: Sequence[str]) -> str:
        """Empty if a word of the phrase has no letter."""
        letters = [self._letters.get(word, "") for word in phrase]
        return "".join(letters) if all(letters) else ""


def _slope(average: float) -> float:
    return _K1 * _B / max(average, 1.0)


def _kept_length(length: int) -> int:
    """A length as tantivy keeps it."""
    if length < _EXACT:
        return length
    shift = (length - 24).bit_length() - 4
    return 24 + ((length - 24) >> shift << shift)
