"""The words and phrases of a query that make a score, with their weights. The same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import pairwise
from operator import itemgetter
from string import ascii_lowercase
from typing import TypeVar

from .query import Clause, Query, is_unspaced
from .question import Hints
from .ranking import COVERED_FROM, COVERED_WORDS, Weights
from .stopwords import STOP_WORDS

MIN_CORRECTED_CHARS = 4
CORRECTIONS = 3
# Two words side by side are a phrase of at most so many tokens.
_MAX_ADJACENT = 6

F = TypeVar("F", bound=Hashable)


def matching_phrases(
    query: Query, hints: Hints, corrections: Iterable[str], weights: Weights
) -> dict[tuple[str, ...], float]:
    """Words, whole paths and identifiers, their parts, similar words, quoted phrases: any of them makes a match."""
    found: dict[tuple[str, ...], float] = {}
    for clause in query.clauses:
        for phrase in clause.alternatives:
            found[phrase] = _word_weight(phrase[0], hints, weights) if len(phrase) == 1 else 1.0
    for clause in query.clauses:
        for token in _single_parts(clause):
            found.setdefault((token,), weights.part)
    for near in corrections:
        found.setdefault((near,), 1.0)
    return found


def neighbours(query: Query, weights: Weights) -> dict[tuple[str, ...], float]:
    """Pairs of words that stand side by side in the question."""
    words = [clause.alternatives[0] for clause in query.clauses if not clause.quoted]
    pairs = ((*one, *other) for one, other in pairwise(words))
    return {pair: weights.adjacent for pair in pairs if len(pair) <= _MAX_ADJACENT}


def words_to_cover(
    query: Query,
    weights: Mapping[tuple[str, ...], float],
    forms_of: Callable[[tuple[str, ...]], Iterable[F]],
    documents: Callable[[F], int],
    rarity: Callable[[int], float],
) -> list[tuple[list[F], float]]:
    """The rarest words of a long question, as the forms of each that events have, and its share in the rarity of all.
    A word is as rare as its commonest form, since any of them will do. `documents` is the number of events with a form,
    `rarity` that of what so many events have."""
    clauses = [clause for clause in query.clauses if not clause.quoted]
    if len(clauses) < COVERED_FROM:
        return []
    words = []
    for clause in clauses:
        forms = (form for phrase in clause.alternatives for form in forms_of(phrase))
        known = {form: count for form in forms if (count := documents(form))}
        rare = rarity(max(known.values())) * weights[clause.alternatives[0]] if known else 0.0
        words.append((list(known), rare))
    rarest = sorted(words, key=itemgetter(1), reverse=True)[:COVERED_WORDS]
    whole = sum(rare for _, rare in rarest) or 1.0
    return [(forms, rare / whole) for forms, rare in rarest if forms]


def title_phrases(query: Query) -> list[tuple[str, ...]]:
    """The single words of a query, and in scripts without spaces the pairs of characters: one alone says nothing."""
    phrases: dict[tuple[str, ...], None] = {}
    for clause in query.clauses:
        for phrase in clause.alternatives:
            unspaced = len(phrase) > 1 and is_unspaced("".join(phrase))
            phrases |= dict.fromkeys(pairwise(phrase) if unspaced else ((token,) for token in phrase))
    return list(phrases)


def is_corrected(word: str) -> bool:
    """True for a word that may have a typing error, if no text has it."""
    return len(word) >= MIN_CORRECTED_CHARS and word.isalpha() and word.isascii()


def best_corrections(known: Mapping[str, int]) -> tuple[str, ...]:
    """The commonest of the words near another one, by the numbers of events that have them."""
    best = sorted((near for near, count in known.items() if count), key=lambda near: (-known[near], near))
    return tuple(best[:CORRECTIONS])


def edits(word: str) -> set[str]:
    """All words that are one letter more, less, other or swapped away."""
    splits = [(word[:place], word[place:]) for place in range(len(word) + 1)]
    near = {before + after[1:] for before, after in splits if after}
    near |= {before + after[1] + after[0] + after[2:] for before, after in splits if len(after) > 1}
    for letter in ascii_lowercase:
        near |= {before + letter + after[1:] for before, after in splits if after}
        near |= {before + letter + after for before, after in splits}
    near.discard(word)
    return near


def _word_weight(token: str, hints: Hints, weights: Weights) -> float:
    if token in hints.time_words:
        return weights.part
    return weights.number if hints.is_error and token.isdigit() else 1.0


def _single_parts(clause: Clause) -> list[str]:
    """The single tokens of a path or identifier, where they say anything."""
    if clause.quoted:
        return []
    parts = dict.fromkeys(token for phrase in clause.alternatives if len(phrase) > 1 for token in phrase)
    return [token for token in parts if token not in STOP_WORDS["en"]]
