"""Live sessions as transcripts: what is written to them is found like everything else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory.archive.base import EventRow
from backstory.archive.spans import Window
from backstory.library import Library
from backstory.model import EventType
from backstory.sources import load_sources
from tests.live_world import World, assistant, custom, result, text, user
from tests.traces_world import caller

QUICK = {"adapter": {"name": "fs", "config": {"fsync": "off"}}}


class Machine:
    """Backstory's home with live sessions, and the archive that reads them."""

    def __init__(self, folder: Path) -> None:
        home = folder / ".backstory"
        self.world = World(home, QUICK)
        self.library = Library(home, agents_home=folder, environ={})

    def events(self, session_id: str) -> list[EventRow]:
        """Of the session, as the archive has them after a sync."""
        self.library.sync()
        archive, key = self.library.archive, f"live/{session_id}"
        return [event for turn in archive.turns(key) for event in archive.events(key, turn.ordinal)]

    def texts(self, session_id: str) -> list[str]:
        return [event.text for event in self.events(session_id)]

    def row(self, session_id: str) -> Any:
        self.library.sync()
        return self.library.archive.session(f"live/{session_id}")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.library.close()
    machine.world.end()


class TestFiles:
    """The session files and nothing else of the folder are transcripts."""

    def test_accepted(self, tmp_path: Path) -> None:
        (source,) = load_sources(["live"])
        folder = tmp_path / ".backstory" / "live"
        assert source.roots(tmp_path, {}) == [folder]
        assert source.roots(tmp_path, {"BACKSTORY_HOME": "/b"}) == [Path("/b/live")]
        assert source.accepts(folder / "s_1.jsonl")
        assert not source.accepts(folder / ".store" / "journal" / "0000000000000000.jsonl")
        assert not source.accepts(folder / "%zz.jsonl")
        assert not source.accepts(folder / "notes.txt")
        described = source.describe(folder / "a%20b.jsonl", b'{"type":"meta"')
        assert described is not None
        assert described.session == "a b"
        assert source.describe(folder / "a.jsonl", b"something else") is None

    def test_configured(self, tmp_path: Path) -> None:
        (source,) = load_sources(["live"])
        config = tmp_path / "config.toml"
        environ = {"BACKSTORY_HOME": str(tmp_path), "WHERE": "here"}
        config.write_text("[live]\nadapter = {name = 'fs', config = {data_dir = '${WHERE}/it/is'}}\n")
        assert source.roots(tmp_path, environ) == [tmp_path / "here" / "it" / "is"]
        config.write_text("[live]\nadapter = {name = 'bridge', config = {url = 'ws://h'}}\n")
        assert source.roots(tmp_path, environ) == []
        config.write_text("nonsense")
        assert source.roots(tmp_path, environ) == [tmp_path / "live"]


