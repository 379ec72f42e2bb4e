"""Queries as terms and phrases, and the tokens of a text: the same for every engine and every index.

Words are split as the index splits text: letters and digits stay together, everything else separates. A word that
falls into several parts (`src/auth/token.py`, `user_name`, text without spaces) is a phrase of its parts. CamelCase
words are looked for whole and as the phrase of their parts. Stop words never decide, unless there is nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from .stopwords import stop_words

if TYPE_CHECKING:
    import tantivy

MAX_TOKEN_CHARS = 80
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
# A phrase of many common words is slow to intersect; the last parts of a path are the telling ones.
_MAX_IMPLICIT_PHRASE = 6
# A pasted stack trace of a thousand words is no better question than its first words.
_MAX_CLAUSES = 48

# The first bytes in UTF-8 of characters of scripts without spaces. Accents, arrows and box drawings have others.
_UNSPACED_LEADS = bytes((0xE0, 0xE1, *range(0xE3, 0xEE), 0xEF, 0xF0))
_TOKEN = re.compile(r"[^\W_]+")
# Colours and other codes of terminals; soft hyphens, characters without width, marks of direction.
_MARKS = re.compile("\x1b\\[[0-?]*+[ -/]*+[@-~]|[\xad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff]")
# A word behind a line break or a tab of a text in a text, as in JSON: the letter of the escape stands before it.
_ESCAPED = re.compile(r"\\[nrt]([^\W\d_]\w*)")
# Quotes that stand by themselves. Those of pasted code (`style="red"`, `{"code":401}`, `raise("no")`) are punctuation:
# what they enclose may differ in a number, and nothing would be found.
_QUOTED = re.compile(r"""(?<![\w=:{\[,'`\\/<>])(?<!\w\()"([^"]+)"(?![\w=}\]'`\\/<])|“([^”]+)”""", re.ASCII)
# The shape of a text: `a` for small letters and digits, `A` for capitals, a space for the rest. Looking for humps in
# it is several times faster than any regular expression over the text.
_SHAPE = bytes(97 if chr(c).islower() or chr(c).isdigit() else 65 if chr(c).isupper() else 32 for c in range(128))
_SHAPE += b" " * 128
_HUMPS = (b"aA", b"AAa")
_CAMEL_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


class Clause(Struct, frozen=True):
    """One thing to look for: any of the alternatives, each a phrase of one or more tokens."""

    alternatives: tuple[tuple[str, ...], ...]
    quoted: bool = False
    """Typed in quotes: must match exactly, and always counts."""


class Query(Struct, frozen=True):
    text: str
    clauses: tuple[Clause, ...]

    @property
    def is_quoted(self) -> bool:
        """True if a part of it is in quotes, and so required."""
        return any(clause.quoted for clause in self.clauses)

    @property
    def terms(self) -> frozenset[str]:
        """Every token that was looked for, in lower case."""
        return frozenset(token for clause in self.clauses for phrase in clause.alternatives for token in phrase)


def tokens(text: str) -> list[str]:
    """The tokens of a text, as the index has them."""
    return [token for token in _TOKEN.findall(_space(text).lower()) if len(token.encode()) < MAX_TOKEN_CHARS]


def without_marks(text: str) -> str:
    """The text without invisible characters that would hide a word: an escape code before it, or a mark inside it."""
    # Nearly all texts have none, and these tests are several times faster than the search for them.
    if "\x1b" not in text and (text.isascii() or text.replace("\n", " ").replace("\t", " ").isprintable()):
        return text
    return _MARKS.sub("", text)


def index_text(text: str) -> tuple[str, str]:
    """The input of an index for a text: the text with every word separable, and the parts of its camelCase words and
    of those that begin with an escape (`\\nword`, which may be a folder of Windows as well)."""
    indexed = IndexText.of(text)
    return indexed.spaced, indexed.parts


class IndexText(NamedTuple):
    """The input of an index for a text, from which that of several texts can be made without reading them again."""

    spaced: str
    """The text with every word separable."""
    humps: tuple[dict[bytes, None], ...]
    """The camelCase words, each once, by the kinds of humps."""
    escaped: tuple[str, ...] = ()
    """Words that begin with an escape."""

    @classmethod
    def of(cls, text: str) -> IndexText:
        escaped = tuple(dict.fromkeys(_ESCAPED.findall(text))) if "\\" in text else ()
        return cls(_space(text), _camel_words(text), escaped)

    @classmethod
    def joined(cls, texts: Sequence[IndexText]) -> IndexText:
        """The input of an index for one text with these texts as its lines."""
        humps = zip(*[text.humps for text in texts], strict=True)
        words = tuple({word: None for found in same for word in found} for same in humps)
        escaped = tuple(dict.fromkeys([word for text in texts for word in text.escaped]))
        return cls("\n".join([text.spaced for text in texts]), words, escaped)

    @property
    def parts(self) -> str:
        """The parts of the camelCase words and of those that begin with an escape."""
        parts = _parts_of(self.humps)
        if self.escaped:
            escaped = " ".join(self.escaped)
            parts = f"{parts} {escaped} {_parts_of(_camel_words(escaped))}".strip()
        return parts


# The same words come again and again. A table that is emptied when it is full costs a third of `lru_cache`, which moves
# every word that it is asked for.
_PARTS: dict[bytes, str] = {}
_MOST_PARTS = 32_768


def _parts_of(humps: tuple[dict[bytes, None], ...]) -> str:
    parts = []
    for word in {**humps[0], **humps[1]} if humps[1] else humps[0]:
        found = _PARTS.get(word)
        parts.append(_camel_parts(word) if found is None else found)
    return " ".join(parts)


def _camel_parts(word: bytes) -> str:
    if len(_PARTS) >= _MOST_PARTS:
        _PARTS.clear()
    parts = _PARTS[word] = " ".join(_CAMEL_PART.findall(word.decode()))
    return parts


def _camel_words(text: str) -> tuple[dict[bytes, None], ...]:
    """Each word with a capital inside, once for each kind of hump that it has."""
    data = text.encode()
    shape = data.translate(_SHAPE)
    find, rfind = shape.find, shape.rfind
    humps = []
    for hump in _HUMPS:
        words: dict[bytes, None] = {}
        end = 0
        at = find(hump)
        while at >= 0:
            start = rfind(b" ", end, at) + 1 or end
            end = find(b" ", at)
            if end < 0:
                end = len(shape)
            if end - start < MAX_TOKEN_CHARS:
                words[data[start:end]] = None
            at = find(hump, end)
        humps.append(words)
    return tuple(humps)


def parse_query(text: str, tokenize: Callable[[str], list[str]] = tokens) -> Query:
    """`tokenize` is the tokenizer of the engine, so that query and index agree in every script."""
    text = without_marks(text)
    clauses: dict[Clause, None] = {}
    stops: dict[Clause, None] = {}
    ignored = stop_words(text)
    for quoted in _QUOTED.finditer(text):
        phrase = tokenize(_space(quoted[1] or quoted[2]))
        if phrase:
            clauses[Clause((tuple(phrase),), quoted=True)] = None
    for word in _QUOTED.sub(" ", text).split():
        for clause in _word_clauses(word, tokenize):
            (stops if _is_stop(clause, ignored) else clauses)[clause] = None
    return Query(text, tuple(clauses or stops)[:_MAX_CLAUSES])


def _is_stop(clause: Clause, ignored: frozenset[str]) -> bool:
    """True for a stop word, and for a piece of a Japanese sentence that is only grammar."""
    if len(clause.alternatives) > 1:
        return False
    (phrase,) = clause.alternatives
    return phrase[0] in ignored if len(phrase) == 1 else all("\u3040" <= token <= "\u309f" for token in phrase)


def _word_clauses(word: str, tokenize: Callable[[str], list[str]]) -> list[Clause]:
    """A word as typed is one clause; a sentence in a script without spaces is one for every two characters."""
    whole = tuple(tokenize(_space(word)))
    if len(whole) > _MAX_IMPLICIT_PHRASE and is_unspaced(word):
        return [Clause((pair,)) for pair in pairwise(whole)]
    if not whole:
        return []
    alternatives = [whole[-_MAX_IMPLICIT_PHRASE:]]
    if len(whole) == 1:
        for camel in {word: None for words in _camel_words(word) for word in words}:
            parts = tuple(_camel_parts(camel).lower().split())
            alternatives.append(parts[-_MAX_IMPLICIT_PHRASE:])
    return [Clause(tuple(alternatives))]


def _space(text: str) -> str:
    return text if text.isascii() else separate(unicodedata.normalize("NFC", text))


def is_unspaced(text: str) -> bool:
    """True if a character of it is of a script in which words are not separated."""
    return not text.isascii() and _unspaced().search(text) is not None


def separate(text: str) -> str:
    """The text with spaces around every character of a script in which words are not separated."""
    if text.isascii():
        return text
    data = text.encode("utf-8", "surrogatepass")
    if len(data.translate(None, _UNSPACED_LEADS)) == len(data):
        return text
    return _unspaced().sub(r" \g<0> ", text)


@cache  # compiling it takes longer than most searches, and few need it
def _unspaced() -> re.Pattern[str]:
    """A character that is a token by itself; words are phrases of them. Korean has spaces, but joins particles to its
    words: by syllable, a word is found with any of them."""
    return re.compile(
        "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
        "\U00020000-\U0003ffff]"
    )


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
