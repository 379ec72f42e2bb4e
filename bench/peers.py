"""The same texts in other engines, each at its best: SQLite FTS5 (one optimized segment) and bm25s (all in memory).

Both answer as a plain search box does: any of the words, best by BM25 first. A quoted phrase stays a phrase where the
engine has such a thing.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

_TERM = re.compile(r'"[^"]+"|\w+')


class Built(NamedTuple):
    seconds: float
    bytes: int


class Answer(NamedTuple):
    """The seconds of a query, and the numbers of the texts found, counted from 1, best first."""

    seconds: float
    found: tuple[int, ...]


def _timed(ask: Callable[[str], tuple[int, ...]], queries: Iterable[str]) -> list[Answer]:
    answers = []
    for query in queries:
        started = perf_counter()
        found = ask(query)
        answers.append(Answer(perf_counter() - started, found))
    return answers


def build_fts5(path: Path, events: Iterable[str]) -> Built:
    """Index the texts without storing them; `path` must not exist."""
    started = perf_counter()
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -200000")
        database.execute("CREATE VIRTUAL TABLE events USING fts5(text, content = '', tokenize = 'unicode61')")
        database.execute("BEGIN")
        rows = enumerate(events, 1)
        database.executemany("INSERT INTO events (rowid, text) VALUES (?, ?)", rows)
        database.execute("INSERT INTO events (events) VALUES ('optimize')")
        database.execute("COMMIT")
    return Built(perf_counter() - started, path.stat().st_size)


def query_fts5(path: Path, queries: Iterable[str], k: int = 10) -> list[Answer]:
    select = "SELECT rowid FROM events WHERE events MATCH ? ORDER BY rank LIMIT ?"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.executescript("PRAGMA mmap_size = 4000000000; PRAGMA cache_size = -200000")

        def ask(query: str) -> tuple[int, ...]:
            terms = dict.fromkeys(_TERM.findall(query.lower()))
            match = " OR ".join(term if term.startswith('"') else f'"{term}"' for term in terms)
            return tuple(row for (row,) in database.execute(select, (match, k)))

        return _timed(ask, queries)


class Bm25s(NamedTuple):
    """An index in memory, with the vocabulary it was made with."""

    index: Any
    tokenizer: Any
    built: Built


def build_bm25s(events: Iterable[str]) -> Bm25s:
    """Needs about 7 GB for a million texts."""
    import bm25s
    from bm25s.tokenization import Tokenizer

    started = perf_counter()
    tokenizer = Tokenizer(stopwords="en")
    tokens = tokenizer.tokenize(events, update_vocab=True, length=0, show_progress=False, return_as="tuple")
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)
    size = sum(index.scores[name].nbytes for name in ("data", "indices", "indptr"))
    return Bm25s(index, tokenizer, Built(perf_counter() - started, size))


def query_bm25s(peer: Bm25s, queries: Iterable[str], k: int = 10) -> list[Answer]:
    k = min(k, peer.index.scores["num_docs"])

    def ask(query: str) -> tuple[int, ...]:
        tokens = peer.tokenizer.tokenize([query], update_vocab="never", show_progress=False)
        documents, scores = peer.index.retrieve(tokens, k=k, show_progress=False)
        return tuple(int(number) + 1 for number, score in zip(documents[0], scores[0], strict=True) if score > 0)

    return _timed(ask, queries)
