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
import json, resource, sys
from pathlib import Path
from backstory.library import Library
with Library(Path(sys.argv[1]), agents_home=Path(sys.argv[2]), environ={}) as library:
    report = library.sync()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"bytes": report.bytes, "seconds": report.seconds, "events": report.events, "peak": peak}))
"""
_APPENDS = 40


def measure(report: Report, folder: Path, megabytes: int) -> None:
    write_claude_home(folder / "home", megabytes=megabytes)
    done = _sync(folder)
    report.at_least(f"ingest {megabytes} MB", done["bytes"] / 1e6 / done["seconds"], 30, "MB/s")
    report.note("ingest", f"{done['events'] / done['seconds']:,.0f} events/s")
    report.at_most("ingest, peak memory", done["peak"], 500, "MB")


def measure_unchanged(report: Report, folder: Path, files: int) -> None:
    write_claude_home(folder / "home", sessions=files)
    _sync(folder)
    with Library(folder / "backstory", agents_home=folder / "home", environ={}) as library:
        started = time.perf_counter()
        again = library.sync()
        report.at_most(f"sync of {files:,} unchanged files", (time.perf_counter() - started) * 1000, 300)
    assert again.bytes == 0


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


def _sync(folder: Path) -> dict[str, float]:
    command = [sys.executable, "-c", _SYNC, str(folder / "backstory"), str(folder / "home")]
    done: dict[str, float] = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return done
