"""What a person waits for: the command line from a cold process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import Report, percentile

_RUNS = 11


def measure(report: Report, home: Path) -> None:
    search = _run(home, "search", "schema", "migration", "failed")
    report.at_most("`backstory search`, cold process", percentile(search, 0.5), 250)
    report.at_most("`backstory --help`", percentile(_run(home, "--help"), 0.5), 120)


def _run(home: Path, *arguments: str) -> list[float]:
    with tempfile.TemporaryDirectory() as empty:
        environ = {**os.environ, "BACKSTORY_HOME": str(home), "HOME": empty}
        latencies = []
        for _ in range(_RUNS):
            started = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "backstory", *arguments], env=environ, capture_output=True, check=True
            )
            latencies.append((time.perf_counter() - started) * 1000)
    return latencies
