"""Homes with many small sessions: what costs per file and per session shows there.

`python -m bench.homes FOLDER --sessions 30877 --events 32` writes one with a million events.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from .texts import Texts
from .transcripts import Session, transcript

_FIRST_DAY_MS = 1_767_225_600_000  # 2026-01-01
_DAYS = 180
_PROJECTS = 40
_EVENTS_PER_TURN = 8
_CALL_CHARS = 120
_SESSIONS, _EVENTS, _BYTES = 2_000, 32, 1_000
_ASKED_ABOUT = 200
_WORD = re.compile(r"[A-Za-z]{3,}")
_PATH = re.compile(r"(?:[\w.-]+/){2,}[\w.-]+\.\w+")


class SmallHome(NamedTuple):
    """The files and events that were written, and their bytes."""

    sessions: int
    events: int
    bytes: int


def write_small_sessions(
    folder: Path,
    *,
    sessions: int = _SESSIONS,
    events: int = _EVENTS,
    event_bytes: int = _BYTES,
    projects: int = _PROJECTS,
    seed: int = 0,
) -> SmallHome:
    """Write `<folder>/.claude/projects` with sessions of so many events each, whose texts have `event_bytes` bytes on
    average."""
    texts = Texts(f"small {seed}")
    random = Random(f"small {seed}")
    source = _text_of(texts, 1 << 20)
    counts: Counter[str] = Counter()
    for _ in range(sessions):
        cwd = f"/home/dev/src/project-{texts.number(projects)}"
        session = texts.uuid()
        path = folder / ".claude" / "projects" / re.sub(r"[^0-9A-Za-z-]", "-", cwd) / f"{session}.jsonl"
        clock = _FIRST_DAY_MS + texts.number(_DAYS * 86_400) * 1000
        with transcript(path, counts) as file:
            about = {"cwd": cwd, "sessionId": session}
            small = _SmallSession(file, texts, counts, about, clock, path.with_suffix(""))
            small.write_events(events, event_bytes, source, random)
    written = sum(counts[name] for name in ("prompts", "answers", "tool_calls", "tool_results"))
    return SmallHome(sessions, written, counts["bytes"])


def mixed_questions(folder: Path, count: int, *, seed: int = 0) -> list[str]:
    """Questions from the texts of a home: two words, six words in a row, eight words and a path, in turn."""
    random = Random(f"mixed {seed}")
    files = sorted(folder.rglob("*.jsonl"))
    texts = [text for path in random.sample(files, min(_ASKED_ABOUT, len(files))) for text in _texts_of(path)]
    words = [found for text in texts if len(found := _WORD.findall(text)) > 8]
    paths = [path for text in texts for path in _PATH.findall(text)]

    def in_a_row() -> list[str]:
        some = random.choice(words)
        start = random.randrange(len(some) - 6)
        return some[start : start + 6]

    kinds = (
        lambda: random.sample(random.choice(words), 2),
        in_a_row,
        lambda: random.sample(random.choice(words), 8),
        lambda: [random.choice(paths)],
    )
    return [" ".join(kinds[number % len(kinds)]()) for number in range(count)]


def _texts_of(path: Path) -> Iterator[str]:
    for line in path.read_text("utf-8").splitlines():
        content = json.loads(line).get("message", {}).get("content", "")
        blocks = [{"text": content}] if isinstance(content, str) else content
        yield from (text for block in blocks if isinstance(text := block.get("text") or block.get("content"), str))


class _SmallSession(Session):
    def write_events(self, count: int, chars: int, source: str, random: Random) -> None:
        """Turns of a prompt, calls with their results, and an answer."""

        def text() -> str:
            size = max(20, min(int(random.expovariate(1 / chars)), 8 * chars))
            start = random.randrange(len(source) - size)
            return source[start : start + size]

        left = count
        while left > 0:
            self._user({"role": "user", "content": text()[: 2 * chars]}, permissionMode="acceptEdits")
            self._counts["prompts"] += 1
            for _ in range(min(_EVENTS_PER_TURN, left) // 2 - 1):
                call = f"toolu_01{self._texts.hex(22)}"
                command = {"command": text()[:_CALL_CHARS], "description": "a step"}
                self._message([{"type": "tool_use", "id": call, "name": "Bash", "input": command}], stop_reason=None)
                block = {"tool_use_id": call, "type": "tool_result", "content": text(), "is_error": False}
                self._user({"role": "user", "content": [block]})
                self._counts["tool_results"] += 1
            self._message([{"type": "text", "text": text()}], stop_reason="end_turn")
            left -= _EVENTS_PER_TURN
        self._date()


def _text_of(texts: Texts, chars: int) -> str:
    parts: list[str] = []
    size = 0
    while size < chars:
        texts.new_topic()
        parts.append(texts.any())
        size += len(parts[-1]) + 1
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sessions", type=int, default=_SESSIONS)
    parser.add_argument("--events", type=int, default=_EVENTS, help="events in each session")
    parser.add_argument("--bytes", type=int, default=_BYTES, help="bytes of text in each event, on average")
    options = parser.parse_args()
    home = write_small_sessions(
        options.folder, sessions=options.sessions, events=options.events, event_bytes=options.bytes
    )
    print(f"{home.sessions:,} sessions, {home.events:,} events, {home.bytes / 1e6:,.0f} MB")


if __name__ == "__main__":
    main()
