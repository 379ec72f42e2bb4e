"""Latency of the capsule tools with many capsules in the store: `python bench/capsules.py [COUNT]`.

Every call goes through the tool's handler, from raw arguments to the encoded reply, as an agent's call does.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from backstory.config import CapsuleSettings
from backstory.toolsets.base import Tool
from backstory.toolsets.capsules.capsule import Capsule, with_text
from backstory.toolsets.capsules.sections import SECTIONS
from backstory.toolsets.capsules.store import Store
from backstory.toolsets.capsules.tools import toolset

ROUNDS = 300
# Per tool: the target for the 95th percentile, in milliseconds.
TARGETS = {"store": 5.0, "replace": 5.0, "fetch": 5.0, "latest": 20.0, "list": 20.0, "inventory": 20.0, "search": 20.0}


class Writing:
    """Text of about 350 words out of 50,000, frequent ones and rare ones as in real language."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        syllables = [f"{first}{second}" for first in "bdfgklmnprstvz" for second in ("a", "eri", "olu", "ix", "ant")]
        pairs = [f"{one}{two}" for one, two in itertools.product(syllables, syllables)]
        self.words = syllables + pairs + [f"{pair}{syllable}" for syllable in syllables[:10] for pair in pairs]
        self.weights = list(itertools.accumulate(1 / rank for rank in range(1, len(self.words) + 1)))

    def sentence(self, length: int) -> str:
        return " ".join(self.random.choices(self.words, cum_weights=self.weights, k=length))

    def question(self, length: int) -> str:
        """Words of a capsule that are not in every sentence."""
        common = set(self.words[:200])
        return " ".join([word for word in self.sentence(40 * length).split() if word not in common][:length])

    def capsule(self) -> str:
        return "\n\n".join(f"## {section}\n{self.sentence(60)}" for section in SECTIONS)


def fill(home: Path, count: int, writing: Writing) -> list[str]:
    store = Store(home)
    ids: list[str] = []
    for start in range(0, count, 1000):
        with store.writing() as writer:
            for number in range(start, min(start + 1000, count)):
                capsule = Capsule(
                    workspace=f"Project {number % 40}" if number % 4 else "default",
                    name=f"task-{number}",
                    title=writing.sentence(4),
                    tags=(f"tag-{number % 25}", "handoff"),
                    source="bench",
                )
                ids.append(writer.create(with_text(capsule, writing.capsule())).id)
    store.close()
    return ids


def cases(ids: list[str], writing: Writing) -> Iterator[tuple[str, str, str, Callable[[], dict[str, Any]]]]:
    """Label, target, tool, and the maker of the arguments of one call."""
    pick = writing.random
    yield "store", "store", "moss.store", lambda: {"capsule_text": writing.capsule(), "name": f"new {pick.random()}"}
    yield (
        "store, replace",
        "replace",
        "moss.store",
        lambda: {"capsule_text": writing.capsule(), "name": f"task-{pick.randrange(0, 400, 4)}", "mode": "replace"},
    )
    yield "fetch by id", "fetch", "moss.fetch", lambda: {"id": pick.choice(ids)}
    yield "fetch by name", "fetch", "moss.fetch", lambda: {"name": f"task-{pick.randrange(0, len(ids), 4)}"}
    yield "latest", "latest", "moss.latest", lambda: {"workspace": f"project {pick.randrange(1, 40)}"}
    yield "list, large workspace", "list", "moss.list", lambda: {"limit": 100}
    yield "list, last page", "list", "moss.list", lambda: {"offset": len(ids) // 4 - 50}
    yield "inventory", "inventory", "moss.inventory", dict
    yield "inventory by tag", "inventory", "moss.inventory", lambda: {"tag": f"tag-{pick.randrange(25)}"}
    yield "inventory by name", "inventory", "moss.inventory", lambda: {"name_prefix": f"task-{pick.randrange(99)}"}
    yield "search, a rare word", "search", "moss.search", lambda: {"query": pick.choice(writing.words[5000:])}
    yield "search, three words", "search", "moss.search", lambda: {"query": writing.question(3)}
    yield (
        "search, a workspace",
        "search",
        "moss.search",
        lambda: {"query": writing.question(2), "workspace": "project 7"},
    )
    yield "search, a name", "search", "moss.search", lambda: {"query": f"task-{pick.randrange(len(ids))}"}
    yield "search, in every one", "search", "moss.search", lambda: {"query": "decisions"}


def measure(tool: Tool, arguments: Callable[[], dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Wall-clock and CPU milliseconds of each call: on a busy machine the first say little."""
    passed, worked = [], []
    for _ in range(ROUNDS):
        given = arguments()
        start, work = time.perf_counter(), time.process_time()
        reply = tool.handler(given)
        worked.append((time.process_time() - work) * 1000)
        passed.append((time.perf_counter() - start) * 1000)
        if reply.is_error:
            raise SystemExit(f"{tool.name}: {reply.text}")
    return passed, worked


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def main(count: int) -> None:
    writing = Writing(seed=7)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        start = time.perf_counter()
        ids = fill(home, count, writing)
        size = (home / "capsules.db").stat().st_size
        print(f"{count} capsules, {size / 1e6:.0f} MB, filled in {time.perf_counter() - start:.0f} s\n")
        print(f"{'':24}{'P50 ms':>9}{'P95 ms':>9}{'max ms':>9}{'target':>9}{'CPU P95':>9}")
        tools = {tool.name: tool for tool in toolset(home, CapsuleSettings()).tools}
        for label, target, name, arguments in cases(ids, writing):
            passed, worked = measure(tools[name], arguments)
            verdict = "" if p95(passed) <= TARGETS[target] else "  missed"
            print(
                f"{label:24}{statistics.median(passed):9.2f}{p95(passed):9.2f}{max(passed):9.2f}{TARGETS[target]:9.0f}"
                f"{p95(worked):9.2f}{verdict}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
