"""Hermes writes messages again when it compacts or branches a session: each is read once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory.library import Library
from backstory.model import EventType

_SCHEMA = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, model_config TEXT, parent_session_id TEXT,
    started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, title TEXT, cwd TEXT, git_branch TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT,
    tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, finish_reason TEXT,
    active INTEGER NOT NULL DEFAULT 1, compacted INTEGER NOT NULL DEFAULT 0);
CREATE INDEX idx_messages_session_active ON messages(session_id, active, timestamp);
"""
_SUMMARY = "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were about gardens."
_MERGED = f"[PRIOR CONTEXT]\n{{}}\n\n[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]\n\n{_SUMMARY}"
Message = dict[str, Any]


class Hermes:
    """The agent at work. Each method is one transaction, and is followed by a sync."""

    def __init__(self, folder: Path) -> None:
        path = folder / "home/.hermes/state.db"
        path.parent.mkdir(parents=True)
        self.database = sqlite3.connect(path)
        self.database.executescript(_SCHEMA)
        self.library = Library(folder / "backstory", agents_home=folder / "home", environ={})
        self.now = 1_767_323_045.0

    def close(self) -> None:
        self.library.close()
        self.database.close()

    def begin(self, session: str, **about: Any) -> None:
        row = {"id": session, "source": "cli", "model": "made-up-4", "started_at": self._tick(), **about}
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        self.database.execute(f"INSERT INTO sessions ({names}) VALUES ({marks})", (*row.values(),))

    def change(self, session: str, **about: Any) -> None:
        for name, value in about.items():
            self.database.execute(f"UPDATE sessions SET {name} = ? WHERE id = ?", (value, session))
        self.sync()

    def talk(self, session: str, *numbers: int) -> list[Message]:
        """Turns of four messages: a prompt, a call, its result, an answer."""
        said: list[Message] = []
        for number in numbers:
            call = {"id": f"call_{number}", "function": {"name": "terminal", "arguments": '{"command": "dig"}'}}
            said += [
                {"role": "user", "content": f"question {number}"},
                {"role": "assistant", "content": "I dig.", "tool_calls": json.dumps([call])},
                {"role": "tool", "content": f"hole {number} " * 100, "tool_call_id": f"call_{number}"},
                {"role": "assistant", "content": f"answer {number}", "finish_reason": "stop"},
            ]
        self._insert(session, said)
        self.sync()
        return said

    def compact(self, session: str, context: list[Message], kept: int) -> list[Message]:
        """The first three messages, a summary, and the last ones, whose outputs are shortened."""
        context = [{**each, "content": "[cut]"} if each["role"] == "tool" else each for each in context]
        first = context[-kept]
        if first["role"] == "user":
            context = [*context[:3], {**first, "content": _MERGED.format(first["content"])}, *context[1 - kept :]]
        else:
            context = [*context[:3], {"role": "user", "content": _SUMMARY}, *context[-kept:]]
        self.database.execute("UPDATE messages SET active = 0, compacted = 1 WHERE session_id = ?", (session,))
        self._insert(session, context)
        self.sync()
        return context

    def copy(self, session: str, context: list[Message]) -> None:
        self._insert(session, context)
        self.sync()

    def sync(self) -> None:
        self.database.commit()
        assert self.library.sync().errors == 0

    def turns(self, session: str) -> list[list[str]]:
        """What was said in each turn, in short."""
        archive, key = self.library.archive, f"hermes/{session}"
        found = []
        for turn in archive.turns(key):
            events = archive.events(key, turn.ordinal)
            found.append([e.text if e.type is EventType.USER_INPUT else e.type.value for e in events])
        return found

    def _insert(self, session: str, messages: list[Message]) -> None:
        for message in messages:
            row = {"session_id": session, "timestamp": self._tick(), **message}
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            self.database.execute(f"INSERT INTO messages ({names}) VALUES ({marks})", (*row.values(),))

    def _tick(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def hermes(tmp_path: Path) -> Iterator[Hermes]:
    hermes = Hermes(tmp_path)
    yield hermes
    hermes.close()


REST = ["assistant_response", "tool_call", "tool_response", "assistant_response"]


class TestCompaction:
    @pytest.mark.parametrize("kept", [1, 2, 4, 6])
    def test_in_the_session(self, hermes: Hermes, kept: int) -> None:
        """The summary is a compaction, and no message counts twice, however often the session is compacted."""
        hermes.begin("one")
        context = hermes.compact("one", hermes.talk("one", 1, 2, 3, 4), kept)
        context = hermes.compact("one", [*context, *hermes.talk("one", 5, 6)], kept)
        hermes.talk("one", 7)
        hermes.talk("one", 7)
        summarised = {4, 6}
        expected = [[f"question {n}", *REST, *["compaction"] * (n in summarised)] for n in (1, 2, 3, 4, 5, 6, 7, 7)]
        assert hermes.turns("one") == expected

    def test_messages_that_were_not_yet_written(self, hermes: Hermes) -> None:
        """Those of the turn that is compacted come after the copies, and count."""
        hermes.begin("one")
        said = hermes.talk("one", 1, 2)
        hermes.compact("one", [*said, {"role": "user", "content": "question 3"}], 3)
        assert hermes.turns("one")[2:] == [["question 3"]]
        assert [len(turn) for turn in hermes.turns("one")] == [5, 6, 1]

    def test_in_another_session(self, hermes: Hermes) -> None:
        """It goes on from the first one, and has only what is new."""
        hermes.begin("one", title="Holes")
        said = hermes.talk("one", 1, 2, 3)
        hermes.change("one", ended_at=hermes.now, end_reason="compression")
        hermes.begin("two", parent_session_id="one")
        hermes.copy("two", [*said[:3], {"role": "user", "content": _SUMMARY}, *said[-3:]])
        hermes.talk("two", 4)
        assert hermes.turns("one") == [[f"question {number}", *REST] for number in (1, 2, 3)]
        assert hermes.turns("two") == [["compaction", "question 4", *REST]]
        row = hermes.library.archive.session("hermes/two")
        assert row is not None
        assert (row.parent, row.forked_from) == (None, "hermes/one")


class TestBranches:
    def test_have_what_is_new(self, hermes: Hermes) -> None:
        hermes.begin("one")
        said = hermes.talk("one", 1, 2)
        hermes.begin("two", parent_session_id="one", model_config='{"_branched_from": "one"}')
        hermes.copy("two", said)
        hermes.talk("two", 3)
        hermes.talk("one", 3)
        assert hermes.turns("two") == [["question 3", *REST]]
        row = hermes.library.archive.session("hermes/two")
        assert row is not None
        assert (row.parent, row.forked_from) == (None, "hermes/one")

    def test_subagents_are_none(self, hermes: Hermes) -> None:
        """Also those of a session that was compacted later."""
        hermes.begin("one")
        hermes.begin("two", parent_session_id="one")
        hermes.talk("two", 1)
        hermes.change("one", ended_at=hermes.now, end_reason="compression")
        hermes.begin("three", parent_session_id="one", model_config='{"_delegate_from": "one"}')
        hermes.talk("three", 2)
        for name in ("two", "three"):
            row = hermes.library.archive.session(f"hermes/{name}")
            assert row is not None
            assert (row.parent, row.forked_from) == ("hermes/one", None)


class TestFacts:
    def test_a_title_that_is_given_later(self, hermes: Hermes) -> None:
        """Hermes thinks of it when the first answer is written; no message comes with it."""
        hermes.begin("one", git_branch="holes")
        hermes.talk("one", 1)
        hermes.change("one", title="Digging")
        row = hermes.library.archive.session("hermes/one")
        assert row is not None
        assert (row.title, row.branch) == ("Digging", "holes")
