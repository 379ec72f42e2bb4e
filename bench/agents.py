"""Reading the transcripts of each agent, in processor time, and a sync of all of them with nothing new.

`python -m bench.agents [--megabytes 8] [--files 1000] [SOURCE...]` multiplies made-up transcripts: each copy has ids of
its own, and texts of about 1,000 bytes. The clock of a busy machine says little: seconds are those of all processors.

`python -m bench.agents --home HOME [--times 8]` multiplies the transcripts in JSON Lines of a home instead, and prints
the speed by the clock, for each agent alone.

`python -m bench.agents --database 1000` writes a database of OpenCode with so many megabytes of parts, and prints the
time of reading it, and of a sync after one new message.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

from backstory.ingest.reading import BrokenLine, decode_line, lines
from backstory.ingest.walk import existing_roots, walk
from backstory.library import Library
from backstory.sources import load_sources
from backstory.sources.base import Item, Source, Transcript
from tests.ingest.opencode_writer import SCHEMA, OpenCode
from tests.sources.store_files import AGENTS as STORE_AGENTS
from tests.sources.store_files import STORES, paths, put

from .homes import write_small_sessions
from .ingest import sync
from .texts import Texts

SAMPLES = Path(__file__).parents[1] / "tests/sources/agents"
_TEXT_BYTES = 1_000
_SMALL_EVENTS = 32
_UUID = re.compile(r"(?<![0-9a-f])([0-9a-f]{8}-(?:[0-9a-f]{4}-){3})([0-9a-f]{12})(?![0-9a-f])")
_ID = re.compile(r'"(?!model|provider)\w*(?:[iI]d|ID|uuid|Uuid)"\s*:\s*"([\w.-]{4,})"')
_HEX_ID = re.compile(r"[0-9a-f]{7}")
# Names that files have in the folder of every session.
_EVERYWHERE = {"conversation", "messages", "config", "meta", "wire", "state"}
_SYNC_AGAIN = """
import os, sys, time
from pathlib import Path
from backstory.library import Library
with Library(Path(sys.argv[1]), agents_home=Path(sys.argv[2]), environ={}) as library:
    before, began = sum(os.times()[:4]), time.perf_counter()
    assert library.sync().events == int(sys.argv[3])
    print((sum(os.times()[:4]) - before) * 1000, (time.perf_counter() - began) * 1000)
"""
_DAY_MS = 1_767_225_600_000
_NAMED_OTHERWISE = ("letta-code", "qoder")
# These are read where a setting names a folder, or from imported files; OpenCode has a database of its own here.
_NEED_MORE = ("aider", "chatgpt", "claude-ai", "opencode", "opencode-tree")
_SNAPSHOT = "af600ef730e32377e867d97936ae0bf1a7f722fb"


class Sample:
    """The transcripts of one agent, which are copied with other ids and longer texts."""

    def __init__(self, home: Path) -> None:
        paths = [path for path in sorted(home.rglob("*")) if path.is_file()]
        self._files = {str(path.relative_to(home)): path.read_text("utf-8") for path in paths}
        ids = {found for text in self._files.values() for found in _ID.findall(text)} - {""}
        plain = sorted((id for id in ids if not _UUID.fullmatch(id)), key=len, reverse=True)
        self._ids = (
            re.compile(rf"(?<!\w-)(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, plain))})(?![\w-])") if plain else None
        )

    def copy(self, home: Path, number: int, texts: Iterator[str]) -> tuple[int, int]:
        """The files and bytes of another copy."""
        size = 0
        for name, text in self._files.items():
            path = home / self._renamed(name, number)
            if path == home / name:
                path = _numbered(path, number)
            path.parent.mkdir(parents=True, exist_ok=True)
            size += path.write_text(self._renamed(_longer(text, name, texts), number), "utf-8")
        return len(self._files), size

    def _renamed(self, text: str, number: int) -> str:
        text = _UUID.sub(lambda found: f"{found[1]}{int(found[2], 16) ^ number << 16:012x}", text)
        return self._ids.sub(lambda found: f"{found[0]}-{number:x}", text) if self._ids else text


def _numbered(path: Path, number: int) -> Path:
    """Another path for a session that is not named by an id: it is named by its file, or else by its folder."""
    if path.stem in _EVERYWHERE:
        return path.parent.with_name(f"{path.parent.name}-{number}") / path.name
    return path.with_stem(f"{path.stem}-{number}")


def _longer(text: str, name: str, texts: Iterator[str]) -> str:
    """JSON Lines with texts as long as those of people and tools are. Torn lines stay as they are."""
    if not name.endswith(".jsonl"):
        return text
    longer = []
    for line in text.splitlines():
        with suppress(ValueError):
            line = json.dumps(_grown(json.loads(line), texts), ensure_ascii=False)
        longer.append(line + "\n")
    return "".join(longer)


def _grown(value: Any, texts: Iterator[str]) -> Any:
    match value:
        case dict():
            return {name: _grown(each, texts) for name, each in value.items()}
        case list():
            return [_grown(each, texts) for each in value]
        case str() if value.count(" ") > 1 and not value.startswith(("{", "<")):
            return f"{value} {next(texts)}"
        case _:
            return value


def _texts(seed: str, mean: int = _TEXT_BYTES) -> Iterator[str]:
    made, random = Texts(seed), Random(seed)
    source = "\n".join((made.prose(20_000), made.code(20_000)))
    while True:
        size = max(20, min(int(random.expovariate(1 / mean)), 8 * mean))
        start = random.randrange(len(source) - size)
        yield source[start : start + size]


class _PartTexts:
    """Texts of OpenCode's parts, as long on average as those of real transcripts."""

    def __init__(self, seed: str) -> None:
        self.said, self.thoughts = _texts(seed, 300), _texts(seed, 480)
        self.commands, self.outputs = _texts(seed, 600), _texts(seed, 2_400)


