"""Made-up Claude Code transcripts, in the shape of the real ones."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_NAMESPACE = uuid.UUID("6f0c2f5e-8f1a-4b7e-9a55-0d3c1a2b4c5d")
_BASE_MS = 1_780_000_000_000


def stable_uuid(*parts: object) -> str:
    return str(uuid.uuid5(_NAMESPACE, "/".join(map(str, parts))))


class Transcript:
    """One session as Claude Code writes it: call the methods in the order of the conversation."""

    def __init__(self, name: str, cwd: str = "/home/dev/shop", *, start_ms: int = _BASE_MS) -> None:
        self.id = stable_uuid(name)
        self.cwd = cwd
        self.records: list[dict[str, Any]] = []
        self._parent: str | None = None
        self._ms = start_ms

    def path(self, home: Path) -> Path:
        slug = "".join(c if c.isalnum() or c == "-" else "-" for c in self.cwd)
        return home / ".claude" / "projects" / slug / f"{self.id}.jsonl"

    def _record(self, kind: str, **fields: Any) -> dict[str, Any]:
        self._ms += 1000
        seconds, millis = divmod(self._ms, 1000)
        from datetime import UTC, datetime

        record = {
            "parentUuid": self._parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": self.cwd,
            "sessionId": self.id,
            "version": "2.1.150",
            "gitBranch": "main",
            "type": kind,
            "uuid": stable_uuid(self.id, len(self.records)),
            "timestamp": f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{millis:03d}Z",
            **fields,
        }
        self._parent = record["uuid"]
        self.records.append(record)
        return record

    def prompt(self, content: str | list[dict[str, Any]]) -> Transcript:
        """A prompt as text, or as blocks."""
        self._record("user", message={"role": "user", "content": content})
        return self

    def answer(self, text: str, stop: str | None = "end_turn") -> Transcript:
        self._assistant([{"type": "text", "text": text}], stop)
        return self

    def call(self, tool: str, arguments: dict[str, Any], output: Any, *, failed: bool = False) -> Transcript:
        """A tool call with its output as text, or as blocks."""
        call_id = f"toolu_{stable_uuid(self.id, 'call', len(self.records))[:8]}"
        self._assistant([{"type": "tool_use", "id": call_id, "name": tool, "input": arguments}], "tool_use")
        result = {"type": "tool_result", "tool_use_id": call_id, "content": output, "is_error": failed}
        self._record(
            "user",
            message={"role": "user", "content": [result]},
            toolUseResult={"stdout": output, "stderr": "", "interrupted": False},
        )
        return self

    def calls(self, calls: Iterable[tuple[str, dict[str, Any], str, bool]]) -> Transcript:
        """Tool calls of one message, each as (tool, arguments, output, failed), and their results."""
        blocks, results = [], []
        for number, (tool, arguments, output, failed) in enumerate(calls):
            call_id = f"toolu_{stable_uuid(self.id, 'calls', len(self.records), number)[:8]}"
            blocks.append({"type": "tool_use", "id": call_id, "name": tool, "input": arguments})
            results.append({"type": "tool_result", "tool_use_id": call_id, "content": output, "is_error": failed})
        self._assistant(blocks, "tool_use")
        for result in results:
            self._record("user", message={"role": "user", "content": [result]})
        return self

    def _assistant(self, content: list[dict[str, Any]], stop: str | None) -> None:
        number = len(self.records)
        self._record(
            "assistant",
            requestId=f"req_{number}",
            message={
                "id": f"msg_{self.id[:8]}_{number}",
                "type": "message",
                "role": "assistant",
                "model": "claude-sonnet-4-5",
                "content": content,
                "stop_reason": stop,
                "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 100},
            },
        )

    def forked(self, name: str) -> Transcript:
        """A fork that has said nothing yet: the records so far, under a session id of its own."""
        fork = Transcript(name, self.cwd, start_ms=self._ms + 3_600_000)
        fork.records = [{**record, "sessionId": fork.id} for record in self.records]
        fork._parent = self._parent
        return fork

    def text(self, start: int = 0) -> str:
        return "".join(json.dumps(record) + "\n" for record in self.records[start:])

    def write(self, home: Path) -> Path:
        path = self.path(home)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text(), "utf-8")
        return path


def write_all(home: Path, transcripts: Iterable[Transcript]) -> None:
    for transcript in transcripts:
        transcript.write(home)
