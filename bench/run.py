"""The numbers of docs/performance.md, with peers side by side: `python -m bench.run --events 100000`.

Everything runs on this machine, from one seed, in a folder that is removed afterwards (or kept with --keep FOLDER).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench import ingest, searching, startup
from bench.report import Report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--queries", type=int, default=700)
    parser.add_argument("--sessions", type=int, default=100_000, help="sessions to list from")
    parser.add_argument("--megabytes", type=int, default=None, help="transcripts to ingest (default: by --events)")
    parser.add_argument("--keep", type=Path, help="keep the archive in this folder and use it again")
    parser.add_argument("--no-peers", action="store_true", help="skip SQLite FTS5 and bm25s")
    options = parser.parse_args()

    folder = options.keep or Path(tempfile.mkdtemp(prefix="backstory-bench-"))
    megabytes = options.megabytes or (400 if options.events >= 1_000_000 else 100)
    report = Report(f"{options.events:,} events, Python {sys.version.split()[0]}")
    started = time.perf_counter()
    try:
        home = folder / f"archive-{options.events}"
        if not (home / "archive.db").exists():
            searching.build(report, home, options.events)
        searching.measure(report, home, options.events, options.queries)
        if not options.no_peers:
            searching.compare(report, folder, home, options.events, options.queries)
        searching.measure_while_writing(report, home, options.events, options.queries)
        searching.measure_listing(report, folder / "listing", options.sessions)
        startup.measure(report, home)
        ingest.measure(report, folder / "ingest", megabytes)
        ingest.measure_unchanged(report, folder / "unchanged", 1_000)
        ingest.measure_freshness(report, folder / "fresh")
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report.show(time.perf_counter() - started)
    return 0 if report.met else 1


if __name__ == "__main__":
    sys.exit(main())