def _write_opencode(path: Path, size: int, texts: _PartTexts) -> int:
    """A database with sessions of some 70 parts, which have so many bytes together."""
    path.parent.mkdir(parents=True)
    written, session = 0, 0
    with closing(sqlite3.connect(path)) as database, database:
        database.executescript(SCHEMA)
        while written < size:
            session, clock = session + 1, _DAY_MS + session * 60_000
            name = f"ses_{session:08}"
            row = (name, None, "/home/dev/shop", f"Session {session}", "1.18.33", clock, clock)
            database.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            database.execute("INSERT INTO event_sequence VALUES (?, 60)", (name,))
            for number in range(16):
                message, now = f"msg_{session:08}{number:04}", clock + number * 1_000
                parts = _parts(number, now, texts)
                about = _message(number, now)
                database.execute(
                    "INSERT INTO message VALUES (?, ?, ?, ?, ?)", (message, name, now, now, json.dumps(about))
                )
                for index, part in enumerate(map(json.dumps, parts)):
                    key = f"prt_{session:08}{number:04}{index}"
                    database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)", (key, message, name, now, now, part))
                    written += len(part)
    return written


def _message(number: int, now: int) -> dict[str, Any]:
    if number % 8 == 0:
        return {"role": "user", "time": {"created": now}}
    counts = {"input": 900, "output": 40, "reasoning": 0, "cache": {"read": 100, "write": 0}}
    finish = "stop" if number % 8 == 7 else "tool-calls"
    times = {"created": now, "completed": now + 500}
    return {"role": "assistant", "modelID": "m", "providerID": "p", "tokens": counts, "finish": finish, "time": times}


def _parts(number: int, now: int, texts: _PartTexts) -> list[dict[str, Any]]:
    """The parts of a message, in the order in which OpenCode writes them."""
    said = {"type": "text", "text": next(texts.said)}
    if number % 8 == 0:
        return [said]
    times = {"start": now, "end": now + 300}
    parts: list[dict[str, Any]] = [{"type": "step-start", "snapshot": _SNAPSHOT}]
    parts += [{"type": "reasoning", "text": next(texts.thoughts), "time": times}, said]
    if number % 8 < 7:
        command, output = next(texts.commands), next(texts.outputs)
        state: dict[str, Any] = {"status": "completed", "input": {"command": command}, "output": output, "time": times}
        # The output of a command is there twice.
        state |= {"metadata": {"output": output, "exit": 0, "truncated": False}, "title": command[:80]}
        parts.append({"type": "tool", "tool": "bash", "callID": f"call_{now}", "state": state})
    about = _message(number, now)
    finish: dict[str, Any] = {"type": "step-finish", "reason": about["finish"], "snapshot": _SNAPSHOT}
    return [*parts, finish | {"tokens": about["tokens"], "cost": 0}]


