"""Drift: a newer version of an agent writes records and fields that no parser knows."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from backstory.ingest.unknown import Unknown, shape_of, unknown_records
from backstory.library import Library
from backstory.model import EventType
from tests.ingest.opencode_writer import OpenCode
from tests.sources.store_files import STORES as STORES_FOLDER
from tests.sources.store_files import paths, put
from tests.transcripts import Transcript

FILES = {path.parent.name: path for path in STORES_FOLDER.parent.glob("agents/*/home")}
STORES = {path.name: path for path in STORES_FOLDER.iterdir()}
SECRET = "ghp_" + "a1B2" * 9


class Newer(Transcript):
    """A transcript of a made-up version of Claude Code."""

    def _record(self, kind: str, **fields: Any) -> dict[str, Any]:
        record = super()._record(kind, **fields)
        record["version"] = "9.0.0"
        record["moonPhase"] = {"name": f"waxing, with {SECRET}", "kind": "crescent", "/home/dev/plans": 1, "days": 3}
        if usage := fields.get("message", {}).get("usage"):
            usage |= {
                "moonlit_tokens": 4,
                "cache_creation": {"ephemeral_5m_input_tokens": 1, "eternal_input_tokens": 2},
            }
        return record


@pytest.fixture
def library(tmp_path: Path) -> Library:
    newer = Newer("newer")
    for number in range(30):
        newer.prompt(f"Question {number}").answer("An answer.")
    newer._record("dream", text=f"Of electric sheep and {SECRET}", mood="calm and private", id=7)
    newer.write(tmp_path / "home")
    known = Transcript("known").prompt("A question").call("Bash", {"command": "ls"}, "files").answer("An answer.")
    known.write(tmp_path / "home")
    library = Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={})
    assert library.sync().errors == 0
    return library


def found(library: Library) -> dict[str, Unknown]:
    return {kind.kind: kind for kind in unknown_records(library.archive)}


class TestDrift:
    """Unknown kinds of records and unknown fields are named with the version that wrote them."""

    def test_records_and_fields(self, library: Library) -> None:
        kinds = found(library)
        nested = {"moonlit_tokens", "cache_creation.eternal_input_tokens"}
        assert set(kinds) == {
            *("dream", "user.moonPhase", "assistant.moonPhase"),
            *(f"assistant.message:message.usage.{name}" for name in nested),
        }
        assert {(kind.source, kind.version) for kind in kinds.values()} == {("claude-code", "9.0.0")}
        assert (kinds["dream"].count, kinds["dream"].is_field) == (1, False)
        assert kinds["user.moonPhase"].is_field
        assert 16 <= kinds["user.moonPhase"].count <= 30

    def test_samples_have_names_and_types_only(self, library: Library) -> None:
        kinds = found(library)
        phase = json.loads(kinds["user.moonPhase"].sample)["moonPhase"]
        assert phase == {"name": "<53 characters>", "kind": "crescent", "days": "<number>"}
        dream = json.loads(kinds["dream"].sample)
        assert (dream["type"], dream["mood"], dream["id"]) == ("dream", "<16 characters>", "<number>")
        assert not any(word in kind.sample for kind in kinds.values() for word in (SECRET, "sheep", "waxing", "plans"))

    def test_a_record_without_a_type(self, library: Library, tmp_path: Path) -> None:
        with Newer("newer").path(tmp_path / "home").open("a") as stream:
            stream.write('{"moon": 1}\n{"type": "odd kind!"}\n')
        library.sync()
        assert {"without a type", "odd?kind?"} <= found(library).keys()

    def test_counts_go_on_with_the_transcript(self, library: Library, tmp_path: Path) -> None:
        before = found(library)["user.moonPhase"].count
        newer = Newer("newer")
        for number in range(40):
            newer.prompt(f"Question {number}").answer("An answer.")
        with newer.path(tmp_path / "home").open("a") as stream:
            stream.write(newer.text(60))
        library.sync()
        assert found(library)["user.moonPhase"].count > before

    def test_what_is_unknown_is_kept(self, library: Library) -> None:
        sessions = library.call("list_sessions", {"start": "2026-01-01T00:00:00Z", "end": "2027-01-01T00:00:00Z"})
        assert sessions
        kept = [row for row in library.archive.files() if row.state and "unknown" in row.state]
        assert len(kept) == 1


class TestPartsOfAStore:
    """The parts of OpenCode's messages are rows of their own, whose fields are counted as those of records are."""

    @pytest.fixture
    def library(self, tmp_path: Path) -> Library:
        path = tmp_path / "home/.local/share/opencode/opencode.db"
        with closing(OpenCode(path)) as agent:
            agent.session("ses_newer")
            agent.database.execute("UPDATE session SET version = '9.0.0'")
            agent.prompt("ses_newer", 1, "A question")
            agent.message("ses_newer", "msg_0002", role="assistant", parentID="msg_0001", modelID="m")
            for number in range(30):
                part = f"prt_0002_{number:02}"
                agent.part("ses_newer", "msg_0002", part, type="text", text="An answer.", mood=f"calm, {SECRET}")
            state = {
                "status": "completed",
                "input": {"own": 1},
                "metadata": {"own": 2},
                "output": "",
                "moon": {"on": 1},
            }
            tokens = {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}, "moonlit": 3}
            agent.part("ses_newer", "msg_0002", "prt_0002_90", type="tool", tool="bash", callID="c", state=state)
            agent.part("ses_newer", "msg_0002", "prt_0002_91", type="step-finish", reason="stop", tokens=tokens)
            agent.part("ses_newer", "msg_0002", "prt_0002_92", type="dream", text="Of electric sheep", mood="calm")
        library = Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={})
        assert library.sync().errors == 0
        return library

    def test_fields(self, library: Library) -> None:
        kinds = found(library)
        fields = {name for name, kind in kinds.items() if kind.is_field}
        assert fields == {"parts:text.mood", "parts:tool.state.moon", "parts:step-finish.tokens.moonlit"}
        assert {(kind.source, kind.version) for kind in kinds.values()} == {("opencode", "9.0.0")}
        assert 16 <= kinds["parts:text.mood"].count <= 30
        assert (kinds["dream"].count, kinds["dream"].is_field) == (1, False)

    def test_samples_have_names_and_types_only(self, library: Library) -> None:
        kinds = found(library)
        assert json.loads(kinds["parts:text.mood"].sample) == {"mood": "<46 characters>"}
        assert json.loads(kinds["parts:tool.state.moon"].sample) == {"moon": {"on": "<number>"}}
        assert not any(word in kind.sample for kind in kinds.values() for word in (SECRET, "calm", "sheep"))


