"""The tokens that events, exchanges and titles are found by. The server only compares and counts them."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...model import EventType
from ..phrases import title_phrases
from ..query import MAX_TOKEN_CHARS, STEMMERS, Query, analyzer, index_text, is_unspaced
from ..stopwords import language_of, language_of_words

if TYPE_CHECKING:
    import tantivy

# Between a text and the parts of its camelCase words: no phrase reaches from one to the other.
GAP = ""
# Before a stem; no word has it.
STEM = "~"
# Separates the tokens of ASCII texts.
_SEPARATED = bytes(code if chr(code).isalnum() and code < 128 else 32 for code in range(256))
# The words that decide on the language of a text, about as many as in the local engine.
_LANGUAGE_WORDS = 64
_MOST_STEMS = 100_000
# Output of tools is data and code more than language.
_PROSE = (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE, EventType.REASONING, EventType.COMPACTION)


@cache
def splitter(language: str | None = None) -> tantivy.TextAnalyzer:
    return analyzer(language)


def text_tokens(text: str) -> list[str]:
    """The tokens of a text in order, and the parts of its camelCase words."""
    return _with_parts(*_words(text))


def _words(text: str) -> tuple[list[str], list[str]]:
    """The words of a text, and the parts of its camelCase words."""
    if not text.isascii():
        spaced, parts = index_text(text)
        return splitter().analyze(spaced), splitter().analyze(parts)
    return _ascii_words(text), _ascii_words(index_text(text)[1])


def _ascii_words(text: str) -> list[str]:
    """As the splitter does it, several times faster. Most texts are of this kind."""
    words = text.lower().encode().translate(_SEPARATED).decode().split()
    if max(map(len, words), default=0) >= MAX_TOKEN_CHARS:
        words = [word for word in words if len(word) < MAX_TOKEN_CHARS]
    return words


def _with_parts(words: list[str], parts: list[str]) -> list[str]:
    return [*words, GAP, *parts] if parts else words


class Document(NamedTuple):
    """The tokens of a text, one per line: the words in their order, and the stems, marked."""

    words: str
    stems: str
    word_count: int
    stem_count: int

    @property
    def lines(self) -> str:
        return f"{self.words}\n{self.stems}" if self.stems else self.words


def event_document(text: str, kind: EventType) -> Document:
    if kind is EventType.UNKNOWN:
        return Document("", "", 0, 0)
    words, parts = _words(text)
    tokens = _with_parts(words, parts)
    stems = _stems(text, words) if kind in _PROSE else []
    return Document("\n".join(tokens), "\n".join(stems), len(tokens), len(stems))


def _stems(text: str, words: list[str]) -> list[str]:
    """The stems of a text, marked."""
    if not text.isascii():
        return [STEM + stem for stem in splitter(language_of(text)).analyze(index_text(text)[0])]
    return list(map(_known_stems(language_of_words(words[:_LANGUAGE_WORDS])).__getitem__, words))


class _KnownStems(dict[str, str]):
    """The marked stems of the words of a language: the same words come again and again."""

    def __init__(self, language: str) -> None:
        self._language = language

    def __missing__(self, word: str) -> str:
        (stem,) = splitter(self._language).analyze(word)
        if len(self) >= _MOST_STEMS:
            self.clear()
        self[word] = STEM + stem
        return self[word]


@cache
def _known_stems(language: str) -> _KnownStems:
    return _KnownStems(language)


def title_stems(title: str) -> list[str]:
    """The stems of a title; in scripts without spaces also the pairs of characters."""
    # The words of a query have lost their accents before they are stemmed.
    words = splitter().analyze(" ".join(index_text(title)))
    stems = list(splitter("en").analyze(" ".join(words)))
    return [*stems, *filter(is_unspaced, map("".join, pairwise(stems)))]


def title_terms(query: Query) -> list[str]:
    """The terms of a query among `title_stems`."""
    phrases = title_phrases(query)
    pairs = {"".join(phrase) for phrase in phrases if len(phrase) > 1}
    return sorted(pairs.union(*(splitter("en").analyze(phrase[0]) for phrase in phrases if len(phrase) == 1)))


def word_stems(word: str) -> list[str]:
    """The stems of a word in all languages, each once."""
    if word.isdigit():
        return []
    return list(dict.fromkeys(stem for language in STEMMERS for stem in splitter(language).analyze(word)))
