"""Agents that keep sessions in databases and rewritten files: whole made-up homes against what the archive must hold.

After a deliberate change, `BACKSTORY_UPDATE_GOLDEN=1 pytest tests/sources/test_stores_golden.py` writes them anew; read
the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from made_up_homes import Home, golden
from store_files import AGENTS, GOLDEN, STORES

pytestmark = pytest.mark.usefixtures("utc")


@pytest.mark.parametrize("agent", AGENTS)
class TestGolden:
    def test_a_home_is_read_as_written_down(self, agent: str, tmp_path: Path) -> None:
        """A sync of a home gives exactly what was written down for it, without an error, and then has nothing to do."""
        home = Home(agent, tmp_path / "home")
        report = home.library.sync()
        assert report.errors == 0
        if os.environ.get("BACKSTORY_UPDATE_GOLDEN"):
            (STORES / agent / GOLDEN).write_text(home.show(), "utf-8")
        assert home.show() == golden(agent)
        assert home.library.sync().files == 0
        self.read_again(home)
        assert home.show() == golden(agent)

    def read_again(self, home: Home) -> None:
        """Files that are touched, or replaced by a copy of themselves, are read again and give the same."""
        for path in home.folder.rglob("*"):
            if path.is_file() and ".backstory" not in path.parts[:-3]:
                copy = path.with_name(path.name + ".copy")
                copy.write_bytes(path.read_bytes())
                copy.replace(path)
        report = home.library.sync()
        assert (report.events, report.errors) == (0, 0)
