"""Reading transcripts: how fast, in how much memory, how soon they are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from backstory.library import Library
from bench.report import Report, percentile
from bench.transcripts import write_claude_home
from tests.ingest.opencode_writer import OpenCode

_SYNC = """
import json, os, sys
from pathlib import Path
from backstory.library import Library
with Library(Path(sys.argv[1]), agents_home=Path(sys.argv[2]), environ={}) as library:
    report = library.sync()
# The last of the times is that on the clock.
done = {"bytes": report.bytes, "seconds": report.seconds, "events": report.events, "processor": sum(os.times()[:4])}
print(json.dumps(done))
"""
_SAMPLE_SECONDS = 0.1
_APPENDS = 40


def measure(report: Report, folder: Path, megabytes: int) -> None:
    write_claude_home(folder / "home", megabytes=megabytes)
    done = sync(folder)
    report.at_least(f"ingest {megabytes} MB", done["bytes"] / 1e6 / done["seconds"], 30, "MB/s")
    report.note(
        "ingest", f"{done['events'] / done['seconds']:,.0f} events/s, {done['processor']:.1f} s of processor time"
    )
    report.at_most("ingest, peak memory of both processes (PSS)", done["peak"], 300, "MB")
    report.at_most("ingest, peak memory of both processes without mapped files", done["own"], 300, "MB")


def measure_unchanged(report: Report, folder: Path, files: int) -> None:
    _write_small_files(folder / "home", files)
    sync(folder)
    with Library(folder / "backstory", agents_home=folder / "home", environ={}) as library:
        started = time.perf_counter()
        again = library.sync()
        report.at_most(f"sync of {files:,} unchanged files", (time.perf_counter() - started) * 1000, 300)
    assert again.bytes == 0


def _write_small_files(home: Path, files: int) -> None:
    """As many transcripts as asked for, in forty projects; how large they are does not matter when nothing changed."""
    for number in range(files):
        project = home / ".claude" / "projects" / f"-home-dev-project{number % 40}"
        project.mkdir(parents=True, exist_ok=True)
        session = f"00000000-0000-4000-8000-{number:012d}"
        record = {
            "type": "user",
            "uuid": f"{number:08d}-0000-4000-8000-000000000000",
            "sessionId": session,
            "timestamp": "2026-01-02T03:04:05.678Z",
            "cwd": f"/home/dev/project{number % 40}",
            "message": {"role": "user", "content": f"what about number {number}?"},
        }
        (project / f"{session}.jsonl").write_text(json.dumps(record) + "\n")


def measure_freshness(report: Report, folder: Path) -> None:
    """A line is appended to a transcript, or a message added to an open database; how long until another process finds
    it, while `backstory watch` runs."""
    write_claude_home(folder / "home", sessions=3)
    path = next((folder / "home").rglob("*.jsonl"))
    template = next(json.loads(line) for line in path.open() if '"type":"user"' in line.replace(" ", ""))
    agent = OpenCode(folder / "home/.local/share/opencode/opencode.db")
    agent.session("ses_1")

    def append(number: int, text: str) -> None:
        message = {"role": "user", "content": text}
        record = {**template, "uuid": f"fresh-{number}", "message": message, "isMeta": False}
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def insert(number: int, text: str) -> None:
        agent.prompt("ses_1", number, text)

    environ = {**os.environ, "HOME": str(folder / "home"), "BACKSTORY_HOME": str(folder / "backstory")}
    watcher = subprocess.Popen(
        [sys.executable, "-m", "backstory", "watch"], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with Library(folder / "backstory", environ={}) as library:
            while library.archive.sync_state().first_finished_at is None:
                time.sleep(0.1)
            time.sleep(1)
            lines = [_write_and_find(library, append, number, "line") for number in range(_APPENDS)]
            rows = [_write_and_find(library, insert, number, "row") for number in range(_APPENDS)]
    finally:
        watcher.terminate()
        watcher.wait()
        agent.close()
    report.at_most("appended line found by another process, P95", percentile(lines, 0.95), 1000)
    report.at_most("message in a database found by another process, P95", percentile(rows, 0.95), 2000)


def _write_and_find(library: Library, write: Callable[[int, str], None], number: int, kind: str) -> float:
    word = f"fresh{kind}{number}"
    write(number, f"please remember {word}")
    started = time.perf_counter()
    while not library.search(word)["data"]["results"]:
        if time.perf_counter() - started > 10:
            break
        time.sleep(0.01)
    return (time.perf_counter() - started) * 1000


def sync(folder: Path) -> dict[str, float]:
    """Read a home by a process of its own: events, bytes, seconds, the processor seconds of that process and of the one
    that it starts, and the peaks of their memory together in MB: all of it, and their own without the files that are
    mapped (the index, while parts of it are merged), which the system takes back when it needs the memory."""
    command = [sys.executable, "-c", _SYNC, str(folder / "backstory"), str(folder / "home")]
    peak = own = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while process.poll() is None:
            memory = [_memory_of(pid) for pid in (process.pid, *_children_of(process.pid))]
            peak, own = max(peak, sum(all for all, _ in memory)), max(own, sum(own for _, own in memory))
            time.sleep(_SAMPLE_SECONDS)
        done: dict[str, float] = json.load(process.stdout)
    return {**done, "peak": peak, "own": own}


def _memory_of(pid: int) -> tuple[float, float]:
    """The proportional set size in MB, in which memory that processes share counts once, and the part of it that is no
    mapped file."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended
        return 0.0, 0.0
    sizes = {name: int(size) / 1024 for name, size, *_ in (line.split() for line in lines[1:])}
    return sizes["Pss:"], sizes["Pss_Anon:"]


def _children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
