"""The words and phrases of a query that make a score, with their weights. The same for every engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from string import ascii_lowercase

from .query import Clause, Query, is_unspaced
from .question import Hints
from .ranking import Weights
from .stopwords import STOP_WORDS

MIN_CORRECTED_CHARS = 4
CORRECTIONS = 3
# Two words side by side are a phrase of at most so many tokens.
_MAX_ADJACENT = 6


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
