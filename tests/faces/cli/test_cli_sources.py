"""`backstory sources` and `backstory import`."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from backstory import open_archive

from .conftest import Program

SECRET = "sk-ant-api03-" + "A1b2C3d4" * 12


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def kiro(home: Path) -> None:
    """A session with a record of a later version, which holds a secret."""
    folder = home / ".kiro" / "sessions" / "cli"
    folder.mkdir(parents=True)
    lines = [
        {"kind": "Prompt", "data": {"content": [{"kind": "text", "data": "hello"}], "meta": {"timestamp": 1767323045}}},
        {"kind": "Prophecy", "data": {"key": SECRET}},
        {"kind": "Prophecy", "data": {}},
    ]
    (folder / "one.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def claude_export(*messages: str) -> list[dict[str, Any]]:
    senders = ("human", "assistant")
    return [
        {
            "uuid": "c1",
            "name": "Bread",
            "chat_messages": [
                {"uuid": f"m{n}", "sender": senders[n % 2], "text": text, "created_at": f"2026-01-02T03:04:0{n}Z"}
                for n, text in enumerate(messages)
            ],
        }
    ]


class TestSources:
    """Every agent that can be read, and what was found of it."""

    def test_what_was_found(self, home: Path, backstory: Program) -> None:
        kiro(home)
        backstory("sync")
        result = backstory("sources")
        assert result.code == 0
        assert "Kiro (kiro): 1 session, newest 2026-01-02, 2 unknown records" in result.out
        assert str(home / ".kiro" / "sessions") in result.out
        assert "Not on this machine: Claude Code, Codex, Gemini CLI" in result.out

    def test_unknown_records_are_shown_without_secrets(self, home: Path, backstory: Program) -> None:
        """By `sources` and by `doctor`, counted, with a sample."""
        kiro(home)
        backstory("sync")
        (row,) = [row for row in backstory("sources", "--json").json["sources"] if row["source"] == "kiro"]
        (unknown,) = row["unknown"]
        assert (unknown["kind"], unknown["count"]) == ("Prophecy", 2)
        assert SECRET not in json.dumps(row)
        doctor = backstory("doctor")
        assert "Kiro writes records that are not understood: Prophecy (2)" in " ".join(doctor.out.split())
        assert SECRET not in doctor.out

    def test_all_with_their_folders(self, home: Path, backstory: Program) -> None:
        result = backstory("sources", "--all")
        assert f"{home / '.openhands' / 'conversations'} (not there)" in result.out


class TestImport:
    """Data exports of chat services."""

    def test_a_file_and_a_later_one(self, home: Path, backstory: Program) -> None:
        """A later export adds what is new."""
        export = home / "conversations.json"
        export.write_text(json.dumps(claude_export("How is bread made?", "With time.")))
        result = backstory("import", str(export))
        assert result.out == "Imported 1 conversation of claude-ai.\nRead 2 new events in 1 session.\n"
        archive = home / "later.zip"
        with zipfile.ZipFile(archive, "w") as file:
            file.writestr(
                "data/conversations.json", json.dumps(claude_export("How is bread made?", "With time.", "Oh!"))
            )
            file.writestr("data/users.json", "[]")
        assert backstory("import", str(archive), "--json").json["events"] == 1
        assert backstory("import", str(archive), "--json").json["events"] == 0
        assert "With time." in backstory("search", "bread", "time").out

    def test_a_conversation_that_was_forgotten(self, home: Path, backstory: Program) -> None:
        """Its file in Backstory's home is deleted with it, and it does not come back with the next export."""
        export = home / "conversations.json"
        export.write_text(json.dumps(claude_export("How is bread made?", "With time.")))
        backstory("import", str(export))
        (kept,) = home.rglob("imports/claude-ai/*.json")
        assert backstory("forget", kept.stem, "--yes").code == 0
        assert not kept.exists()
        result = backstory("import", str(export))
        assert result.out == "Imported 0 conversations of claude-ai.\nRead 0 new events in 0 sessions.\n"
        assert not kept.exists()

    def test_while_another_process_reads(self, home: Path, backstory: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        """As long as an agent runs its MCP server, that process reads what was imported."""
        monkeypatch.setattr("backstory.faces.cli.sync._GRACE_SECONDS", 0.1)
        export = home / "conversations.json"
        export.write_text(json.dumps(claude_export("How is bread made?", "With time.")))
        backstory("sync")
        library = open_archive()
        writer = library.archive.writer()
        try:
            result = backstory("import", str(export))
            data = backstory("import", str(export), "--json").json
        finally:
            writer.close()
            library.close()
        assert (result.code, result.err) == (0, "")
        assert result.out.startswith("Imported 1 conversation of claude-ai.\nAnother Backstory process")
        assert data == {"imported": {"claude-ai": 1}, "by_another_process": True}
        assert len(list(home.rglob("imports/claude-ai/*.json"))) == 1

    def test_cannot_be_restored(self, home: Path, backstory: Program) -> None:
        """There is no agent with a file of it, and the message says so."""
        export = home / "conversations.json"
        export.write_text(json.dumps(claude_export("How is bread made?", "With time.")))
        backstory("import", str(export))
        (kept,) = home.rglob("imports/claude-ai/*.json")
        result = backstory("restore", kept.stem)
        assert (result.code, "it is kept by Backstory alone" in result.err) == (1, True)

    def test_an_export_that_is_longer_than_a_chunk(self, home: Path, backstory: Program) -> None:
        """Conversations are taken one by one, however long they are."""
        node = {"id": "n", "parent": None, "message": {"id": "q", "author": {"role": "user"}, "content": {}}}
        conversations = []
        for number in range(30):
            message = {**node["message"], "id": f"q{number}", "content": {"parts": ["chess " * 40_000]}}  # type: ignore[dict-item]
            mapping = {"n": {**node, "message": message}}
            conversations.append({"id": f"g{number}", "title": "Chess", "current_node": "n", "mapping": mapping})
        export = home / "conversations.json"
        export.write_text(json.dumps(conversations, indent=1))
        assert backstory("import", str(export), "--json").json["imported"] == {"chatgpt": 30}

    @pytest.mark.parametrize(
        "text", ["", "[]", "hello", '{"a": 1}', "[1, 2]", '[{"uuid": "../x", "chat_messages": []}]']
    )
    def test_a_file_of_another_kind(self, home: Path, backstory: Program, text: str) -> None:
        """It is refused, and nothing of it is kept."""
        export = home / "conversations.json"
        export.write_text(text)
        result = backstory("import", str(export))
        assert result.code == 1
        assert "report" not in result.err
        assert "give the ZIP of an export" in result.err
        assert list(home.rglob("imports/*/*")) == []

    def test_a_conversation_of_unreasonable_size(self, home: Path, backstory: Program) -> None:
        """A small ZIP that unpacks to very much does not take the memory of the machine."""
        export = home / "export.zip"
        with zipfile.ZipFile(export, "w", zipfile.ZIP_DEFLATED) as file, file.open("conversations.json", "w") as entry:
            entry.write(b'[{"uuid": "one", "chat_messages": [], "padding": "')
            for _ in range(70):
                entry.write(b"a" * (1 << 20))
            entry.write(b'"}]')
        result = backstory("import", str(export))
        assert result.code == 1
        assert "a conversation is too long" in result.err

    def test_a_damaged_zip(self, home: Path, backstory: Program) -> None:
        """A byte that changed on the way, and a file that ends too early, are reported."""
        export = home / "export.zip"
        with zipfile.ZipFile(export, "w") as file:
            file.writestr("conversations.json", json.dumps(claude_export("How is bread made?", "With time.")))
        data = bytearray(export.read_bytes())
        data[data.index(b"bread")] ^= 1
        export.write_bytes(data)
        result = backstory("import", str(export))
        assert (result.code, "the ZIP cannot be unpacked" in result.err) == (1, True)
        assert "report" not in result.err

    def test_a_file_that_was_cut(self, home: Path, backstory: Program) -> None:
        """It is reported, and what is whole can be found after a sync."""
        first, second = (json.dumps(claude_export(word, "Yes."))[1:-1] for word in ("Bread?", "Butter?"))
        export = home / "conversations.json"
        export.write_text(f"[{first}, {second[:-9]}")
        result = backstory("import", str(export))
        assert (result.code, "ends in the middle of a conversation" in result.err) == (1, True)
        backstory("sync")
        assert "Bread?" in backstory("search", "bread").out
