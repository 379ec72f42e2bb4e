"""Ids that an agent, or the server of its model, gives more than once, and blocks of messages that no source knows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from agents_world import SAMPLES, events, feed, parser_for, read, records_of, source_named, transcripts_in

from backstory.archive.base import EventRow, SessionsRequest
from backstory.library import Library
from backstory.model import EventType
from tests.archive_world import usage_of

BEAM = {"type": "hologram", "beam": "green"}


def write(path: Path, records: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def library_of(home: Path) -> Library:
    library = Library(home.parent / "backstory", agents_home=home, environ={})
    assert library.sync().errors == 0
    return library


def events_of(library: Library) -> dict[str, list[EventRow]]:
    """The events of each session, in their order."""
    found = {}
    for row in library.archive.sessions(SessionsRequest(empty=True)):
        turns = library.archive.turns(row.key)
        found[row.key] = [event for turn in turns for event in library.archive.events(row.key, turn.ordinal)]
    return found


def kimi_session(home: Path, name: str, command: str) -> None:
    """A session of an older Kimi Code, whose calls are numbered anew in each session."""

    def loop(**event: Any) -> dict[str, Any]:
        return {"type": "context.append_loop_event", "event": event, "time": 1_785_613_809_000}

    records = [
        {"type": "metadata", "protocol_version": "1.4", "created_at": 1_785_613_800_000},
        {"type": "turn.prompt", "input": [{"type": "text", "text": "Go"}], "origin": {"kind": "user"}},
        loop(
            type="tool.call", uuid="Bash_0", stepUuid=name, toolCallId="Bash_0", name="Bash", args={"command": command}
        ),
        loop(type="tool.result", parentUuid="Bash_0", toolCallId="Bash_0", result={"output": "done"}),
    ]
    write(home / f".kimi-code/sessions/wd_a/{name}/agents/main/wire.jsonl", records)


class TestCalls:
    """Calls are told apart although their ids are the same."""

    def test_in_two_sessions_of_kimi(self, tmp_path: Path) -> None:
        for name, command in (("session_1", "ls"), ("session_2", "make test")):
            kimi_session(tmp_path / "home", name, command)
        with library_of(tmp_path / "home") as library:
            calls = [
                [e.arguments for e in found if e.type is EventType.TOOL_CALL] for found in events_of(library).values()
            ]
        assert sorted(calls, key=str) == [[{"command": "ls"}], [{"command": "make test"}]]

    def test_in_records_of_qwen_with_one_uuid(self, tmp_path: Path) -> None:
        """The parts of an answer, in several records with the uuid of the answer, are all there."""
        shared = {
            "uuid": "u2",
            "parentUuid": "u1",
            "sessionId": "s1",
            "timestamp": "2026-08-17T13:00:05Z",
            "cwd": "/home/ada",
        }
        thought = {"text": "I should read it.", "thought": True}
        call = {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "a.md"}}}
        answers = [
            {**shared, "type": "assistant", "message": {"role": "model", "parts": [part]}} for part in (thought, call)
        ]
        prompt = {
            **shared,
            "uuid": "u1",
            "parentUuid": None,
            "type": "user",
            "message": {"parts": [{"text": "Read it"}]},
        }
        path = write(tmp_path / ".qwen/projects/-home-ada/chats/s1.jsonl", [prompt, *answers])
        found = events(read(source_named("qwen-code"), path))
        assert [event.type for event in found] == ["user_input", "reasoning", "tool_call"]
        assert len({event.uid for event in found}) == 3

    def test_a_response_of_qwen_that_has_an_id_of_its_own(self, tmp_path: Path) -> None:
        """It belongs to the call that the result names."""
        shared = {"sessionId": "s1", "timestamp": "2026-08-17T13:00:05Z", "cwd": "/home/ada"}
        call = {"functionCall": {"id": "c1", "name": "read_file", "args": {"path": "a.md"}}}
        response = {"functionResponse": {"id": "r1", "name": "read_file", "response": {"output": "ferns"}}}
        records = [
            {**shared, "uuid": "u1", "type": "assistant", "model": "made-up", "message": {"parts": [call]}},
            {
                **shared,
                "uuid": "u2",
                "type": "tool_result",
                "message": {"parts": [response]},
                "toolCallResult": {"callId": "c1"},
            },
        ]
        path = write(tmp_path / ".qwen/projects/-home-ada/chats/s1.jsonl", records)
        _, answer = events(read(source_named("qwen-code"), path))
        assert (answer.call_id, answer.text, answer.originating_model) == ("c1", "ferns", "made-up")


class TestTokens:
    def test_of_two_calls_with_one_id(self, tmp_path: Path) -> None:
        """Servers such as Ollama take ids of answers out of a few; the tokens count in each session all the same."""
        for name, spent in (("s1", 7), ("s2", 5)):
            usage = {"model": "made-up", "inputTokens": 100, "outputTokens": spent, "apiCallId": "chatcmpl-842"}
            records = [
                {"type": "session.start", "id": f"{name}-1", "data": {"sessionId": name}},
                {"type": "user.message", "id": f"{name}-2", "data": {"content": "Go"}},
                {
                    "type": "assistant.message",
                    "id": f"{name}-3",
                    "data": {"content": "Done.", "apiCallId": "chatcmpl-842"},
                },
                {"type": "session.usage_record", "id": f"{name}-4", "data": {"usage": usage}},
            ]
            for number, record in enumerate(records):
                record["timestamp"] = f"2026-08-17T13:00:0{number}Z"
            write(tmp_path / f"home/.copilot/session-state/{name}/events.jsonl", records)
        with library_of(tmp_path / "home") as library:
            spent_in = {
                key: [usage.output_tokens for usage in usage_of(library.archive, key)] for key in events_of(library)
            }
        assert spent_in == {"copilot-cli/s1": [7], "copilot-cli/s2": [5]}


class TestThoughts:
    @pytest.mark.parametrize("repeats", [False, True])
    def test_of_copilot_before_their_message(self, repeats: bool, tmp_path: Path) -> None:
        """A thought in a record of its own is one event, also if its message has it, too."""
        message = {"content": "Done.", "reasoningText": "It is short." if repeats else None}
        records = [
            {"type": "session.start", "id": "1", "data": {"sessionId": "s1"}},
            {"type": "session.auto_mode_resolved", "id": "2", "data": {"chosenModel": "made-up"}},
            {"type": "assistant.reasoning", "id": "3", "data": {"reasoningId": "r", "content": "It is short."}},
            {"type": "assistant.message", "id": "4", "data": message},
        ]
        path = write(tmp_path / "session-state/s1/events.jsonl", records)
        found = events(read(source_named("copilot-cli"), path))
        assert [(event.type, event.text, event.model) for event in found] == [
            ("reasoning", "It is short.", "made-up"),
            ("assistant_response", "Done.", "made-up"),
        ]


def with_beams(value: Any) -> Any:
    """A record, with one block more in each list of blocks or parts that have a text."""
    if isinstance(value, dict):
        return {name: with_beams(each) for name, each in value.items()}
    if isinstance(value, list):
        more = any(isinstance(each, dict) and isinstance(each.get("text"), str) for each in value)
        return [*map(with_beams, value), *([BEAM] if more else ())]
    return value


class TestBlocks:
    @pytest.mark.parametrize(
        "agent",
        [
            "cursor",
            "factory-droid",
            "gemini-cli",
            "iflow",
            "kimi-cli",
            "letta-code",
            "mistral-vibe",
            "oh-my-pi",
            "pi",
            "qoder",
            "qwen-code",
        ],
    )
    def test_of_an_unknown_kind(self, agent: str) -> None:
        """They become events of their own, and are no part of a prompt, a thought or an answer."""
        source, seen = source_named(agent), 0
        for path in transcripts_in(source, SAMPLES / agent / "home"):
            found = events(feed(parser_for(source, path), map(with_beams, records_of(source, path))))
            beams = [event.type for event in found if "hologram" in event.text and "green" in event.text]
            seen += beams.count(EventType.UNKNOWN)
            assert not {EventType.USER_INPUT, EventType.ASSISTANT_RESPONSE, EventType.REASONING}.intersection(beams)
            plain = events(read(source, path))
            said = [(event.type, event.text) for event in plain if event.type is EventType.USER_INPUT]
            assert said == [(event.type, event.text) for event in found if event.type is EventType.USER_INPUT]
        assert seen

    def test_pictures_leave_a_placeholder(self, tmp_path: Path) -> None:
        """The bytes of a picture are no part of a prompt, whatever the form of its block."""
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
        records = [
            {"type": "metadata", "protocol_version": "1.4", "created_at": 1_785_613_800_000},
            {"type": "turn.prompt", "input": [{"type": "text", "text": "Look"}, picture], "origin": {"kind": "user"}},
        ]
        path = write(tmp_path / ".kimi-code/sessions/wd_a/session_1/agents/main/wire.jsonl", records)
        assert [event.text for event in events(read(source_named("kimi-cli"), path))] == ["Look\n[image]"]


class TestOpenCode:
    def test_files_that_are_not_named_by_their_ids(self, tmp_path: Path) -> None:
        """The folders of messages and parts are found by the ids in the files."""
        storage = tmp_path / "home/.local/share/opencode/storage"
        write(storage / "session/global/ses_one.json", [{"id": "one", "title": "Ferns", "directory": "/home/ada"}])
        for number, (role, text) in enumerate((("user", "Water them"), ("assistant", "Done."))):
            write(
                storage / f"message/one/msg_{number}.json",
                [{"id": f"m_{role}", "role": role, "time": {"created": 1_730_000_000}}],
            )
            write(storage / f"part/m_{role}/001.json", [{"id": f"p_{role}", "type": "text", "text": text}])
        with library_of(tmp_path / "home") as library:
            (found,) = events_of(library).items()
        assert found[0] == "opencode/one"
        assert [event.text for event in found[1]] == ["Water them", "Done."]

    def test_an_id_that_leads_elsewhere(self, tmp_path: Path) -> None:
        """An id is the name of a folder, and no way out of the tree."""
        storage, other = tmp_path / "home/.local/share/opencode/storage", tmp_path / "private"
        write(storage / "session/global/one.json", [{"id": "one", "directory": "/home/ada"}])
        write(storage / "message/one/m1.json", [{"id": str(other), "role": "user", "time": {"created": 1_730_000_000}}])
        write(other / "1.json", [{"id": "p", "type": "text", "text": "a secret"}])
        with library_of(tmp_path / "home") as library:
            assert not any(found for found in events_of(library).values())
