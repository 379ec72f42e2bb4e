"""The tokenizer of texts and queries, and the stemmers: the same for every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .query import MAX_TOKEN_CHARS

if TYPE_CHECKING:
    import tantivy

STEMMERS = {
    "en": "english",
    "de": "german",
    "fr": "french",
    "es": "spanish",
    "it": "italian",
    "pt": "portuguese",
    "nl": "dutch",
    "sv": "swedish",
    "ru": "russian",
}
"""The languages whose words are also indexed by their stems, with tantivy's names for them."""


def analyzer(language: str | None = None) -> tantivy.TextAnalyzer:
    """Splits a text into words; with a language, into their stems."""
    import tantivy

    # Tantivy's default drops tokens of 40 and more characters: a git SHA-1 would not be found.
    steps = [tantivy.Filter.remove_long(MAX_TOKEN_CHARS), tantivy.Filter.lowercase()]
    if language:  # before the accents go: stemmers know them
        steps.append(tantivy.Filter.stemmer(STEMMERS[language]))
    builder = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    for step in (*steps, tantivy.Filter.ascii_fold()):
        builder = builder.filter(step)
    return builder.build()
