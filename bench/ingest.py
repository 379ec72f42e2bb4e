"""Reading transcripts: how fast, in how much memory, how soon they are found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from backstory.library import Library
from bench.corpus import write_claude_home
from bench.report import Report, percentile

_SYNC = """
import json, re, resource, sys
from pathlib import Path
from backstory.library import Library
with Library(Path(sys.argv[1]), agents_home=Path(sys.argv[2]), environ={}) as library:
    report = library.sync()
# Not getrusage: its maximum is inherited from the process that started this one. For the second process that is little.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
peak += resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(json.dumps({"bytes": report.bytes, "seconds": report.seconds, "events": report.events, "peak": peak}))
"""
_APPENDS = 40


def measure(report: Report, folder: Path, megabytes: int) -> None:
    write_claude_home(folder / "home", megabytes=megabytes)
    done = sync(folder)
    report.at_least(f"ingest {megabytes} MB", done["bytes"] / 1e6 / done["seconds"], 30, "MB/s")
    report.note("ingest", f"{done['events'] / done['seconds']:,.0f} events/s")
    report.at_most("ingest, peak memory", done["peak"], 500, "MB")


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
    """A line is appended; how long until another process finds it, while `backstory watch` runs."""
    write_claude_home(folder / "home", sessions=3)
    path = next((folder / "home").rglob("*.jsonl"))
    template = next(json.loads(line) for line in path.open() if '"type":"user"' in line.replace(" ", ""))
    environ = {**os.environ, "HOME": str(folder / "home"), "BACKSTORY_HOME": str(folder / "backstory")}
    watcher = subprocess.Popen(
        [sys.executable, "-m", "backstory", "watch"], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        with Library(folder / "backstory", environ={}) as library:
            while library.archive.sync_state().first_finished_at is None:
                time.sleep(0.1)
            time.sleep(1)
            latencies = [_append_and_find(library, path, template, number) for number in range(_APPENDS)]
    finally:
        watcher.terminate()
        watcher.wait()
    report.at_most("appended line found by another process, P95", percentile(latencies, 0.95), 1000)


def _append_and_find(library: Library, path: Path, template: dict[str, object], number: int) -> float:
    word = f"freshword{number}"
    message = {"role": "user", "content": f"please remember {word}"}
    record = {**template, "uuid": f"fresh-{number}", "message": message, "isMeta": False}
    with path.open("a") as file:
        file.write(json.dumps(record) + "\n")
    started = time.perf_counter()
    while not library.search(word)["data"]["results"]:
        if time.perf_counter() - started > 10:
            break
        time.sleep(0.01)
    return (time.perf_counter() - started) * 1000


def sync(folder: Path) -> dict[str, float]:
    command = [sys.executable, "-c", _SYNC, str(folder / "backstory"), str(folder / "home")]
    done: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return done
