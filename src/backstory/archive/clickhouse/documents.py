"""The tokens that events, exchanges and titles are found by. The server only compares and counts them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from ...model import EventType
from ..analysis import STEMMERS, analyzer
from ..query import index_text
from ..stopwords import language_of

if TYPE_CHECKING:
    import tantivy

# Between a text and the parts of its camelCase words: no phrase reaches from one to the other.
GAP = ""
# Before a stem; no word has it.
STEM = "~"
# Output of tools is data and code more than language.
_PROSE = (EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE, EventType.REASONING, EventType.COMPACTION)


@cache
def splitter(language: str | None = None) -> tantivy.TextAnalyzer:
    return analyzer(language)


def text_tokens(text: str) -> list[str]:
    """The tokens of a text in order, and the parts of its camelCase words."""
    spaced, parts = index_text(text)
    tokens: list[str] = splitter().analyze(spaced)
    return [*tokens, GAP, *splitter().analyze(parts)] if parts else tokens


class Document(NamedTuple):
    """The tokens of a text in the index. Stems stand behind the words, marked, so that one index finds both."""

    tokens: list[str]
    words: int
    stems: int


def event_document(text: str, kind: EventType) -> Document:
    if kind is EventType.UNKNOWN:
        return Document([], 0, 0)
    tokens = text_tokens(text)
    stems = splitter(language_of(text)).analyze(index_text(text)[0]) if kind in _PROSE else []
    marked = [GAP, *(STEM + stem for stem in stems)] if stems else []
    return Document([*tokens, *marked], len(tokens), len(stems))


def title_stems(title: str) -> list[str]:
    return list(splitter("en").analyze(index_text(title)[0]))


def word_stems(word: str) -> list[str]:
    """The stems of a word in all languages, each once."""
    if word.isdigit():
        return []
    return list(dict.fromkeys(stem for language in STEMMERS for stem in splitter(language).analyze(word)))
