"""Files beside transcripts, files that are rewritten, and files that repeat one another."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agents_world import AGENTS, SAMPLES, describe, events, read, source_named, transcripts_in

from backstory.archive.base import SessionRow
from backstory.library import Library
from backstory.model import EventType
from backstory.sources.base import About


def home_of(agent: str, folder: Path) -> Path:
    home = folder / "home"
    shutil.copytree(SAMPLES / agent / "home", home)
    return home


def library_of(home: Path) -> Library:
    library = Library(home.parent / "backstory", agents_home=home, environ={})
    library.sync()
    return library


def sessions(library: Library) -> dict[str, SessionRow]:
    rows = library.archive._db.execute("SELECT key FROM session").fetchall()  # type: ignore[attr-defined]
    return {key: row for (key,) in rows if (row := library.archive.session(key)) is not None}


def contents(library: Library) -> list[Any]:
    tokens = "SELECT count(*), sum(input_tokens), sum(output_tokens) FROM usage"
    counted = [(key, row.event_count, row.turn_count, row.title) for key, row in sorted(sessions(library).items())]
    return [*counted, tuple(library.archive._db.execute(tokens).fetchone())]  # type: ignore[attr-defined]


def event_count(library: Library) -> int:
    return sum(row.event_count for row in sessions(library).values())


def in_json(*path: str) -> Callable[[str], str]:
    def alter(text: str) -> str:
        document: dict[str, Any] = json.loads(text)
        holder = document
        for name in path[:-1]:
            holder = holder[name]
        holder[path[-1]] = "Another title"
        return json.dumps(document)

    return alter


class Beside(NamedTuple):
    agent: str
    file: str
    alter: Callable[[str], str]


BESIDE = (
    Beside("copilot-cli", "**/workspace.yaml", lambda text: "name: 'Another title'\nuser_named: true\n"),
    Beside("kimi-cli", "**/session_33334444/state.json", in_json("title")),
    Beside("grok-build", "**/summary.json", in_json("generated_title")),
    Beside("gptme", "**/config.toml", lambda text: text.replace("Notes and checks", "Another title")),
    Beside("letta-code", "**/conversation.json", in_json("summary")),
)


class TestBeside:
    @pytest.mark.parametrize("beside", BESIDE, ids=lambda beside: beside.agent)
    def test_a_title_that_is_given_later(self, beside: Beside, tmp_path: Path) -> None:
        """It shows with the next sync, although the transcript has not changed, and nothing else does."""
        home = home_of(beside.agent, tmp_path)
        library = library_of(home)
        before = event_count(library)
        path = next(home.glob(beside.file))
        path.write_text(beside.alter(path.read_text()))
        library.sync()
        assert "Another title" in {row.title for row in sessions(library).values()}
        assert event_count(library) == before
        assert library.sync().files == 0

    def test_tokens_that_grow(self, tmp_path: Path) -> None:
        """Factory Droid's totals are read again when they change."""
        home = home_of("factory-droid", tmp_path)
        library = library_of(home)
        path = next(home.glob("**/*.settings.json"))
        settings = json.loads(path.read_text())
        settings["tokenUsage"]["outputTokens"] = 5_000
        path.write_text(json.dumps(settings))
        library.sync()
        query = "SELECT max(output_tokens), count(*) FROM usage"
        assert tuple(library.archive._db.execute(query).fetchone()) == (5_000, 2)  # type: ignore[attr-defined]


