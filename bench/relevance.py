"""Relevance of search: `python -m bench.relevance` asks for sessions that are known to hold the answer.

The questions are made from the transcripts, so that the set grows with the corpus and nothing is tuned to one list:
subjects of commits that a session made, a first prompt with words dropped and reordered, an error message with its
numbers changed, a file by the tail of its path, and the known items of the corpus. A question is answered by the
session it was made from, and by any other one that holds the same commit, prompt, error or path.

The table shows, per kind of question, the share of questions whose session is the first, and among the first 5, 10 and
50 different sessions of the answer, the mean reciprocal rank and nDCG@10. `--ablate` repeats it with each part of the
ranking switched off.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import random
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from backstory.archive import ranking
from backstory.library import Library
from backstory.model import EVENT_TYPES, EventType, SessionRef, parse_id, rfc3339

CORPUS = Path(__file__).parents[2] / "shared" / "corpus"
_HITS = 50
_SEED = 7
_MAX_PER_KIND = 150
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
_EVER = (rfc3339(978_307_200_000), rfc3339(4_102_444_799_000))
_COMMIT = re.compile(
    r"""git\s+commit\b[^\n]*?-m\s+(?:"([^"$`\\\n]{12,120})|'([^'\n]{12,120})|"\$\(cat <<'?EOF'?\n([^\n]{12,120}))"""
)
_ERROR = re.compile(r"^.*?\b(?:\w*Error|\w*Exception|error|fatal|FAIL(?:ED)?|panic)\b.{15,160}$", re.MULTILINE)
_NUMBER = re.compile(r"\d+")
_PATH = re.compile(r"(?:/[\w.-]+){3,}\.\w{1,5}\b")
_WORD = re.compile(r"\w[\w'-]*")


class Question(Struct, frozen=True):
    """A query and the keys of the sessions that answer it."""

    kind: str
    query: str
    answers: frozenset[str]


class Seen(Struct):
    """The texts of one session that questions are made from."""

    key: str
    prompt: str
    commits: list[str]
    errors: list[str]
    paths: list[str]


def read_sessions(library: Library) -> Iterator[Seen]:
    """All sessions of an archive, through the tools."""
    cursor: dict[str, str] = {}
    while True:
        page = library.sessions(*_EVER, limit=50, **cursor)["data"]
        for session in page["sessions"]:
            yield _read(library, session["id"])
        if not page.get("next_cursor"):
            return
        cursor = {"cursor": page["next_cursor"]}


def _read(library: Library, session_id: str) -> Seen:
    ref = parse_id(session_id)
    assert isinstance(ref, SessionRef)
    seen = Seen(ref.key, "", [], [], [])
    for turn in library.open(session_id)["data"]["turns"]:
        for event in library.read_turn(turn["id"], EVENT_TYPES):
            text, kind = _text(event.content), event.event.type
            if kind == EventType.USER_INPUT and not seen.prompt:
                seen.prompt = text
            elif kind == EventType.TOOL_CALL:
                seen.commits += [next(filter(None, match.groups())).strip() for match in _COMMIT.finditer(text)]
                seen.paths += _PATH.findall(text)
            elif kind == EventType.TOOL_RESPONSE:
                seen.errors += [line.strip() for line in _ERROR.findall(text)[:3]]
    return seen


def _text(content: Any) -> str:
    """The text of an event; of a tool call the strings among its arguments."""
    arguments = getattr(content, "arguments", None)
    if isinstance(arguments, dict):
        return "\n".join(value for value in arguments.values() if isinstance(value, str))
    return str(getattr(content, "text", "") or "")


def questions(sessions: Sequence[Seen], known_items: Path) -> list[Question]:
    """Questions of every kind, the same ones for the same sessions."""
    chance = random.Random(_SEED)
    made = [
        *_shared("commit subject", sessions, lambda seen: seen.commits, lambda subject: subject),
        *_prompts(sessions, chance),
        *_shared("error, other numbers", sessions, lambda seen: seen.errors, lambda line: _renumber(line, chance)),
        *_shared(
            "path by its tail", sessions, lambda seen: seen.paths, lambda path: "/".join(PurePosixPath(path).parts[-2:])
        ),
    ]
    by_kind: dict[str, list[Question]] = defaultdict(list)
    for question in made:
        by_kind[question.kind].append(question)
    for group in by_kind.values():
        chance.shuffle(group)
        del group[_MAX_PER_KIND:]
    return [*_known(sessions, known_items), *(question for group in by_kind.values() for question in group)]


def _shared(
    kind: str, sessions: Sequence[Seen], texts: Callable[[Seen], Iterable[str]], ask: Callable[[str], str]
) -> Iterator[Question]:
    """A question for every text that at most three sessions hold."""
    holders: dict[str, set[str]] = defaultdict(set)
    for seen in sessions:
        for text in texts(seen):
            holders[text].add(seen.key)
    for text, keys in holders.items():
        if len(keys) <= 3:
            yield Question(kind, ask(text), frozenset(keys))


def _prompts(sessions: Sequence[Seen], chance: random.Random) -> Iterator[Question]:
    """A first prompt as somebody remembers it: half of its words, in another order."""
    for seen in sessions:
        words = list(dict.fromkeys(_WORD.findall(seen.prompt[:600])))
        if len(words) >= 6:
            kept = chance.sample(words, min(10, len(words) // 2))
            same = frozenset(other.key for other in sessions if other.prompt == seen.prompt)
            yield Question("prompt, half its words", " ".join(kept), same)


def _renumber(line: str, chance: random.Random) -> str:
    return _NUMBER.sub(lambda match: "".join(chance.choice("0123456789") for _ in match[0]), line)


def _known(sessions: Sequence[Seen], path: Path) -> Iterator[Question]:
    by_native = {seen.key.partition("/")[2]: seen.key for seen in sessions}
    if not path.exists():
        return
    for line in path.read_text("utf-8").splitlines():
        item = json.loads(line)
        keys = frozenset(by_native[native] for native in item["sessions"] if native in by_native)
        if keys:
            yield Question("known item", item["query"], keys)


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
            digest = hashlib.sha256(repr(asked).encode()).hexdigest()[:8]
            table = evaluate(library, asked)
            show(f"{len(sessions)} sessions, {len(asked)} questions ({digest})", table)
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