def write_home(source: str, home: Path, *, size: int = 0, files: int = 0) -> tuple[int, int]:
    """A home of one agent with at least so many bytes or files; the files and bytes in it."""
    texts = _texts(source)
    if source == "opencode":
        return 1, _write_opencode(home / ".local/share/opencode/opencode.db", max(size, 1), _PartTexts(source))
    if source == "claude-code":
        sessions = files or max(1, size // (_SMALL_EVENTS * 2 * _TEXT_BYTES))
        small = write_small_sessions(home, sessions=sessions, events=_SMALL_EVENTS, event_bytes=_TEXT_BYTES)
        return small.sessions, small.bytes
    sample, count, total, number = Sample(SAMPLES / source / "home"), 0, 0, 0
    while count < files or total < size:
        number += 1
        more, grown = sample.copy(home, number, texts)
        count, total = count + more, total + grown
    return count, total


def sources() -> list[str]:
    """The agents with a sample that can be multiplied; Letta Code and Qoder name sessions by other means than ids."""
    samples = sorted(path.name for path in SAMPLES.iterdir() if (path / "home").is_dir())
    return ["claude-code", "opencode", *(name for name in samples if name not in _NAMED_OTHERWISE)]


def measure_parsing(home: Path, name: str) -> float:
    """The processor seconds that the source alone takes for a home."""
    (source,) = load_sources([name])
    began = time.process_time()
    for root in existing_roots(source, home, {}, ()):
        for seen in walk(source, root):
            for _ in _items(source, seen.path):
                pass
    return time.process_time() - began


def _items(source: Source, path: Path) -> Iterator[Item]:
    stored = source.sessions(path)
    if stored is not None:
        for session in stored:
            transcript = Transcript(source=source.name, path=path, session=session.session)
            yield from _parsed(source, transcript, source.changes(path, session.session, None))
        return
    found = source.describe(path, b"" if path.is_dir() else path.read_bytes()[:65_536])
    if found is not None:
        yield from _parsed(source, found, source.records(path) or _decoded(source, path))


def _parsed(source: Source, transcript: Transcript, records: Iterator[Any]) -> Iterator[Item]:
    parser = source.parser(transcript, None, lambda session: frozenset())
    for record in records:
        yield from parser.parse(record)
    yield from parser.finish()


def _decoded(source: Source, path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        for _, line in lines(file, 0):
            if not source.skips(line):
                try:
                    yield from decode_line(line)
                except BrokenLine as broken:
                    yield from broken.records


def measure_reading(folder: Path, source: str, megabytes: float) -> str:
    """A line of the table. The time of starting is left out."""
    (folder / "home").mkdir(parents=True)
    idle = sync(folder)["processor"]
    files, size = write_home(source, folder / "home", size=int(megabytes * 1e6))
    done = sync(folder)
    spent, events = done["processor"] - idle, max(done["events"], 1)
    alone = min(measure_parsing(folder / "home", source) for _ in range(2))
    amounts = (f"{files:,}", f"{size / 1e6:.1f}", f"{events:,.0f}", f"{size / events:,.0f}")
    speeds = (f"{size / 1e6 / spent:.1f}", f"{spent / events * 1e6:.0f}", f"{alone / events * 1e6:.0f}")
    return f"| {' | '.join((source, *amounts, *speeds))} |"


def measure_unchanged(folder: Path, files: int) -> str:
    """A sentence: a home with every agent that there is a sample of, and the made-up homes of those with stores."""
    home = folder / "home"
    once = [*(SAMPLES / name / "home" for name in _NAMED_OTHERWISE)]
    once += [STORES / agent for agent in STORE_AGENTS if agent not in _NEED_MORE]
    for made_up in once:
        for path in paths(made_up):
            put(made_up, path, home)
    total = sum(path.is_file() for path in home.rglob("*"))
    names = sources()
    for number, source in enumerate(names):
        share = (files - total) // (len(names) - number)
        total += write_home(source, home, files=share)[0]
    sync(folder)
    with Library(folder / "backstory", agents_home=home, environ={}) as library:
        agents = len(library.archive.counts().by_source)
    spent, took = map(min, zip(*(_sync_again(folder, 0) for _ in range(5)), strict=True))
    counted = f"{total:,} files of {agents} agents"
    return f"Nothing new in {counted}: {spent:.0f} ms of processor time, {took:.0f} ms by the clock"


def _sync_again(folder: Path, events: int) -> tuple[float, float]:
    """Milliseconds of a sync that finds so many events, without its start: of processors, and by the clock."""
    command = [sys.executable, "-c", _SYNC_AGAIN, str(folder / "backstory"), str(folder / "home"), str(events)]
    spent, took = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(spent), float(took)


def measure_database(folder: Path, megabytes: float) -> Iterator[str]:
    """Sentences: a large database as a whole, and one new message in it."""
    path = folder / "home/.local/share/opencode/opencode.db"
    size = _write_opencode(path, int(megabytes * 1e6), _PartTexts("opencode"))
    done = sync(folder)
    yield f"{size / 1e6:,.0f} MB of parts: {size / 1e6 / done['seconds']:.1f} MB/s, {done['peak']:.0f} MB of memory"
    with closing(OpenCode(path)) as agent:
        for number in range(1, 6):
            agent.prompt("ses_00000001", 9_000 + number, "one more question")
            spent, took = _sync_again(folder, 1)
            yield f"One new message: {spent:.0f} ms of processor time, {took:.0f} ms by the clock"


def multiply(home: Path, into: Path, times: int) -> int:
    """Copy the JSON Lines of a home, each time with other ids; the bytes that were written."""
    size = 0
    for number in range(times):

        def renamed(text: str, number: int = number) -> str:
            if not number:
                return text
            text = _UUID.sub(lambda found: f"{int(found[1][:8], 16) ^ number:08x}{found[1][8:]}{found[2]}", text)
            return _ID.sub(lambda found: found[0] if _UUID.search(found[1]) else f'{found[0][:-1]}-{number}"', text)

        for path in sorted(home.rglob("*.jsonl")):
            copy = into / renamed(str(path.relative_to(home)))
            if number and _HEX_ID.search(copy.stem) and not _UUID.search(copy.stem):
                copy = _numbered(copy, number)
            copy.parent.mkdir(parents=True, exist_ok=True)
            size += copy.write_text(renamed(path.read_text("utf-8", "surrogateescape")), "utf-8", "surrogateescape")
    return size


def measure_home(home: Path, times: int) -> Iterator[str]:
    """Lines of a table: the transcripts of a home, of each agent alone."""
    for source in load_sources():
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as made:
            folder, size = Path(made), 0
            for root in existing_roots(source, home, {}):
                size += multiply(root, folder / "home" / root.relative_to(home.resolve()), times)
            if size:
                done = sync(folder)
                speeds = f"{size / 1e6 / done['seconds']:.1f} | {done['events'] / done['seconds']:,.0f}"
                yield f"| {source.name} | {size / 1e6:.0f} | {done['events']:,.0f} | {speeds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="*", default=sources())
    parser.add_argument("--megabytes", type=float, default=8)
    parser.add_argument("--files", type=int, default=1_000)
    parser.add_argument("--home", type=Path, help="multiply the transcripts of this home")
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("--database", type=float, metavar="MB", help="write a database of OpenCode of this size")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.source) - set(sources())):
        parser.error(f"there is no sample of {', '.join(unknown)}; there is one of {', '.join(sources())}")
    if asked.database:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
            for line in measure_database(Path(folder), asked.database):
                print(line, flush=True)
        return
    if asked.home:
        print("| agent | MB | events | MB per s | events per s |")
        print("|---|---|---|---|---|")
        for line in measure_home(asked.home, asked.times):
            print(line, flush=True)
        return
    print("| agent | files | MB | events | bytes per event | MB per s of processor time | µs per event | its source |")
    print("|---|---|---|---|---|---|---|---|")
    for source in asked.source:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
            print(measure_reading(Path(folder), source, asked.megabytes), flush=True)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        print("\n" + measure_unchanged(Path(folder), asked.files))


if __name__ == "__main__":
    main()