class TestEvents:
    """Every kind of entry becomes what it is in any other transcript."""

    def test_a_conversation(self, machine: Machine) -> None:
        world = machine.world
        session_id = world.session(title="Weather", description="about rain")
        world.append(session_id, user("will it rain?"))
        blocks = [
            {"type": "thinking", "text": "let me see"},
            {"type": "text", "text": "I will look."},
            {"type": "function_call", "id": "c1", "function_id": "weather::get", "arguments": {"city": "Oslo"}},
        ]
        usage = {"input": 10, "output": 5, "cache_read": 100, "cost_usd": 0.25}
        world.append(session_id, {**assistant(usage=usage), "content": blocks, "stop_reason": "function_call"})
        world.append(session_id, result("rain", function_id="weather::get", is_error=True))
        world.append(session_id, custom("shown to the user"))
        world.call("append", session_id=session_id, custom={"custom_type": "compaction", "data": {"summary": "so far"}})
        world.append(session_id, assistant("Yes, it will."))
        events = machine.events(session_id)
        assert [(event.type, event.text) for event in events if event.type is not EventType.TOOL_CALL] == [
            (EventType.USER_INPUT, "will it rain?"),
            (EventType.REASONING, "let me see"),
            (EventType.ASSISTANT_RESPONSE, "I will look."),
            (EventType.TOOL_RESPONSE, "rain"),
            (EventType.SYSTEM, "shown to the user"),
            (EventType.COMPACTION, "so far"),
            (EventType.ASSISTANT_RESPONSE, "Yes, it will."),
        ]
        (call,) = [event for event in events if event.type is EventType.TOOL_CALL]
        assert (call.tool, call.call_id, call.arguments, call.model) == ("weather::get", "c1", {"city": "Oslo"}, "m-1")
        (response,) = [event for event in events if event.type is EventType.TOOL_RESPONSE]
        assert (response.call_id, response.failed, response.originating_model) == ("c1", True, "m-1")
        row = machine.row(session_id)
        assert (row.title, row.summary, row.completed) == ("Weather", "about rain", True)

    def test_images(self, machine: Machine) -> None:
        session_id = machine.world.session()
        image = {"type": "image", "mime": "image/png", "data": "AAAA"}
        machine.world.append(session_id, {**user(), "content": [*text("draw this"), image]})
        machine.world.append(session_id, {**assistant(), "content": [image, image]})
        events = machine.events(session_id)
        assert [(event.type, event.text) for event in events] == [
            (EventType.USER_INPUT, "draw this\n[image image/png]"),
            (EventType.ASSISTANT_RESPONSE, "[image image/png]\n[image image/png]"),
        ]
        assert machine.row(session_id).completed

    def test_turns(self, machine: Machine) -> None:
        session_id = machine.world.session()
        for number in range(3):
            machine.world.append(session_id, user(f"q{number}"))
            machine.world.append(session_id, assistant(f"a{number}"))
        machine.library.sync()
        turns = machine.library.archive.turns(f"live/{session_id}")
        assert [turn.completed for turn in turns] == [True, True, True]

    def test_fork(self, machine: Machine) -> None:
        session_id = machine.world.session(title="T")
        entry_id = machine.world.append(session_id, user("a"))
        fork = machine.world.call("fork", session_id=session_id, entry_id=entry_id)["session_id"]
        row = machine.row(fork)
        assert (row.forked_from, row.title) == (f"live/{session_id}", "T")

    def test_read_bit_by_bit(self, machine: Machine) -> None:
        session_id = machine.world.session(title="first")
        assert machine.texts(session_id) == []
        for number in range(4):
            machine.world.append(session_id, user(f"{number}"))
            assert machine.texts(session_id) == [f"{n}" for n in range(number + 1)]
        machine.world.call("set-meta", session_id=session_id, title="second")
        assert machine.row(session_id).title == "second"

    def test_records_of_other_writers(self, machine: Machine) -> None:
        meta = {"session_id": "x", "title": "T", "description": "", "status": "idle", "created_at": 1}
        entry = {"kind": "message", "id": "a", "timestamp": 1717800000000, "message": user("theirs")}
        lines = [
            {"type": "append", "entry": entry, "meta": meta},
            {"type": "commit", "entry_id": "a"},
            {"type": "leaf", "entry_id": "a"},
        ]
        machine.world.file("x").write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert machine.texts("x") == ["theirs"]


def answered_call(failed: bool) -> dict[str, Any]:
    """An answer with a call that the provider carried out itself."""
    call = {"type": "function_call", "id": "c1", "function_id": "web::search", "arguments": {}}
    response = {"type": "function_result", "function_call_id": "c1", "content": text("found"), "is_error": failed}
    return {**assistant(), "content": [call, response, *text("It rains.")]}


