"""The scripted model that real agents talk to: it answers in each wire format, and the same way every time."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.model_server import Service
from tests.agents.sandbox import can_seal, reason_not_to_run
from tests.agents.script import MORE_PROMPTS, PROMPTS, SPAWN, Request, Said, Tool, answer, answer_of
from tests.agents.versions import BEGIN, END, note_resumed, note_version

SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
PROMPT = PROMPTS[1]
TOOLS = [Tool("bash", SHELL), Tool("write", {"properties": {"path": {}, "content": {}}, "required": ["path"]})]
CHAT = {
    "messages": [{"role": "user", "content": PROMPT}],
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": SHELL}}],
}
REQUESTS = {
    "/v1/messages": {"messages": CHAT["messages"], "tools": [{"name": "bash", "input_schema": SHELL}]},
    "/v1/chat/completions": CHAT,
    "/v1/responses": {"input": PROMPT, "tools": [{"type": "function", "name": "bash", "parameters": SHELL}]},
    "/v1beta/models/m:generateContent": {
        "contents": [{"role": "user", "parts": [{"text": PROMPT}]}],
        "tools": [{"functionDeclarations": [{"name": "bash", "parameters": SHELL}]}],
    },
}


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(0, tmp_path / "log.jsonl", "/home/dev/demo")
    thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield service
    service.shutdown()
    thread.join()
    service.server_close()


def post(service: Service, path: str, body: dict[str, Any]) -> str:
    request = urllib.request.Request(f"http://127.0.0.1:{service.server_port}{path}", json.dumps(body).encode())
    with urllib.request.urlopen(request) as response:
        return str(response.read(), "utf-8")


class TestScript:
    """The model calls the tools of a task one after the other, then it answers."""

    def test_steps_of_a_task(self) -> None:
        said = [Said("user", PROMPTS[2])]
        calls = []
        for _ in range(2):
            given = answer(Request(said, TOOLS), "/demo")
            calls += [(tool.name, arguments) for tool, arguments in given.calls]
            said += [Said("assistant", given.text), Said("call"), Said("result", "done")]
        assert [name for name, _ in calls] == ["write", "bash"]
        assert calls[0][1]["path"] == "/demo/note-2.txt"
        assert "exit 3" in calls[1][1]["command"]
        assert answer(Request(said, TOOLS), "/demo").text == answer_of(2)

    def test_helpers(self) -> None:
        """The third task is for a helper, where the agent has such a tool."""
        spawn = Tool("spawn_agent", {"properties": {"message": {"type": "string"}}, "required": ["message"]})
        ((tool, arguments),) = answer(Request([Said("user", MORE_PROMPTS[SPAWN])], [spawn]), "/").calls
        assert (tool, arguments["message"]) == (spawn, "SUBTASK-3 Say hello.")
        assert answer(Request([Said("user", MORE_PROMPTS[SPAWN])], TOOLS), "/").text == answer_of(SPAWN)

    def test_requests_beside_the_conversation(self) -> None:
        done = [Said("user", PROMPT), Said("assistant", answer_of(1)), Said("user", f"Summarise: {PROMPT}")]
        schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
        assert answer(Request([Said("user", PROMPT)], []), "/").task == 0
        assert answer(Request(done, TOOLS), "/").task == 0
        assert "title" in json.loads(answer(Request([], [], schema), "/").text)


class TestWireFormats:
    """A request in each format gets a tool call, whole and as a stream."""

    @pytest.mark.parametrize("path", REQUESTS)
    def test_whole_and_streamed(self, service: Service, path: str, tmp_path: Path) -> None:
        body = REQUESTS[path]
        streamed = path.replace(":generate", ":streamGenerate")
        for text in (post(service, path, body), post(service, streamed, {**body, "stream": True})):
            assert "hello-from-tool-1" in text
            assert "Working on TASK-1, step 1." in text
            assert "1001" in text  # tokens of the input
        logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
        assert [(entry["task"], entry["calls"], entry["output"]) for entry in logged] == [(1, ["bash"], 50)] * 2

    def test_json_lines(self, service: Service) -> None:
        """Augment's format has no events: a line is a document."""
        tool = {"name": "bash", "input_schema_json": json.dumps(SHELL)}
        text = post(service, "/chat-stream", {"message": PROMPT, "tool_definitions": [tool]})
        nodes = [json.loads(line)["nodes"][0] for line in text.splitlines()]
        assert [node["type"] for node in nodes] == [8, 0, 5, 10]
        assert "hello-from-tool-1" in nodes[2]["tool_use"]["input_json"]

    def test_other_requests(self, service: Service) -> None:
        assert "input_tokens" in post(service, "/v1/messages/count_tokens", {})
        assert post(service, "/telemetry", {}) == "{}"


class TestSeal:
    """Agents run sealed off, or because somebody said so."""

    def test_without_root(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("os.geteuid", lambda: 1000)
        monkeypatch.setattr("tests.agents.sandbox.ROOT", Path("/srv/backstory"))
        assert "root" in (reason_not_to_run({}) or "")
        assert reason_not_to_run({"BACKSTORY_UNSEALED": "1"}) is None

    def test_a_checkout_that_the_seal_would_hide(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Agents see other folders `/tmp` and `/home`: not what is installed there."""
        monkeypatch.setattr("os.geteuid", lambda: 0)
        monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
        for place in ("/tmp/backstory", "/home/dev/backstory"):
            monkeypatch.setattr("tests.agents.sandbox.ROOT", Path(place))
            assert place in (reason_not_to_run({}) or "")
            assert not can_seal()
            assert reason_not_to_run({"BACKSTORY_UNSEALED": "1"}) is None


class TestVersions:
    """Versions that passed stand in the docs between two marks."""

    def test_a_newer_version_replaces_the_older_one(self, tmp_path: Path) -> None:
        """The version that was resumed last stays, and only an agent that passed has a row."""
        docs = tmp_path / "sources.md"
        docs.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
        note_version("pi", "pi-agent", "1.0", "", "", docs)
        note_version("codex", "codex-agent", "0.9", "tokens", "", docs)
        note_resumed("pi", "1.0", docs)
        note_resumed("goose", "1.0", docs)
        note_version("pi", "pi-agent", "1.1", "", "", docs)
        lines = docs.read_text().splitlines()
        assert (lines[0], lines[-1]) == ("before", "after")
        rows = [line for line in lines if line.startswith("| ")]
        assert rows[1:] == ["| Codex | `codex-agent` | 0.9 |  | tokens |  |", "| Pi | `pi-agent` | 1.1 | 1.0 |  |  |"]
