"""Full-text search of capsules: names, titles, tags and text, in any script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from msgspec import Struct

from ...archive.query import index_text
from ...archive.stopwords import stop_words
from ...egress import Mode, egress
from .capsule import Capsule
from .rows import TEXT, WHOLE, Filters, Reader, decode

_TERM = re.compile(r'"([^"]*)"|(\S+)')
# The index keeps letters and digits only. In names like these the other characters matter.
_SYMBOLIC = re.compile(r"\w+(\+\+|#)")
_MAX_TERMS = 32
# A word that is in nearly every capsule says little: of more hits only the newest are ranked and counted.
_RANKED = 2000
# The weights of a word in the name, the title, the tags and the text: one in a tag outweighs repetition in the text.
_WEIGHTS = "50.0, 30.0, 20.0, 1.0"
_LEAST_SCORE = 1e-9
_SNIPPET_CHARS = 240
_BEFORE_MATCH = 80
_MAX_PLACES = 20


class Hit(Struct, frozen=True):
    """`coverage` is the share of the query's terms that the capsule has. `score` orders by that, then by BM25;
    0 < score <= 1."""

    capsule: Capsule
    snippet: str
    coverage: float
    score: float


class Hits(Struct, frozen=True):
    """A page of hits, best BM25 first, and their total, counted no further than they are ranked."""

    hits: list[Hit]
    total: int


class _Ranked(NamedTuple):
    """The key of the order: BM25, which is negative and lower when better, then the newest."""

    bm25: float
    age: int
    row: int


def search(reader: Reader, query: str, filters: Filters, limit: int, offset: int = 0, *, mode: Mode) -> Hits:
    """All words as typed; without a hit the words as beginnings of words; then any of them.

    Snippets are cut from the redacted text: in a part of a secret no rule would recognise it.
    """
    terms = _terms(query)
    for match, literals in _attempts(terms):
        where, values = _conditions(match, filters, literals)
        found = reader.connection.execute(
            f"""SELECT bm25(words, {_WEIGHTS}) AS bm25, -updated_us AS age, capsules.row {where}
            ORDER BY words.rowid DESC LIMIT {_RANKED}""",
            values,
        )
        if ranked := sorted(_Ranked(*row) for row in found):
            return Hits([_hit(reader, place, terms, mode) for place in ranked[offset : offset + limit]], len(ranked))
    return Hits([], 0)


def _hit(reader: Reader, place: _Ranked, terms: list[str], mode: Mode) -> Hit:
    query = f"SELECT {WHOLE} FROM capsules WHERE row = ?"
    capsule = decode(reader.connection.execute(query, [place.row]).fetchone())
    content = "\n".join((capsule.name or "", capsule.title or "", *capsule.tags, capsule.text)).lower()
    present = max(1, sum(term.lower() in content for term in terms))
    strength = -place.bm25 / (1 - place.bm25)
    return Hit(
        capsule,
        snippet=_snippet(egress(capsule.text, mode), terms),
        coverage=present / len(terms),
        score=max((present - 1 + strength) / len(terms), _LEAST_SCORE),
    )


def _terms(query: str) -> list[str]:
    """The words and quoted phrases of a query. Stop words count only where there is nothing else."""
    found = (quoted or word for quoted, word in _TERM.findall(query.replace("\0", " ")))
    bare = (term.strip(" \t.,;:!?()[]{}<>'\"") for term in found)
    # A term without a letter or digit is not in the index.
    terms = list(dict.fromkeys(term for term in bare if any(map(str.isalnum, term))))
    ignored = stop_words(query)
    return ([term for term in terms if term.lower() not in ignored] or terms)[:_MAX_TERMS]


def _attempts(terms: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Match expressions from strict to lax, each with the terms that must occur literally."""
    if not terms:
        return
    phrases = ['"' + index_text(term)[0].replace('"', '""') + '"' for term in terms]
    beginnings = [f"{phrase}*" for phrase in phrases]
    literals = [term for term in terms if _SYMBOLIC.fullmatch(term)]
    yield " AND ".join(phrases), literals
    yield " AND ".join(beginnings), literals
    if len(phrases) > 1:
        yield " OR ".join(phrases), []
        yield " OR ".join(beginnings), []


def _conditions(match: str, filters: Filters, literals: list[str]) -> tuple[str, list[Any]]:
    where, values = filters.where()
    for literal in literals:
        columns = (TEXT, "name_raw", "capsules.title", "tags_json")
        where += f" AND ({' OR '.join(f'instr(lower({column}), ?)' for column in columns)})"
        values += [literal.lower()] * len(columns)
    return f"FROM words JOIN capsules ON capsules.row = words.rowid WHERE words MATCH ? AND {where}", [match, *values]


def _snippet(text: str, terms: list[str]) -> str:
    """The part of the text where most of the terms are together, on one line."""
    at = _best_place(text, terms)
    start = max(0, at - _BEFORE_MATCH)
    if start:
        start = max(text.find(" ", start, at) + 1, start)
    end = start + _SNIPPET_CHARS
    if end < len(text):
        end = max(text.rfind(" ", at + 1, end), start + _SNIPPET_CHARS // 2)
    folded = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{folded}{'…' if end < len(text) else ''}"


def _best_place(text: str, terms: list[str]) -> int:
    """The beginning of the first stretch with the most different terms."""
    lowered = text.lower()
    found = sorted((at, term) for term in terms for at in islice(_places(lowered, term.lower()), _MAX_PLACES))
    best, place = 0, 0
    for index, (start, _) in enumerate(found):
        reach = start + _SNIPPET_CHARS - _BEFORE_MATCH
        together = len({term for at, term in found[index:] if at < reach})
        if together > best:
            best, place = together, start
    return place


def _places(text: str, term: str) -> Iterator[int]:
    at = text.find(term)
    while at >= 0:
        yield at
        at = text.find(term, at + 1)