class TestEndings:
    """The last message of a turn, or the status of the session, says whether it ended, and how."""

    @pytest.mark.parametrize(
        ("message", "status", "name", "said"),
        [
            (assistant("Yes."), "success", "chat m-1", "Yes."),
            (assistant("Yes, bec", stop_reason="length"), "success", "chat m-1", "Yes, bec"),
            (answered_call(failed=False), "success", "chat m-1", "It rains."),
            (answered_call(failed=True), "error", "chat m-1", "It rains."),
            (assistant("Wel", stop_reason="error"), "error", "runtime", "The request failed."),
            (
                assistant("", stop_reason="error", error_kind="rate_limited"),
                "error",
                "runtime",
                "rate_limited",
            ),
            (assistant("", stop_reason="error", error_message="overloaded"), "error", "runtime", "overloaded"),
            (assistant("", stop_reason="aborted"), "error", "interrupt", "The request was aborted."),
            (assistant("Wel", stop_reason="aborted"), "error", "interrupt", "The request was aborted."),
        ],
    )
    def test_by_the_last_message(
        self, machine: Machine, message: dict[str, Any], status: str, name: str, said: str
    ) -> None:
        session_id = machine.world.session()
        machine.world.append(session_id, user("will it rain?"))
        machine.world.append(session_id, message)
        machine.library.sync()
        call = caller(machine.library.archive)
        (trace,) = call("list_traces", sessionId=session_id)["traces"]
        root, *spans = call("get_trace", traceId=trace["id"])["trace"]["spans"]
        assert (trace["status"], root["status"]) == (status, "success" if name == "chat m-1" else "error")
        assert (name, said) in [(span["name"], span["data"].get("output")) for span in spans]

    def test_an_answer_after_an_error(self, machine: Machine) -> None:
        session_id = machine.world.session()
        machine.world.append(session_id, user("will it rain?"))
        machine.world.append(session_id, assistant("", stop_reason="error", error_message="overloaded"))
        machine.world.append(session_id, assistant("Yes."))
        machine.library.sync()
        (turn,) = machine.library.archive.turns(f"live/{session_id}")
        assert (turn.completed, turn.terminal_type) == (True, EventType.ASSISTANT_RESPONSE)

    @pytest.mark.parametrize(
        ("last", "completed"),
        [
            (assistant("", usage={"output": 3}), True),
            ({**assistant(), "content": [{"type": "thinking", "text": "that is all"}]}, True),
            (assistant("", usage={"output": 3}, stop_reason="function_call"), False),
            (assistant(""), False),  # an answer that just begins, as it is streamed
        ],
    )
    def test_by_a_message_that_says_nothing(self, machine: Machine, last: dict[str, Any], completed: bool) -> None:
        session_id = machine.world.session()
        machine.world.append(session_id, user("will it rain?"))
        call = {"type": "function_call", "id": "c1", "function_id": "calc"}
        machine.world.append(session_id, {**assistant(), "content": [*text("I look."), call]})
        machine.world.append(session_id, result("no"))
        machine.world.append(session_id, last)
        assert machine.row(session_id).completed is completed
        machine.world.append(session_id, assistant("No."))
        assert machine.row(session_id).completed

    def test_a_failure_is_told_once(self, machine: Machine) -> None:
        session_id = machine.world.session()
        said = []
        for reason in (None, "", "overloaded", "out of credit"):
            machine.world.call("set-status", session_id=session_id, status="working")
            machine.world.append(session_id, user("will it rain?"))
            machine.world.append(session_id, assistant("", stop_reason="error", error_message="overloaded"))
            machine.world.call("set-status", session_id=session_id, status="error", reason=reason)
            said += ["will it rain?", "overloaded", *([reason] if reason == "out of credit" else [])]
        assert machine.texts(session_id) == said
        traces = caller(machine.library.archive)("list_traces", sessionId=session_id)["traces"]
        assert [trace["status"] for trace in traces] == ["error"] * 4

    def test_by_the_status(self, machine: Machine) -> None:
        session_id = machine.world.session()
        machine.world.call("set-status", session_id=session_id, status="error", reason="before anything was said")
        machine.world.call("set-status", session_id=session_id, status="working")
        machine.world.append(session_id, user("will it rain?"))
        machine.world.call("set-status", session_id=session_id, status="error", reason="out of credit")
        events = machine.events(session_id)
        assert [event.text for event in events] == ["will it rain?", "out of credit"]
        (trace,) = caller(machine.library.archive)("list_traces", sessionId=session_id)["traces"]
        assert trace["status"] == "error"
        machine.world.append(session_id, custom("a note"))  # the file says again that the status is `error`
        assert machine.texts(session_id) == ["will it rain?", "out of credit", "a note"]