class TestRewritten:
    def test_the_title_line_of_oh_my_pi(self, tmp_path: Path) -> None:
        """It is rewritten in place: the title changes, and nothing is doubled."""
        home = home_of("oh-my-pi", tmp_path)
        library = library_of(home)
        before = event_count(library)
        path = next(home.glob("**/*.jsonl"))
        first, rest = path.read_text().split("\n", 1)
        path.write_text(json.dumps({**json.loads(first), "title": "A title"}) + "\n" + rest)
        library.sync()
        assert [row.title for row in sessions(library).values()] == ["A title"]
        assert event_count(library) == before

    def test_a_message_of_gemini_cli_in_two_files(self, tmp_path: Path) -> None:
        """A session that a newer version resumed has a JSON and a JSON Lines file: one session, each message once."""
        home = home_of("gemini-cli", tmp_path)
        library = library_of(home)
        before = event_count(library)
        path = next(home.glob("**/session-2025-*.json"))
        document = json.loads(path.read_text())
        messages = document.pop("messages")
        lines = [document, {"$set": {"messages": messages}}, {"id": "m4", "type": "user", "content": "And now?"}]
        path.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        library.sync()
        assert event_count(library) == before + 1

    def test_a_damaged_chunk_of_mistral_vibe(self, tmp_path: Path) -> None:
        """It is counted, and what the journal has is read. Without a manifest nothing is known of a session."""
        home = home_of("mistral-vibe", tmp_path)
        (store,) = home.glob("**/cdef*")
        (store / "chunks" / "aa11.json").write_bytes(b'[{"id": "entry-1", "ty')
        (place,) = home.glob("**/963cbe0b*/generations/*")
        (place / "manifest.json").write_bytes(b'{"projection_sta')
        library = Library(tmp_path / "backstory", agents_home=home, environ={})
        assert library.sync().errors == 2
        found = sessions(library)
        assert found["mistral-vibe/cdef0000-0000-4000-8000-000000000003"].event_count > 0
        library.close()

    def test_a_generation_of_mistral_vibe(self, tmp_path: Path) -> None:
        """At the end of a turn its entries move from the journal into a chunk of a new generation, unchanged."""
        home = home_of("mistral-vibe", tmp_path)
        library = library_of(home)
        before = event_count(library)
        store = next(home.glob("**/cdef*"))
        journal = store / "journal" / "0000000000000003.jsonl"
        entries = {entry["id"]: entry for entry in json.loads((store / "chunks" / "aa11.json").read_text())}
        for line in journal.read_text().splitlines()[:-1]:
            for delta in json.loads(line)["payload"].get("delta", ()):
                if "entry" in delta:
                    entries[delta["entry"]["id"]] = delta["entry"]
        answer = {
            "id": "entry-6",
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Mended."}],
        }
        (store / "chunks" / "bb22.json").write_text(
            json.dumps([*entries.values(), {**answer, "createdAt": 1785574807000}])
        )
        place = store / "generations" / "0000000000000009"
        place.mkdir()
        (place / "manifest.json").write_text(json.dumps({"projection_state": {"chunks": ["bb22"]}}))
        state = {"latestTurn": {"id": "turn-2", "status": "completed"}}
        (place / "projection-state.json").write_text(json.dumps({"snapshot": state}))
        (store / "CURRENT").write_text(json.dumps({"generation": "0000000000000009"}))
        library.sync()
        assert event_count(library) == before + 1
        session = sessions(library)["mistral-vibe/cdef0000-0000-4000-8000-000000000003"]
        assert session.completed
        last = library.archive.events(session.key, session.turn_count)[-1]
        assert last.text == "Mended."


class TestCopies:
    @pytest.mark.parametrize(
        "agent", ["factory-droid", "gemini-cli", "iflow", "oh-my-pi", "pi", "qoder", "qwen-code", "tabnine"]
    )
    def test_a_file_under_another_name(self, agent: str, tmp_path: Path) -> None:
        """A copy of a transcript, beside it or put back later, adds no session, no event and no tokens."""
        home = home_of(agent, tmp_path)
        library = library_of(home)
        before = contents(library)
        for path in transcripts_in(source_named(agent), home):
            if path.suffix == ".jsonl" and "subagents" not in path.parts:
                shutil.copy(path, path.with_name(f"{path.stem}-copy.jsonl"))
        assert library.sync().errors == 0
        assert contents(library) == before


class TestFirstLine:
    @pytest.mark.parametrize("agent", AGENTS)
    def test_longer_than_the_head(self, agent: str, tmp_path: Path) -> None:
        """A first record of any length, such as a prompt with a book in it, does not hide the session."""
        source, home = source_named(agent), home_of(agent, tmp_path)
        for path in transcripts_in(source, home):
            known = describe(source, path)
            if path.suffix == ".jsonl":
                first, *rest = path.read_text().splitlines(keepends=True)
                path.write_text(json.dumps({**json.loads(first), "book": "x" * 200_000}) + "\n" + "".join(rest))
                assert describe(source, path) == known


class TestCursor:
    def test_title_and_model_of_a_chat(self, tmp_path: Path) -> None:
        """They are in the database of the chat, beside the transcripts."""
        source, home = source_named("cursor"), home_of("cursor", tmp_path)
        session = "55556666-0000-4000-8000-000000000001"
        store = home / f".cursor/chats/0cc175b9c0f1b6a8/{session}/store.db"
        store.parent.mkdir(parents=True)
        about = {"agentId": session, "name": "Prune the roses", "lastUsedModel": "made-up-3"}
        with closing(sqlite3.connect(store)) as database, database:
            database.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT)")
            database.execute("INSERT INTO meta VALUES ('0', ?)", (json.dumps(about).encode().hex(),))
        (path,) = [path for path in transcripts_in(source, home) if path.stem == session]
        items = read(source, path)
        assert "Prune the roses" in [item.title for item in items if isinstance(item, About)]
        assert {event.model for event in events(items) if event.type is EventType.ASSISTANT_RESPONSE} == {"made-up-3"}
        store.write_bytes(b"no database")
        assert read(source, path)


class TestResume:
    def test_commands(self) -> None:
        """A session is continued by its id; a subagent's is not, where the id shows that it is one."""
        for agent in AGENTS:
            command = source_named(agent).resume("5ec5e551-0000-4000-8000-000000000001")
            assert command is None or any("5ec5e551" in word for word in command)
        assert source_named("copilot-cli").resume("parent/child") is None
