"""The titles of sessions that match a question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .postings import GAIN
from .server import Server, array

# The sessions whose titles match best.
_TITLES = 50


class TitleStatistics(NamedTuple):
    rows: int = 0
    """Of the table, with those that were replaced."""
    sessions: int = 0
    average: float = 0.0
    """The average number of stems in a title."""


def read_title_statistics(server: Server, rows: int, deadline: float | None) -> TitleStatistics:
    sessions, average = server.row("SELECT count(), avg(length(title_stems)) FROM session FINAL", deadline=deadline)
    return TitleStatistics(rows, sessions, average)


def title_scores(
    server: Server, words: Sequence[str], statistics: TitleStatistics, deadline: float | None
) -> dict[str, float]:
    """By session. BM25 with SQLite's rarity of a word, so that titles weigh the same as in the local engine."""
    if not words:
        return {}
    stems = array(words, "String")
    matching = server.rows(
        f"SELECT key, length(title_stems), arrayMap(stem -> countEqual(title_stems, stem), {stems}) "
        f"FROM session FINAL WHERE hasAny(title_stems, {stems})",
        deadline=deadline,
    )
    having = [sum(times > 0 for times in column) for column in zip(*(counts for *_, counts in matching), strict=True)]
    total = statistics.sessions
    rarities = [max(math.log((max(total - n, 0) + 0.5) / (n + 0.5)), 1e-6) for n in having]
    scores = {}
    for key, length, counts in matching:
        norm = 1.2 * (0.25 + 0.75 * length / statistics.average)
        parts = zip(rarities, counts, strict=True)
        scores[key] = sum(rarity * times * GAIN / (times + norm) for rarity, times in parts if times)
    best = sorted(scores, key=lambda key: (-scores[key], key))[:_TITLES]
    return {key: scores[key] for key in best}
