"""Texts in the shape of what agents read and write, as many as wanted and the same on every machine.

They are put together from samples drawn once: words by Zipf's law, identifiers and paths made of such words, and a code
base of such lines. A sentence is a slice of the word sample from a random place with a random stride, which costs no
more than copying it and hardly ever gives the same sentence twice; code is a slice of the code base, which agents do
read again and again. What is unique in real texts (hashes, ids, times) is unique here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from math import exp, isqrt
from random import Random
from statistics import NormalDist
from typing import NamedTuple

from .words import TRADE, vocabulary

_WORDS = 1 << 20
_IDENTIFIERS = 12_000
_PATHS = 6_000
_CODE_LINES = 1 << 16
_STRIDES = 61
_SHORTEST_SENTENCE, _LONGEST_SENTENCE = 4, 24
_TOPIC = 64
"""The number of identifiers and paths in one event, with repetitions."""
# Words per event: lognormal, so that half of the events are short, the mean is 120 and some have many thousand.
_LENGTH_MU, _LENGTH_SIGMA, _LONGEST = 3.78, 1.42, 20_000
_LENGTHS = 1 << 14
_LEVELS = ("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR")
_QUESTIONS = (
    "How do I",
    "Why does",
    "Where is",
    "Can you",
    "What did we decide about",
    "Please",
    "When did",
    "Is there",
)


class Samples(NamedTuple):
    words: list[str]
    identifiers: list[str]
    paths: list[str]
    code: list[str]
    lengths: list[int]


def _sample(random: Random, items: Sequence[str], size: int, flat: int) -> list[str]:
    """Items by Zipf's law: 1/rank, the first `flat` ranks nearly alike. Whole numbers, which no machine rounds.

    From rank 800 on it is rank**-1.5: of English, too, the rarer half falls off faster.
    """
    ranks = range(flat, len(items) + flat)
    weights = accumulate(10**12 // rank if rank < 800 else 28 * 10**12 // (rank * isqrt(rank)) for rank in ranks)
    return random.choices(items, cum_weights=list(map(float, weights)), k=size)


def _identifier(random: Random, words: list[str]) -> str:
    parts = [random.choice(words) for _ in range(random.choice((1, 2, 2, 2, 3, 3, 4)))]
    style = random.random()
    if style < 0.5:
        return "_".join(parts)
    if style < 0.75:
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    if style < 0.95:
        return "".join(part.capitalize() for part in parts)
    return "_".join(parts).upper()


def _path(random: Random, names: list[str]) -> str:
    folder = random.choice(("src", "src", "lib", "app", "tests", "internal", "packages", "cmd", "docs", "scripts"))
    suffix = random.choice((".py", ".py", ".ts", ".tsx", ".go", ".rs", ".js", ".java", ".md", ".sql", ".yaml", ".json"))
    return "/".join((folder, *(random.choice(names).lower() for _ in range(random.choice((1, 2, 2, 3)))))) + suffix


def _code_line(random: Random, name: Callable[[], str], words: Callable[[int], str]) -> str:
    kind = random.randrange(10)
    if kind == 0:
        return f"def {name()}({name()}: str, {name()}: int = {random.randrange(100)}) -> {name()}:"
    if kind == 1:
        return f"    {name()} = {name()}({name()}, {name()}={random.randrange(1000)})"
    if kind == 2:
        return f"    if {name()}.{name()} is not None:"
    if kind == 3:
        return f'        raise {name()}(f"{words(4)}: {{{name()}}}")'
    if kind == 4:
        return f"    # {words(8)}"
    if kind == 5:
        return f"  const {name()} = await {name()}.{name()}({name()});"
    if kind == 6:
        return f"    return {name()}.{name()}[{random.randrange(10)}]"
    if kind == 7:
        return f"from {name()}.{name()} import {name()}"
    if kind == 8:
        return f"        for {name()} in {name()}.{name()}():"
    return ""


@cache
def samples() -> Samples:
    random = Random("samples")
    words = _sample(random, vocabulary(), _WORDS, flat=2)
    # Code speaks of the trade, and of things that only one project knows.
    nouns = TRADE * 4 + [word for word in words[: 1 << 14] if len(word) > 3 and word.isalpha()]
    names = list(dict.fromkeys(_identifier(random, nouns) for _ in range(_IDENTIFIERS)))
    paths = list(dict.fromkeys(_path(random, names) for _ in range(_PATHS)))
    identifiers = _sample(random, names, 1 << 17, flat=60)

    def some_words(count: int) -> str:
        start = random.randrange(_WORDS - count)
        return " ".join(words[start : start + count])

    def some_name() -> str:
        return random.choice(identifiers)

    code = [_code_line(random, some_name, some_words) for _ in range(_CODE_LINES)]
    normal = NormalDist(_LENGTH_MU, _LENGTH_SIGMA)
    quantiles = (normal.inv_cdf((step + 0.5) / _LENGTHS) for step in range(_LENGTHS))
    lengths = [max(2, min(_LONGEST, round(exp(quantile)))) for quantile in quantiles]
    return Samples(words, identifiers, _sample(random, paths, 1 << 15, flat=60), code, lengths)


class Texts:
    """Makes texts of many kinds, each of about as many words as asked for."""

    def __init__(self, seed: int | str = 0) -> None:
        self._random = Random(f"texts {seed}")
        self._next = self._random.random
        self._words, self._identifiers, self._paths, self._code, self._lengths = samples()
        self._kinds: tuple[Callable[[int], str], ...] = (
            *(self.prose,) * 7,
            *(self.question,) * 2,
            *(self.code,) * 4,
            *(self.shell,) * 2,
            *(self.logs,) * 2,
            self.json,
            self.trace,
            self.diff,
        )
        self.new_topic()

    def new_topic(self) -> None:
        """From here on identifiers and paths are taken from another few."""
        self._some_identifiers = self._slice(self._identifiers, _TOPIC)
        self._some_paths = self._slice(self._paths, _TOPIC // 8)

    def any(self) -> str:
        self.new_topic()
        return self._kinds[int(self._next() * len(self._kinds))](self.length())

    def length(self) -> int:
        return self._lengths[int(self._next() * _LENGTHS)]

    def number(self, below: int) -> int:
        return int(self._next() * below)

    def hex(self, digits: int) -> str:
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"

    def uuid(self) -> str:
        text = self.hex(32)
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"

    def _slice(self, sample: list[str], count: int) -> list[str]:
        start = int(self._next() * (len(sample) - count))
        return sample[start : start + count]

    def words(self, count: int) -> str:
        stride = 1 + int(self._next() * _STRIDES)
        start = int(self._next() * (_WORDS - count * stride))
        return " ".join(self._words[start : start + count * stride : stride])

    def identifier(self) -> str:
        return self._some_identifiers[int(self._next() * _TOPIC)]

    def path(self) -> str:
        return self._some_paths[int(self._next() * (_TOPIC // 8))]

    def question(self, length: int) -> str:
        length = min(length, 60)
        first = f"{_QUESTIONS[self.number(8)]} {self.words(max(2, min(length, 14)))} {self.identifier()}?"
        return f"{first} {self.prose(length - 16)}" if length > 20 else first

    def prose(self, length: int) -> str:
        """Paragraphs, lists, mentions of code, now and then a block of it."""
        parts: list[str] = []
        while length > 0:
            count = _SHORTEST_SENTENCE + int(self._next() * (_LONGEST_SENTENCE - _SHORTEST_SENTENCE))
            text = self.words(count)
            parts.append(text[0].upper())
            parts.append(text[1:])
            chance = self._next()
            if chance < 0.12:
                parts.append(f" `{self.identifier()}`")
            elif chance < 0.18:
                parts.append(f" in {self.path()}")
            elif chance < 0.21:
                parts.append(f", {self.number(100_000)}")
            length -= count
            if chance < 0.83:
                parts.append(". ")
            elif chance < 0.91:
                parts.append(".\n\n")
            elif chance < 0.98 or length < 30:
                parts.append(".\n- ")
            else:
                parts.append(f":\n\n```python\n{self.code(30)}\n```\n\n")
                length -= 30
        return "".join(parts).rstrip(" \n-")

    def code(self, length: int) -> str:
        return "\n".join(self._slice(self._code, max(1, length // 4))).strip("\n") or f"# {self.words(3)}"

    def diff(self, length: int) -> str:
        path = self.path()
        lines = "\n".join(f"{' +-'[self.number(3)]}{line}" for line in self._slice(self._code, max(1, length // 4)))
        index = f"index {self.hex(7)}..{self.hex(7)} 100644"
        return f"diff --git a/{path} b/{path}\n{index}\n@@ -{self.number(500)},7 +{self.number(500)},9 @@\n{lines}"

    def trace(self, length: int) -> str:
        frames = "".join(self._frame() for _ in range(max(1, (length - 12) // 8)))
        return f"Traceback (most recent call last):\n{frames}{self.identifier()}Error: {self.words(7)} {self.hex(8)}"

    def _frame(self) -> str:
        name = self.identifier()
        return (
            f'  File "/home/dev/{self.path()}", line {self.number(2000)}, in {name}\n    {self.identifier()}.{name}()\n'
        )

    def json(self, length: int) -> str:
        return "[" + ",\n ".join(self._object() for _ in range(max(1, length // 13))) + "]"

    def _object(self) -> str:
        return (
            f'{{"id": "{self.uuid()}", "{self.identifier()}": "{self.words(5)}", '
            f'"{self.identifier()}": {self.number(1_000_000)}, "path": "{self.path()}"}}'
        )

    def logs(self, length: int) -> str:
        start = self.number(60)
        day = f"2026-{1 + self.number(12):02}-{1 + self.number(28):02}T{self.number(24):02}"
        return "\n".join(
            f"{day}:{(start + line // 40) % 60:02}:{line % 40:02}.{self.number(1000):03}Z {_LEVELS[self.number(6)]} "
            f"[{self.identifier()}] {self.words(8)} request={self.hex(8)} took={self.number(5000)}ms"
            for line in range(max(1, length // 13))
        )

    def shell(self, length: int) -> str:
        """The output of git log, grep or ls."""
        line, words = ((self._commit, 8), (self._found, 5), (self._listed, 9))[self.number(3)]
        return "\n".join(line() for _ in range(max(1, length // words)))

    def _commit(self) -> str:
        return f"{self.hex(40 if self._next() < 0.3 else 7)} {self.words(7)}"

    def _found(self) -> str:
        return f"{self.path()}:{self.number(900)}:{self._code[self.number(_CODE_LINES)]}"

    def _listed(self) -> str:
        return f"-rw-r--r--  1 dev dev {self.number(900_000):>7} Mar {1 + self.number(28):>2} 10:42 {self.path()}"