class TestCalls:
    """A call ends with its result, however little that says and wherever it stands."""

    def spans(self, machine: Machine, session_id: str) -> list[tuple[str, str, Any, Any]]:
        machine.library.sync()
        call = caller(machine.library.archive)
        (trace,) = call("list_traces", sessionId=session_id)["traces"]
        spans = call("get_trace", traceId=trace["id"])["trace"]["spans"]
        return [
            (span["name"], span["status"], span["data"].get("input"), span["data"].get("output"))
            for span in spans
            if span["name"] == "calc"
        ]

    def begin(self, machine: Machine, arguments: Any) -> tuple[str, str]:
        session_id = machine.world.session()
        machine.world.append(session_id, user("what is it?"))
        return session_id, machine.world.append(session_id, self.calling(arguments))

    def calling(self, arguments: Any) -> dict[str, Any]:
        content = [{"type": "function_call", "id": "c1", "function_id": "calc", "arguments": arguments}]
        return {**assistant(stop_reason="function_call"), "content": content}

    @pytest.mark.parametrize(("is_error", "status"), [(False, "success"), (True, "error")])
    def test_empty_result(self, machine: Machine, is_error: bool, status: str) -> None:
        session_id, _ = self.begin(machine, {})
        machine.world.append(session_id, {**result(is_error=is_error), "content": []})
        assert [span[:2] for span in self.spans(machine, session_id)] == [("calc", status)]

    def test_result_in_a_user_message(self, machine: Machine) -> None:
        session_id, _ = self.begin(machine, {})
        block = {"type": "function_result", "function_call_id": "c1", "content": text("forty-two"), "is_error": True}
        machine.world.append(session_id, {**user("and now?"), "content": [block]})
        assert self.spans(machine, session_id) == [("calc", "error", {}, "forty-two")]
        machine.world.append(session_id, {**user(), "content": [block, *text("and now?")]})
        assert [event.text for event in machine.events(session_id) if event.type is EventType.USER_INPUT] == [
            "what is it?",
            "and now?",
        ]

    def test_call_and_result_that_grow(self, machine: Machine) -> None:
        session_id, asked = self.begin(machine, None)
        assert self.spans(machine, session_id) == [("calc", "pending", None, None)]
        content = self.calling({"x": 6})["content"]
        machine.world.call("update-message", session_id=session_id, entry_id=asked, content=content)
        assert self.spans(machine, session_id) == [("calc", "pending", {"x": 6}, None)]
        answered = machine.world.append(session_id, {**result(), "content": []})
        for words in ("4", "42"):
            machine.world.call("update-message", session_id=session_id, entry_id=answered, content=text(words))
            assert self.spans(machine, session_id) == [("calc", "success", {"x": 6}, words)]


class TestForks:
    """What a fork repeats was spent once."""

    def test_usage(self, machine: Machine) -> None:
        session_id = machine.world.session()
        machine.world.append(session_id, user("will it rain?"))
        usage = {"input": 10, "output": 5, "cost_usd": 0.25}
        entry_id = machine.world.append(session_id, assistant("Yes.", usage=usage))
        fork = machine.world.call("fork", session_id=session_id, entry_id=entry_id)["session_id"]
        again = machine.world.call("fork", session_id=fork, entry_id=self.last(machine, fork))["session_id"]
        for one in (fork, again):
            machine.world.append(one, user("and tomorrow?"))
            machine.world.append(one, assistant("No.", usage={"input": 1, "output": 2, "cost_usd": 0.5}))
        machine.library.sync()
        call = caller(machine.library.archive)
        spent = {
            one: [trace.get("totalCost") for trace in call("list_traces", sessionId=one)["traces"]]
            for one in (session_id, fork, again)
        }
        assert spent == {session_id: [0.25], fork: [0.5, None], again: [0.5, None]}
        (total,) = machine.library.archive.spans.usage(Window(source="live"))
        assert (total.calls, total.input_tokens, total.output_tokens, total.cost) == (3, 12, 9, 1.25)

    def last(self, machine: Machine, session_id: str) -> str:
        page = machine.world.call("messages", session_id=session_id)
        return str(page["messages"][-1]["entry_id"])


