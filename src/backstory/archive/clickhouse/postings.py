"""Postings as SQL: how tokens become postings, and how the words of a query are named in them.

A word is a hash of 64 bits in the table of postings, and one of 32 bits in the words of an event in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .documents import STEM


def postings(tokens: str) -> str:
    """The postings of rows with `version`, `number`, `words`, `stems` and a token, which is `''` for a gap. An event
    with its length is one number, which comes as often as the event has the token."""
    return (
        "SELECT term, version, arrayMap(each -> toUInt32(bitShiftRight(each, 16)), once) AS numbers, "
        "arrayMap(times -> toUInt8(least(times, 255)), "
        "arrayPopFront(arrayDifference(arrayPushBack(starts, length(every) + 1)))) AS frequencies, "
        "arrayMap(each -> toUInt16(each), once) AS lengths "
        "FROM (SELECT term, version, arraySort(groupArray(event)) AS every, arrayCompact(every) AS once, "
        "arrayFilter((place, step) -> step <> 0, arrayEnumerate(every), "
        "arrayPushFront(arrayPopFront(arrayDifference(every)), 1)) AS starts "
        "FROM (SELECT cityHash64(token) AS term, version, bitShiftLeft(toUInt64(number), 16) + "
        f"least(if(startsWith(token, '{STEM}'), stems, words), 65535) AS event FROM ({tokens}) WHERE token <> '') "
        "GROUP BY term, version)"
    )


_LINES = "SELECT version, number, words, stems, arrayJoin(splitByChar('\n', lines)) AS token FROM {}"
DOCUMENTS = "SELECT version, number, session, turn, ordinal, uid, type, project, ts FROM {}"
# What is inserted into `arrival` goes through these into the tables.
VIEWS = {"posting": postings(_LINES), "document": DOCUMENTS}


def create_view(view: str, source: str, target: str, query: str, on_cluster: str = "") -> str:
    return f"CREATE MATERIALIZED VIEW IF NOT EXISTS {view}{on_cluster} TO {target} AS {query.format(source)}"


def posting_terms(name: str, tokens: Iterable[str], values: dict[str, Any]) -> str:
    """The terms of postings as a list; adds the tokens to `values`."""
    names = [f"{name}{number}" for number, _ in enumerate(tokens)]
    values |= zip(names, tokens, strict=True)
    return ", ".join(f"cityHash64(%({each})s)" for each in names)


def event_terms(name: str, phrase: Iterable[str], values: dict[str, Any]) -> list[str]:
    """The terms of events; adds the tokens to `values`."""
    given = {f"{name}_{place}": token for place, token in enumerate(phrase)}
    values |= given
    return [f"toUInt32(cityHash64(%({each})s))" for each in given]


def phrase_frequency(name: str, phrase: Sequence[str], values: dict[str, Any]) -> str:
    """The number of times that an event has a phrase of several words."""
    terms = event_terms(name, phrase, values)
    letters = [f"{name}_{place}" for place in range(len(terms))]
    shifted = ", ".join(f"arrayShiftLeft(terms, {place})" if place else "terms" for place in range(len(terms)))
    equal = " AND ".join(f"{each} = {term}" for each, term in zip(letters, terms, strict=True))
    rare = " AND ".join(f"countEqual(terms, {term}) > 0" for term in terms)
    return f"if({rare}, arrayCount(({', '.join(letters)}) -> {equal}, {shifted}), 0)"
