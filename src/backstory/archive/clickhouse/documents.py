"""The tokens that events, exchanges and titles are found by. The server only compares and counts them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ...model import EventType
from ..query import MAX_TOKEN_CHARS, STEMMERS, IndexText, analyzer, index_text, is_unspaced
from ..stopwords import language_of, language_of_words

if TYPE_CHECKING:
    import tantivy

# Between a text and the parts of its camelCase words: no phrase reaches from one to the other.
GAP = ""
# Before a stem; no word has it.
STEM = "~"
# The bytes of ASCII texts: letters in lower case, digits, and spaces for what separates words.
_SEPARATED = bytes(ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else 32 for code in range(256))
# The words that decide on the language of a text, about as many as in the local engine.
_LANGUAGE_WORDS = 64
_MOST_STEMS = 100_000
# A prompt or an answer says what it is about in the beginning.
_STEMMED_CHARS = 800
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
    return _ascii_words(text), _ascii_parts(text)


def _ascii_words(text: str) -> list[str]:
    """As the splitter does it, several times faster. Most texts are of this kind."""
    words = _ascii_split(text)
    if max(map(len, words), default=0) >= MAX_TOKEN_CHARS:
        words = [word for word in words if len(word) < MAX_TOKEN_CHARS]
    return words


def _ascii_split(text: str) -> list[str]:
    """The words, also those that are too long."""
    return text.encode().translate(_SEPARATED).decode().split()


def _ascii_parts(text: str) -> list[str]:
    indexed = IndexText.of(text)
    # Those of camelCase words are words.
    return _ascii_words(indexed.parts) if indexed.escaped else indexed.parts.lower().split()


def _with_parts(words: list[str], parts: list[str]) -> list[str]:
    return [*words, GAP, *parts] if parts else words


class Document(NamedTuple):
    """The tokens that an event is found by, one per line."""

    is_plain: bool
    """The body is of ASCII, and its words come first: the server splits it, several times faster."""
    lines: str
    """The words in their order, or what comes behind those of the body."""
    stems: str
    """Marked. How often a text has a stem does not count, but in its length."""


_NO_TOKENS = Document(is_plain=False, lines="", stems="")


def event_document(text: str, kind: EventType, *, is_body: bool) -> Document:
    """`is_body` says that the text is stored as it is."""
    if kind is EventType.UNKNOWN:
        return _NO_TOKENS
    stems = _stems(text) if kind in _PROSE else []
    is_plain = is_body and text.isascii()
    words, parts = ([], _ascii_parts(text)) if is_plain else _words(text)
    return Document(is_plain, "\n".join(_with_parts(words, parts)), "\n".join(stems))


def _stems(text: str) -> list[str]:
    """The stems of the beginning of a text, marked, as many as in the local engine."""
    if not text.isascii():
        spaced = index_text(text)[0][:_STEMMED_CHARS]
        return [STEM + stem for stem in splitter(language_of(text)).analyze(spaced)]
    words = _ascii_split(text[:_STEMMED_CHARS])
    known = _known_stems(language_of_words(words[:_LANGUAGE_WORDS]))
    try:
        return list(map(known.__getitem__, words))
    except ValueError:  # a word is too long, and has no stem
        return [known[word] for word in words if len(word) < MAX_TOKEN_CHARS]


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


def title_terms(phrases: Iterable[tuple[str, ...]]) -> list[str]:
    """Words and pairs of characters as they are among `title_stems`."""
    phrases = list(phrases)
    pairs = {"".join(phrase) for phrase in phrases if len(phrase) > 1}
    return sorted(pairs.union(*(splitter("en").analyze(phrase[0]) for phrase in phrases if len(phrase) == 1)))


def word_stems(word: str, languages: Iterable[str] = STEMMERS) -> list[str]:
    """The stems of a word in some languages, each once."""
    if word.isdigit():
        return []
    return list(dict.fromkeys(stem for language in languages for stem in splitter(language).analyze(word)))
