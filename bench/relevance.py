"""Relevance of search: `python -m bench.relevance` asks for sessions that are known to hold the answer.

The questions are made from the transcripts, so that the set grows with the corpus and nothing is tuned to one list:
subjects of commits that a session made, a first prompt with words dropped and reordered, an error message with its
numbers changed, a file by the tail of its path, and the known items of the corpus. A question is answered by the
session it was made from, and by any other one that holds the same commit, prompt, error or path. A second table is of
questions that no weight was chosen by (`bench/questions.py`).

The table shows, per kind of question, the share of questions whose session is the first, and among the first 5, 10 and
50 different sessions of the answer, the mean reciprocal rank and nDCG@10. `--ablate` repeats it with each part of the
ranking switched off.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from backstory.archive import ranking
from backstory.library import Library
from backstory.model import EVENT_TYPES, EventType, SessionRef, parse_id
from bench.questions import Question, held_out, questions, read_sessions

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
_HITS = 50
_ABLATIONS: dict[str, dict[str, Any]] = {
    "weights by type": {"types": dict.fromkeys(EVENT_TYPES, 1.0)},
    "error messages": {"output_in_errors": ranking.WEIGHTS.types[EventType.TOOL_RESPONSE], "number": 1.0},
    "other events of the session": {"events": 1},
    "turns": {"turn": 0.0},
    "titles": {"title": 0.0},
    "stems": {"stem": 0.0},
    "neighbouring words": {"adjacent": 0.0},
    "room for other sessions": {"repeated": 1.0},
    "age": {"recent": ((1, 1.0),)},
}


class Scores(Struct):
    """Ranks of the first right session, 0 where it was not found, and the seconds the searches took."""

    ranks: list[int]
    gains: list[float]
    seconds: list[float]

    def at(self, depth: int) -> float:
        return sum(0 < rank <= depth for rank in self.ranks) / len(self.ranks)

    @property
    def mrr(self) -> float:
        return sum(1 / rank for rank in self.ranks if rank) / len(self.ranks)

    @property
    def ndcg(self) -> float:
        return sum(self.gains) / len(self.gains)


def ask(library: Library, question: Question, scores: Scores) -> None:
    started = time.perf_counter()
    answer = library.search(question.query, n_hits=_HITS)
    scores.seconds.append(time.perf_counter() - started)
    found = dict.fromkeys(_key(hit["session"]["id"]) for hit in answer["data"]["results"])
    order = list(found)
    ranks = [order.index(key) + 1 for key in question.answers if key in found]
    scores.ranks.append(min(ranks, default=0))
    best = sum(1 / math.log2(1 + rank) for rank in range(1, 1 + min(len(question.answers), 10)))
    scores.gains.append(sum(1 / math.log2(1 + rank) for rank in ranks if rank <= 10) / best)


def _key(id: str) -> str:
    ref = parse_id(id)
    assert isinstance(ref, SessionRef)
    return ref.key


def evaluate(library: Library, asked: Sequence[Question]) -> dict[str, Scores]:
    """Scores per kind of question, and of all of them."""
    by_kind: dict[str, Scores] = {}
    everything = Scores([], [], [])
    for question in asked:
        ask(library, question, by_kind.setdefault(question.kind, Scores([], [], [])))
        last = by_kind[question.kind]
        everything.ranks.append(last.ranks[-1])
        everything.gains.append(last.gains[-1])
        everything.seconds.append(last.seconds[-1])
    return {**by_kind, "all": everything}


def show(title: str, table: dict[str, Scores]) -> None:
    print(f"\n{title}\n")
    print("| question | n | hit@1 | @5 | @10 | @50 | MRR | nDCG@10 | P50 ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind, scores in table.items():
        depths = " | ".join(f"{scores.at(depth):.3f}" for depth in (1, 5, 10, 50))
        middle = sorted(scores.seconds)[len(scores.seconds) // 2] * 1000
        print(f"| {kind} | {len(scores.ranks)} | {depths} | {scores.mrr:.3f} | {scores.ndcg:.3f} | {middle:.1f} |")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents-home", type=Path, default=CORPUS / "home", help="a home with agents' transcripts")
    parser.add_argument("--archive", type=Path, help="keep the archive in this folder and use it again")
    parser.add_argument("--ablate", action="store_true", help="repeat with each part of the ranking switched off")
    parser.add_argument("--misses", action="store_true", help="list the questions whose session is not the first")
    options = parser.parse_args()
    if not options.agents_home.is_dir():
        print(f"{options.agents_home} is not there: name a home with transcripts by --agents-home", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="backstory-relevance-") as temporary:
        home = options.archive or Path(temporary)
        with Library(home, agents_home=options.agents_home, environ={"PATH": os.environ["PATH"]}) as library:
            library.sync()
            sessions = list(read_sessions(library))
            asked = questions(sessions, options.agents_home.parent / "known-items.jsonl")
            digest = hashlib.sha256(repr([question.query for question in asked]).encode()).hexdigest()[:8]
            table = evaluate(library, asked)
            show(f"{len(sessions)} sessions, {len(asked)} questions ({digest})", table)
            others = held_out(sessions)
            show(f"{len(others)} held-out questions", evaluate(library, others))
            if options.misses:
                _show_misses(asked, table)
            if options.ablate:
                show("with a part of the ranking switched off", _ablations(library, asked))
    return 0


def _ablations(library: Library, asked: Sequence[Question]) -> dict[str, Scores]:
    whole = ranking.WEIGHTS
    table = {}
    for name, change in _ABLATIONS.items():
        ranking.WEIGHTS = replace(whole, **change)
        table[f"without {name}"] = evaluate(library, asked)["all"]
    ranking.WEIGHTS = whole
    return table


def _show_misses(asked: Sequence[Question], table: dict[str, Scores]) -> None:
    for question, rank in zip(asked, table["all"].ranks, strict=True):
        if rank != 1:
            print(f"{rank:3d}  {question.kind}: {question.query}")


if __name__ == "__main__":
    sys.exit(main())
