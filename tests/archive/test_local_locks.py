"""Processes that share an archive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from backstory.archive import open_engine
from backstory.archive.base import Batch, SessionRow
from tests.archive_world import conversations

OTHER = """
import sys
from pathlib import Path
from backstory.archive import open_engine
from tests.archive_world import conversations
archive = open_engine("local", Path(sys.argv[1]))
print(len(conversations(archive)))
archive.close()
"""


def session(number: int) -> SessionRow:
    return SessionRow(key=f"claude-code/{number}", source="claude-code", folder=f"-f{number}", event_count=1, last_at=1)


class TestLocks:
    def test_nobody_takes_the_record_away(self, tmp_path: Path) -> None:
        """A process that comes and goes believes itself alone, and cleans up, only if it is."""
        archive = open_engine("local", tmp_path)
        assert conversations(archive) == []
        writer = archive.writer()
        for number in range(3):
            writer.write(Batch(sessions=[session(number)]))
            seen = subprocess.run([sys.executable, "-c", OTHER, tmp_path], capture_output=True, text=True, check=True)
            assert int(seen.stdout) == len(conversations(archive)) == number + 1
        writer.close()
        archive.close()
