"""Finding capsules by words: names, titles, tags and text, in any script."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from itertools import islice
from typing import Any

from msgspec import Struct

from ...archive.query import separate
from .capsule import Capsule
from .reader import TEXT, WHOLE, Filters, decode

__all__ = ["Hit", "Hits", "indexed", "search"]

_TERM = re.compile(r'"([^"]*)"|(\S+)')
# The index keeps letters and digits only. In names like these the rest is what matters.
_SYMBOLIC = re.compile(r"\w+(\+\+|#)")
_MAX_TERMS = 32
# A word that is in nearly every capsule says little: of more hits only the newest are ranked and counted.
_RANKED = 2000
# What a word in the name, the title, the tags and the text counts: a tag more than any repetition in the text.
_WEIGHTS = "50.0, 30.0, 20.0, 1.0"
_SNIPPET_CHARS = 240
_BEFORE_MATCH = 80
_MAX_PLACES = 20


class Hit(Struct, frozen=True):
    capsule: Capsule
    snippet: str


class Hits(Struct, frozen=True):
    """A page of hits and how many there are, counted no further than they are ranked."""

    hits: list[Hit]
    total: int


def indexed(capsule: Capsule) -> list[str]:
    """What the index is given: name, title, tags, text. The same capsule must always give the same."""
    return [separate(part) for part in (capsule.name or "", capsule.title or "", " ".join(capsule.tags), capsule.text)]


def search(connection: sqlite3.Connection, query: str, filters: Filters, limit: int, offset: int) -> Hits:
    """Best first. All words as typed; without a hit also as the beginnings of words; then any of them."""
    terms = _terms(query)
    for match, literals in _attempts(terms):
        where, values = _conditions(match, filters, literals)
        found = connection.execute(
            f"""SELECT bm25(words, {_WEIGHTS}) AS score, -updated_us, capsules.row {where}
            ORDER BY words.rowid DESC LIMIT {_RANKED}""",
            values,
        ).fetchall()
        if found:
            page = [row for _, _, row in sorted(found)[offset : offset + limit]]
            return Hits([_hit(connection, row, terms) for row in page], len(found))
    return Hits([], 0)


def _hit(connection: sqlite3.Connection, row: int, terms: list[str]) -> Hit:
    capsule = decode(connection.execute(f"SELECT {WHOLE} FROM capsules WHERE row = ?", [row]).fetchone())
    return Hit(capsule, _snippet(capsule, terms))


def _terms(query: str) -> list[str]:
    """The words and quoted phrases of a query, without those that hold nothing the index knows."""
    found = (quoted or word for quoted, word in _TERM.findall(query.replace("\0", " ")))
    bare = (term.strip(" \t.,;:!?()[]{}<>'\"") for term in found)
    return list(dict.fromkeys(term for term in bare if any(map(str.isalnum, term))))[:_MAX_TERMS]


def _attempts(terms: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Match expressions from strict to lax, each with the terms that must be there to the letter."""
    if not terms:
        return
    phrases = ['"' + separate(term).replace('"', '""') + '"' for term in terms]
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


def _snippet(capsule: Capsule, terms: list[str]) -> str:
    """The part of the text where most of the terms are together, on one line."""
    at = _best_place(capsule.text, terms)
    start = max(0, at - _BEFORE_MATCH)
    if start:
        start = max(capsule.text.find(" ", start, at) + 1, start)
    end = start + _SNIPPET_CHARS
    if end < len(capsule.text):
        end = max(capsule.text.rfind(" ", at + 1, end), start + _SNIPPET_CHARS // 2)
    folded = " ".join(capsule.text[start:end].split())
    return f"{'…' if start else ''}{folded}{'…' if end < len(capsule.text) else ''}"


def _best_place(text: str, terms: list[str]) -> int:
    """Where the first of the stretches with the most different terms begins."""
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
