"""`Library.forget`: sessions of agents whose copies have other ids, and live sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory import live
from backstory.library import Library
from backstory.model import event_id, session_id, turn_id
from tests.examples import PATIENT
from tests.transcripts import Transcript

SECRET = "xylophagous"
PARENT, FORK = "019ee001-0000-7000-8000-0000000000aa", "019ee001-0000-7000-8000-0000000000bb"


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    with Library(tmp_path / "backstory", agents_home=tmp_path, environ=PATIENT) as library:
        yield library


def texts(library: Library, query: str) -> list[str]:
    found = library.search(query, event_types=["user_input", "assistant_response"], n_hits=50)
    return sorted(hit["snippet"]["text"] for hit in found["data"]["results"])


def holding(library: Library, word: str = SECRET) -> list[str]:
    return [path.name for path in library.home.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


class Rollout:
    """A transcript of Codex, as it writes them."""

    def __init__(self, session: str, **header: str) -> None:
        self.session = session
        self.records: list[dict[str, Any]] = []
        self.add("session_meta", id=session, cwd="/home/dev/shop", **header)

    def add(self, kind: str, **payload: Any) -> None:
        stamp = f"2026-06-18T09:{len(self.records) // 60:02d}:{len(self.records) % 60:02d}.000Z"
        self.records.append({"timestamp": stamp, "type": kind, "payload": payload})

    def turn(self, id: str, prompt: str, answer: str) -> Rollout:
        self.add("event_msg", type="task_started", turn_id=id)
        self.add("turn_context", turn_id=id, model="gpt-5.5", cwd="/home/dev/shop")
        self.add("response_item", type="message", role="user", content=[{"type": "input_text", "text": prompt}])
        self.add("event_msg", type="user_message", message=prompt)
        self.add("response_item", type="message", role="assistant", content=[{"type": "output_text", "text": answer}])
        self.add("event_msg", type="task_complete", turn_id=id, last_agent_message=answer)
        return self

    def write(self, home: Path) -> Path:
        path = home / ".codex" / "sessions" / "2026" / "06" / "18" / f"rollout-2026-06-18T09-00-00-{self.session}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(record) + "\n" for record in self.records), "utf-8")
        return path


class TestForks:
    """Codex gives the copies of a fork ids of their own: they are known by the turns that the original had."""

    def test_what_a_fork_copied_stays_forgotten(self, library: Library, tmp_path: Path) -> None:
        original = Rollout(PARENT).turn("turn-1", f"the {SECRET} question", f"the {SECRET} answer")
        original.write(tmp_path)
        library.sync()
        assert len(texts(library, SECRET)) == 2
        library.forget(session_id(f"codex/{PARENT}"))
        fork = Rollout(FORK, forked_from_id=PARENT)
        fork.records += original.records
        fork.turn("turn-9", "its own question", "its own answer").write(tmp_path)
        library.sync()
        assert texts(library, SECRET) == []
        assert texts(library, "its own") == ["its own answer", "its own question"]
        assert holding(library) == []
        assert library.raw.paths() == set()


class TestGrowth:
    """A forgotten session that goes on: what it says then is forgotten, too, also in copies of its transcript."""

    @pytest.mark.parametrize("marked", [False, True], ids=["copied", "forked"])
    def test_copies_of_claude_code(self, library: Library, tmp_path: Path, marked: bool) -> None:
        """A copy of the file has the records as they are; a fork names the session that it copied each from."""
        original = Transcript("original").prompt(f"the {SECRET} question").answer(f"the {SECRET} answer")
        original.write(tmp_path)
        library.sync()
        library.forget(session_id(f"claude-code/{original.id}"))
        original.prompt(f"more about {SECRET}").answer(f"again {SECRET}")
        original.write(tmp_path)
        library.sync()
        copy = Transcript("copy")
        own = {"sessionId": copy.id, "forkedFrom": {"sessionId": original.id, "messageUuid": "m"}} if marked else {}
        copy.records = [{**record, **own} for record in original.records]
        copy.write(tmp_path)
        library.sync()
        assert texts(library, SECRET) == []
        assert library.call("list_conversations", {})["conversations"] == []
        copy.prompt("its own question").answer("its own answer")
        copy.write(tmp_path)
        library.sync()
        assert texts(library, SECRET) == []
        assert texts(library, "its own") == ["its own answer", "its own question"]
        turns = library.call("read_conversation", {"session_id": copy.id})["turns"]
        assert [turn["user_text"] for turn in turns] == ["its own question"]
        assert holding(library) == []
        assert library.raw.paths() == set()

    def test_forks_of_codex(self, library: Library, tmp_path: Path) -> None:
        """A fork repeats turns under its own id; the ids of turns begin with their time, as those of sessions do."""
        first, middle, last = (f"019ee{number}01-0000-7000-8000-0000000000aa" for number in (1, 4, 7))
        turns = [f"019ee{number}01-0000-7000-8000-0000000000bb" for number in range(10)]
        original = Rollout(first).turn(turns[2], f"the {SECRET} question", f"the {SECRET} answer")
        original.write(tmp_path)
        library.sync()
        library.forget(session_id(f"codex/{first}"))
        original.turn(turns[3], f"more about {SECRET}", f"again {SECRET}").write(tmp_path)
        library.sync()
        fork = Rollout(middle, forked_from_id=first)
        fork.records += original.records
        fork.write(tmp_path)
        library.sync()
        assert texts(library, SECRET) == []
        assert library.sessions("2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z")["data"]["sessions"] == []
        fork.turn(turns[5], "its own question", "its own answer").write(tmp_path)
        again = Rollout(last, forked_from_id=middle)
        again.records += fork.records
        again.turn(turns[8], "another question", "another answer").write(tmp_path)
        library.sync()
        assert texts(library, SECRET) == []
        assert texts(library, "its own") == ["its own answer", "its own question"]
        assert texts(library, "another") == ["another answer", "another question"]
        assert holding(library) == []
        assert library.raw.paths() == set()


class TestLive:
    """A live session is deleted from its store, too; another one may take its id."""

    def talk(self, library: Library, text: str) -> None:
        async def scenario() -> None:
            async with live.open(library.home) as sessions:
                await sessions.ensure("demo")
                await sessions.append("demo", live.user(text), entry_id="first")

        asyncio.run(scenario())
        library.sync()

    def test_forget(self, library: Library) -> None:
        self.talk(library, f"about {SECRET}")
        assert texts(library, SECRET) == [f"about {SECRET}"]
        library.forget(session_id("live/demo"))
        assert texts(library, SECRET) == []
        assert library.archive.session("live/demo") is None
        library.sync()
        assert texts(library, SECRET) == []
        self.talk(library, f"about {SECRET}")
        assert texts(library, SECRET) == [f"about {SECRET}"]

    def test_deleted_in_its_store(self, library: Library) -> None:
        self.talk(library, f"about {SECRET}")
        (library.home / "live" / "demo.jsonl").unlink()
        library.forget_live("demo")
        assert texts(library, SECRET) == []
        assert library.archive.sync_state().forgetting == ()

    def test_while_another_process_writes(self, library: Library) -> None:
        """The request stays until that one, or the next, comes to it."""
        self.talk(library, f"about {SECRET}")
        (library.home / "live" / "demo.jsonl").unlink()
        writer = library.archive.writer()
        library.forget_live("demo")
        assert library.archive.sync_state().forgetting == ("live/demo",)
        writer.close()
        library.catch_up()
        assert library.archive.sync_state().forgetting == ()
        assert texts(library, SECRET) == []


class TestIds:
    @pytest.mark.parametrize("id", ["demo", session_id("codex/none"), turn_id("codex/x", 1), event_id(b"0" * 16)])
    def test_only_sessions(self, library: Library, id: str) -> None:
        with pytest.raises(LookupError):
            library.forget(id)
