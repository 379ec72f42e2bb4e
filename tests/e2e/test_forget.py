"""Forgetting while other processes write, and when the process that does it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from backstory.archive.base import SearchRequest
from backstory.library import Library
from backstory.model import SEARCHABLE_TYPES, session_id
from tests.archive_world import is_forgotten
from tests.e2e.served import PATIENCE, PROGRAM, Served, environment, eventually, run
from tests.transcripts import Transcript

SECRET = "xylophagous"


def write(home: Path, name: str, word: str, turns: int = 5) -> Transcript:
    transcript = Transcript(name)
    for number in range(turns):
        transcript.prompt(f"question {number} about {word}")
        transcript.call("Bash", {"command": f"grep {word}"}, f"{word} output {number} " * 20).answer(
            f"{word} answer {number}"
        )
    transcript.write(home)
    return transcript


def hits(library: Library, word: str) -> int:
    return len(library.archive.search(SearchRequest(query=word, types=SEARCHABLE_TYPES, limit=50)).hits)


def holding(folder: Path, word: str) -> list[str]:
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and word.encode() in path.read_bytes():
                found.append(path.name)
    return found


class TestAnotherWriter:
    """A process that keeps the archive live forgets sessions for other processes."""

    @pytest.mark.parametrize("server", ["watch", "mcp"])
    def test_forget_beside_it(self, tmp_path: Path, server: str) -> None:
        secret, other = write(tmp_path, "secret", SECRET), write(tmp_path, "other", "nougat")
        with subprocess.Popen(
            [*PROGRAM, server], env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            library = Library(tmp_path / ".backstory", agents_home=tmp_path, environ={})
            try:
                eventually(lambda: hits(library, "nougat") == hits(library, SECRET) == 20)
                result = run(tmp_path, "forget", secret.id, "--yes", "--json")
                assert result.returncode == 0, result.stderr
                assert process.poll() is None
                assert hits(library, SECRET) == 0
                assert holding(tmp_path / ".backstory", SECRET) == []
                secret.prompt(f"more {SECRET}").write(tmp_path)
                other.prompt("more nougat").write(tmp_path)
                eventually(lambda: hits(library, "more"))
                assert hits(library, SECRET) == 0
            finally:
                library.close()
                process.send_signal(signal.SIGTERM)


class TestTelemetry:
    """Telemetry of a forgotten session is not kept, neither as spans nor as a conversation."""

    def test_sent_before_and_after(self, tmp_path: Path) -> None:
        secret = write(tmp_path, "secret", SECRET)
        ids = {"claude-code": secret.id, "by-hand": "demo"}
        with Served(tmp_path) as server:
            for service, session in ids.items():
                send(server, service, session, SECRET, "aa")
            folder = tmp_path / ".backstory"
            # Both sessions: the transcript, and the messages that no transcript has.
            eventually(lambda: len(hits_of(server, SECRET)) > 20 and hits_of(server, '"by-hand asks"'))
            for source, session in (("claude-code", secret.id), ("otel", "demo")):
                result = run(tmp_path, "forget", f"{source}/{session}", "--yes")
                assert result.returncode == 0, result.stderr
            for service, session in ids.items():
                send(server, service, session, SECRET, "aa")
                send(server, service, session, SECRET, "bb")
            send(server, "by-hand", "other", "nougat", "cc")
            eventually(lambda: hits_of(server, "nougat"))
            assert hits_of(server, SECRET) == []
            traces = server.tool("search_spans", {"limit": 200})["items"]
            assert [span["name"] for span in traces] == ["chat nougat"]
            assert holding(folder, SECRET) == []
            assert holding(folder, "demo") == []


def hits_of(server: Served, word: str) -> list[Any]:
    found = server.tool("search_sessions", {"query": word, "event_types": list(SEARCHABLE_TYPES), "n_hits": 50})
    return list(found["data"]["results"])


def send(server: Served, service: str, session: str, word: str, trace: str) -> None:
    said = [{"role": "user", "content": f"{service} asks about {word}"}]
    table = {"session.id": session, "gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(said)}
    attributes = [{"key": name, "value": {"stringValue": value}} for name, value in table.items()]
    trace_id = (trace + service.encode().hex() + "0" * 32)[:32]
    span = {
        "traceId": trace_id, "spanId": f"{trace}00000000000000", "name": f"chat {word}", "attributes": attributes,
        "startTimeUnixNano": "1767225600000000000", "endTimeUnixNano": "1767225600005000000",
    }  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    assert httpx.post(f"{server.url}/v1/traces", json=body, timeout=PATIENCE).status_code == 200


class TestKill:
    """kill -9 at any moment: a session is there as a whole, or it is forgotten as a whole."""

    @pytest.mark.parametrize("kills", [6, pytest.param(40, marks=pytest.mark.slow)])
    def test_all_or_nothing(self, tmp_path: Path, kills: int) -> None:
        chance = random.Random(kills)
        folder = tmp_path / ".backstory"
        write(tmp_path, "other", "nougat")
        for number in range(kills):
            word = f"{SECRET}{number}"
            key = f"claude-code/{write(tmp_path, word, word).id}"
            with Library(folder, agents_home=tmp_path, environ={}) as library:
                library.sync()
            command = [sys.executable, "-c", _FORGET, str(folder), session_id(key)]
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, env={**os.environ, "HOME": str(tmp_path)}
            ) as process:
                assert process.stdout is not None
                assert process.stdout.readline()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=chance.random() * 0.4)
                process.kill()
            with Library(folder, agents_home=tmp_path, environ={}) as library:
                asked = key in library.archive.sync_state().forgetting or is_forgotten(library.archive, key)
                library.sync()
                assert library.archive.sync_state().forgetting == ()
                assert library.archive.sync_state().recovered
                assert hits(library, word) == (0 if asked else 20)
                assert (library.archive.session(key) is None) == asked
                assert hits(library, "nougat") == 20
            if asked:
                assert holding(folder, word) == []


_FORGET = """
import sys
from pathlib import Path
from backstory.library import Library
from tests.archive_world import is_forgotten
library = Library(Path(sys.argv[1]))
library.archive.spans
print("ready", flush=True)
library.forget(sys.argv[2])
"""
