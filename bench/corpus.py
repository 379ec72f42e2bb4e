"""The corpus of the benchmarks: texts and transcripts of any size, and questions to them. Same seed, same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import NamedTuple

from .texts import Texts, samples
from .words import RARE_FROM, invented, vocabulary

QUERY_KINDS = ("rare", "mixed", "question", "identifier", "path", "phrase", "no_hit")


def events(n: int, seed: int = 0) -> Iterator[str]:
    """The first n texts of the corpus with this seed."""
    texts = Texts(seed)
    for _ in range(n):
        yield texts.any()


class Query(NamedTuple):
    kind: str
    text: str


def queries(n: int, seed: int = 0, *, corpus_seed: int = 0) -> Iterator[Query]:
    """Questions to the corpus of `corpus_seed`, each kind in turn; all but `no_hit` find something in 100k events."""
    asker = _Asker(seed, corpus_seed)
    for index in range(n):
        kind = QUERY_KINDS[index % len(QUERY_KINDS)]
        yield Query(kind, getattr(asker, kind)())


class _Asker:
    """One method per kind of query."""

    def __init__(self, seed: int, corpus_seed: int) -> None:
        self._random = Random(f"queries {seed}")
        self._texts = Texts(f"queries {seed}")
        self._rare_words = _rare_words()
        lines = (line.split() for text in events(1_000, corpus_seed) for line in text.splitlines())
        self._sentences = [words for words in lines if len(words) > 8 and all(word.isalpha() for word in words[:8])]

    def rare(self) -> str:
        return " ".join(self._random.choices(self._rare_words, k=self._random.choice((1, 2))))

    def mixed(self) -> str:
        return f"{self._texts.words(self._random.choice((1, 2, 3)))} {self._random.choice(self._rare_words)}"

    def question(self) -> str:
        return f"how did we {self._texts.words(self._random.randint(5, 17))}"

    def identifier(self) -> str:
        self._texts.new_topic()
        return self._texts.identifier()

    def path(self) -> str:
        self._texts.new_topic()
        return self._texts.path()

    def phrase(self) -> str:
        words = self._random.choice(self._sentences)
        start = self._random.randrange(4)
        return f'"{" ".join(words[start : start + self._random.choice((2, 3, 4))])}"'

    def no_hit(self) -> str:
        return f"{invented(self._random)}zq {invented(self._random)}zq"


@cache
def _rare_words() -> list[str]:
    """Not all rare words of the vocabulary got into the sample."""
    rare = frozenset(vocabulary()[RARE_FROM:])
    return [word for word in samples().words if word in rare]