class TestArchivesOfOneProcess:
    """What one archive has read often is looked at in another one."""

    def test_fields(self, tmp_path: Path) -> None:
        for name, state in (("plain", {"status": "completed"}), ("odd", {"status": "completed", "moon": 1})):
            with closing(OpenCode(tmp_path / name / ".local/share/opencode/opencode.db")) as agent:
                agent.session("ses_one")
                agent.prompt("ses_one", 1, "A question")
                agent.message("ses_one", "msg_0002", role="assistant", parentID="msg_0001", modelID="m")
                for number in range(50 if name == "plain" else 1):
                    part = f"prt_0002_{number:02}"
                    agent.part("ses_one", "msg_0002", part, type="tool", tool="bash", callID="c", state=state)
            library = Library(tmp_path / f"{name}-archive", agents_home=tmp_path / name, environ={})
            library.sync()
        assert set(found(library)) == {"parts:tool.state.moon"}


class TestKnown:
    """Nothing that a source reads is reported as unknown."""

    @pytest.mark.parametrize("agent", sorted({*FILES, *STORES}))
    def test_fields_of_a_made_up_home(self, agent: str, tmp_path: Path) -> None:
        if agent in FILES:
            shutil.copytree(FILES[agent], tmp_path / "home")
        if agent in STORES:
            for path in paths(STORES[agent]):
                put(STORES[agent], path, tmp_path / "home")
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            assert library.sync().errors == 0
            assert [kind.kind for kind in unknown_records(library.archive) if kind.is_field] == []

    def test_a_tree_of_opencode(self, tmp_path: Path) -> None:
        """In its JSON files, messages and parts name the session and the message that they are part of."""
        storage = tmp_path / "home/.local/share/opencode/storage"
        of_session: dict[str, Any] = {"sessionID": "ses_1"}
        files = {
            "session/global/ses_1.json": {"id": "ses_1", "title": "Ferns", "directory": "/home/ada"},
            "message/ses_1/msg_1.json": {
                "id": "msg_1",
                "role": "user",
                "time": {"created": 1_730_000_000},
                **of_session,
            },
            "part/msg_1/prt_1.json": {
                "id": "prt_1",
                "messageID": "msg_1",
                "type": "text",
                "text": "Water",
                **of_session,
            },
        }
        for name, document in files.items():
            (storage / name).parent.mkdir(parents=True)
            (storage / name).write_text(json.dumps(document))
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            assert library.sync().events == 1
            assert unknown_records(library.archive) == []


class TestShape:
    """The shape of a value shows no text of it."""

    @pytest.mark.parametrize(
        ("value", "shape"),
        [
            ({"type": "turn cost of Acme", "role": "user"}, {"type": "<17 characters>", "role": "user"}),
            ({"/home/dev/secret.txt": 1, "ok": True}, {"ok": True}),
            ({"a": {"b": {"c": {"d": "deep"}}}}, {"a": {"b": {"c": "<...>"}}}),
            ([{"n": 1}] * 5, [{"n": "<number>"}] * 2),
            ("plain text", "<10 characters>"),
            ('{"type":"note","text":"inside"}', {"type": "note", "text": "<6 characters>"}),
        ],
    )
    def test_values(self, value: Any, shape: Any) -> None:
        assert json.loads(shape_of(value)) == shape

    def test_events_of_unknown_records_are_searchable_by_type(self, library: Library) -> None:
        (session,) = [row for row in library.archive.files() if row.state and "unknown" in row.state]
        turns = library.archive.turns(f"claude-code/{session.session}")
        assert EventType.UNKNOWN in turns[-1].types
