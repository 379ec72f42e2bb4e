"""Agents that keep sessions in databases and rewritten files: whole made-up homes against what the archive must hold.

After a deliberate change, `BACKSTORY_UPDATE_GOLDEN=1 pytest tests/sources/test_stores_golden.py` writes them anew; read
the difference.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_up_homes import AGENTS, GOLDEN, STORES, Home, statements

_LISTS = ("messages", "history", "chatHistory", "chat_messages", "requests")


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Aider writes local times."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def golden(agent: str) -> str:
    return (STORES / agent / GOLDEN).read_text("utf-8")


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

    def test_what_is_read_again_changes_nothing(self, agent: str, tmp_path: Path) -> None:
        """Files that are touched, or replaced by a copy of themselves, are read again and give the same."""
        home = Home(agent, tmp_path / "home")
        home.library.sync()
        for path in home.folder.rglob("*"):
            if path.is_file() and ".backstory" not in path.parts[:-3]:
                copy = path.with_name(path.name + ".copy")
                copy.write_bytes(path.read_bytes())
                copy.replace(path)
        report = home.library.sync()
        assert (report.events, report.errors) == (0, 0)
        assert home.show() == golden(agent)


@pytest.mark.parametrize("agent", ["goose", "hermes", "openclaw"])
class TestGrowingDatabase:
    def test_rows_that_come_one_by_one(self, agent: str, tmp_path: Path) -> None:
        """A database that grows between syncs ends in the same archive as one that is read whole."""
        home = Home(agent, tmp_path / "home", filled=False)
        for path in home.paths():
            if path.suffix != ".sql":
                home.write(path)
                continue
            target = (home.folder / path).with_suffix("")
            target.parent.mkdir(parents=True, exist_ok=True)
            for statement in statements((home.made_up / path).read_text("utf-8")):
                with sqlite3.connect(target) as database:
                    database.execute(statement)
                database.close()
                home.library.sync()
        assert home.show() == golden(agent)


@pytest.mark.parametrize("agent", ["cline", "continue", "auggie", "amp", "claude-ai", "copilot-chat", "roo-code"])
class TestRewrittenDocument:
    def test_documents_that_grow_message_by_message(self, agent: str, tmp_path: Path) -> None:
        """A document that is rewritten with each message ends in the same archive as one that is read whole."""
        home = Home(agent, tmp_path / "home")
        for path in home.paths():
            target = home.folder / path
            document = json.loads(target.read_text("utf-8")) if path.suffix == ".json" else None
            for entries, cut in _growing(document):
                rest, entries[cut:] = entries[cut:], []
                target.write_text(json.dumps(document))
                home.library.sync()
                entries += rest
            home.write(path)
        home.library.sync()
        assert home.show() == golden(agent)


def _growing(document: object) -> Iterator[tuple[list[object], int]]:
    """The list of messages in a document, and the numbers of those that are there as it grows."""
    entries = document if isinstance(document, list) else None
    if isinstance(document, dict):
        entries = next((document[name] for name in _LISTS if isinstance(document.get(name), list)), None)
    for cut in range(1, len(entries or ())):
        assert entries is not None
        yield entries, cut