class TestStreaming:
    """A growing answer is emitted as it is when it is read, no part of it twice, and no word is cut."""

    def stream(self, machine: Machine, session_id: str, entry_id: str, words: str) -> None:
        machine.world.call("update-message", session_id=session_id, entry_id=entry_id, content=text(words))

    def test_read_at_the_end(self, machine: Machine) -> None:
        session_id = machine.world.session()
        entry_id = machine.world.append(session_id, assistant(""))
        for words in ("It", "It is", "It is done"):
            self.stream(machine, session_id, entry_id, words)
        assert machine.texts(session_id) == ["It is done"]

    def test_while_the_session_is_working_it_waits(self, machine: Machine) -> None:
        session_id = machine.world.session()
        machine.world.call("set-status", session_id=session_id, status="working")
        machine.world.append(session_id, user("go"))
        whole = machine.world.append(session_id, assistant("not streamed"))
        assert machine.texts(session_id) == ["go", "not streamed"]
        entry_id = machine.world.append(session_id, assistant(""))
        for words in ("It", "It is", "It is done"):
            self.stream(machine, session_id, entry_id, words)
            assert machine.texts(session_id) == ["go", "not streamed"]
        machine.world.call("set-status", session_id=session_id, status="done")
        assert machine.texts(session_id) == ["go", "not streamed", "It is done"]
        assert machine.row(session_id).completed
        assert whole

    def test_what_comes_after_it_ends_the_wait(self, machine: Machine) -> None:
        session_id = machine.world.session()
        machine.world.call("set-status", session_id=session_id, status="working")
        entry_id = machine.world.append(session_id, assistant(""))
        self.stream(machine, session_id, entry_id, "answer")
        assert machine.texts(session_id) == []
        machine.world.append(session_id, user("next"))
        assert machine.texts(session_id) == ["answer", "next"]

    def test_read_while_it_grows(self, machine: Machine) -> None:
        session_id = machine.world.session()
        entry_id = machine.world.append(session_id, assistant(""))
        seen = []
        for words in ("Hel", "Hello wor", "Hello world", "Hello world and more"):
            self.stream(machine, session_id, entry_id, words)
            seen = machine.texts(session_id)
        assert seen == ["Hel", "Hello wor", "world", " and more"]

    def test_thoughts_read_while_they_grow(self, machine: Machine) -> None:
        session_id = machine.world.session()
        entry_id = machine.world.append(session_id, assistant(""))
        for words in ("Hmm", "Hmm, let", "Hmm, let me see"):
            thought = {"type": "thinking", "text": words}
            machine.world.call("update-message", session_id=session_id, entry_id=entry_id, content=[thought])
            machine.library.sync()
        blocks = [{"type": "thinking", "text": "Hmm, let me see"}, *text("Yes.")]
        machine.world.call("update-message", session_id=session_id, entry_id=entry_id, content=blocks)
        assert machine.texts(session_id) == ["Hmm", "Hmm, let", " me see", "Yes."]

    def test_rewritten_text_is_told_again(self, machine: Machine) -> None:
        session_id = machine.world.session()
        entry_id = machine.world.append(session_id, user("one thing"))
        assert machine.texts(session_id) == ["one thing"]
        self.stream(machine, session_id, entry_id, "another thing")
        assert machine.texts(session_id) == ["one thing", "another thing"]

    def test_compaction_loses_and_repeats_nothing(self, machine: Machine) -> None:
        world = machine.world
        session_id = world.session()
        world.append(session_id, user("question"))
        entry_id = world.append(session_id, assistant("answer"))
        other = world.append(session_id, assistant(""))
        before = machine.texts(session_id)
        for number in range(200):
            self.stream(machine, session_id, other, "x" * 100 * number)
        self.stream(machine, session_id, other, "the end of it")
        store: Any = world.live._adapter._store  # type: ignore[attr-defined]
        world.run(store.compact(session_id))
        after = machine.texts(session_id)
        assert after == [*before, "the end of it"]
        assert entry_id


class TestSearch:
    """A search finds appended messages."""

    def test_found(self, machine: Machine) -> None:
        stop = threading.Event()
        watcher = threading.Thread(target=machine.library.watch, args=(stop,))
        machine.world.session()
        machine.library.sync()
        watcher.start()
        try:
            session_id = machine.world.session()
            machine.world.append(session_id, user("first contact"))
            self.wait_for(machine, "first contact")  # the watcher is up
            machine.world.append(session_id, user("the zanzibar protocol"))
            self.wait_for(machine, "zanzibar")
        finally:
            stop.set()
            watcher.join(60)

    def wait_for(self, machine: Machine, words: str) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if words in json.dumps(machine.library.search(words)["data"]["results"]):  # the query itself is echoed too
                return
            time.sleep(0.02)
        raise AssertionError(f"not found: {words}")
