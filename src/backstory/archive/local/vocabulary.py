"""The words of the index: the documents that have them, their rarity, their stems, and similar words."""

from __future__ import annotations

from functools import cache, lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING

from ..forms import other_forms
from ..phrases import best_corrections, edits, is_corrected
from ..query import STEMMERS, analyzer
from ..ranking import STEM_LANGUAGES, rarity
from .index import stem_field

if TYPE_CHECKING:
    import tantivy

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
