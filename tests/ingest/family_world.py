"""A made-up home of transcripts that copy one another, and what an archive made of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec

from backstory.archive.base import SearchRequest, SessionRow, SessionsRequest
from backstory.archive.spans import TraceQuery
from backstory.library import Library
from backstory.model import SEARCHABLE_TYPES
from tests.archive_world import children_of, usage_of
from tests.transcripts import Transcript, stable_uuid

Files = dict[str, list[bytes]]
"""The lines of every file, by its path below the home."""

SECONDS = 1_780_000_000
QUERIES = ("question", "answer", "fork", "grep", "turn", "agent", "summary")


# Claude Code


def lines(records: list[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(record).encode() + b"\n" for record in records]


def fork(original: Transcript, name: str, upto: int, **mark: Any) -> Transcript:
    """The chain up to a record under another session id, as Claude Code copies it; it goes on an hour later."""
    copy = Transcript(name, original.cwd, start_ms=original._ms + 3_600_000)
    copy.records = [{**record, "sessionId": copy.id, **mark} for record in original.records[:upto]]
    copy._parent = copy.records[-1]["uuid"]
    return copy


def claude_code() -> Files:
    first = Transcript("first").prompt("question one").call("Bash", {"command": "grep one"}, "one found")
    first.answer("answer one").prompt("question two").answer("answer two")
    first.prompt("question three").answer("answer three")
    second = fork(first, "second", 6).prompt("fork of two").answer("answer to the fork")
    third = fork(second, "third", 8).prompt("fork of the fork").answer("answer far away")
    marked = fork(first, "marked", 4, forkedFrom={"sessionId": first.id}).prompt("marked fork").answer("answer, marked")
    old = Transcript("old", "/home/dev/old").prompt("question of old").answer("answer of old", None)
    old.prompt("another question").answer("another answer", None)
    agents = {(old, name): with_agent(old, name) for name in ("a1", "a2")}
    agents[third, "a3"] = with_agent(third, "a3")
    moved = Transcript("moved", "/home/dev/one").prompt("question here").answer("answer here")
    there = Transcript("moved", "/home/dev/two", start_ms=moved._ms + 60_000)
    there.records, here = list(moved.records), len(moved.records)
    there.prompt("question there").answer("answer there")
    there.records = there.records[here:]
    files = {relative(each): lines(each.records) for each in (first, second, third, marked, old, moved, there)}
    for (session, name), records in agents.items():
        files[agent_path(session, name)] = lines(records)
    helped, helper = with_helper()
    files[relative(helped)] = lines(helped.records)
    files[relative(helped).removesuffix(".jsonl") + "/subagents/agent-acompact-b2.jsonl"] = lines(helper)
    # Somebody keeps copies of his transcripts where they are found, too.
    files[relative(first).replace("-home-dev-shop", "-backup")] = lines(first.records[:5])
    return files


def relative(transcript: Transcript) -> str:
    return str(transcript.path(Path("/")).relative_to("/"))


def agent_path(session: Transcript, agent: str) -> str:
    return relative(session).removesuffix(".jsonl") + f"/subagents/agent-{agent}.jsonl"


def with_agent(session: Transcript, agent: str) -> list[dict[str, Any]]:
    """Let a session start an agent and repeat what it does, as versions before 2.1.80 or so did. Gives the agent's own
    transcript."""
    call = f"toolu_{session.id[:8]}_{agent}"
    arguments = {"description": "Look around", "prompt": f"agent {agent}, look around", "subagent_type": "x"}
    session.prompt(f"question for agent {agent}")
    session._assistant([{"type": "tool_use", "id": call, "name": "Task", "input": arguments}], None)
    task = Transcript(f"task of {agent}", session.cwd, start_ms=session._ms)
    task.prompt(f"agent {agent}, look around").call("Read", {"file_path": "a.py"}, "text of a.py")
    task.answer("agent has looked", None)
    records = [{**record, "sessionId": session.id, "isSidechain": True, "agentId": agent} for record in task.records]
    for record in records[:3]:
        message = {name: record[name] for name in ("type", "message", "uuid", "timestamp")}
        progress = {"type": "agent_progress", "agentId": agent, "message": message}
        session._record("progress", data=progress, parentToolUseID=call, toolUseID="x")
    result = {"type": "tool_result", "tool_use_id": call, "content": "agent has looked"}
    session._record("user", message={"role": "user", "content": [result]}, toolUseResult={"agentId": agent})
    session.answer("answer after the agent", None)
    return records


def with_helper() -> tuple[Transcript, list[dict[str, Any]]]:
    """A session one of whose answers stands in the file of the run that summarised it."""
    session = (
        Transcript("helped", "/home/dev/helped").prompt("question to be helped with").answer("answer that strayed")
    )
    strayed = session.records.pop()
    session.prompt("question after the summary").answer("answer after the summary")
    helper = Transcript("helper", session.cwd, start_ms=session._ms - 2500)
    helper.prompt("Your task is to create a detailed summary of it").answer("summary of a helper")
    records = [{**record, "sessionId": session.id, "isSidechain": True} for record in helper.records]
    return session, [strayed, *records]


# Codex


class Rollout:
    def __init__(self, name: str, minutes: int, **meta: Any) -> None:
        self.id = stable_uuid("codex", name)
        self.records: list[dict[str, Any]] = []
        self._ms = minutes * 60_000
        self._name = f"rollout-2026-06-01T{minutes // 60:02d}-{minutes % 60:02d}-00-{self.id}.jsonl"
        self.put("session_meta", {"id": self.id, "timestamp": self._time(), "cwd": "/home/dev/shop", **meta})

    @property
    def path(self) -> str:
        return f".codex/sessions/2026/06/01/{self._name}"

    def _time(self) -> str:
        seconds, millis = divmod(self._ms, 1000)
        return f"2026-06-01T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{millis:03d}Z"

    def put(self, kind: str, payload: dict[str, Any], step: int = 1000) -> None:
        self._ms += step
        self.records.append({"timestamp": self._time(), "type": kind, "payload": payload})

    def turn(self, name: str, *, named: bool = True) -> Rollout:
        turn = stable_uuid("turn", name)
        if named:
            self.put("event_msg", {"type": "task_started", "turn_id": turn})
            self.put("turn_context", {"turn_id": turn, "model": "gpt-5.5", "cwd": "/home/dev/shop"})
        else:
            self.put("turn_context", {"model": "gpt-5.5", "cwd": "/home/dev/shop"}, step=60_000)
        self.put("response_item", message("user", f"question of {name}"))
        self.put("event_msg", {"type": "user_message", "message": f"question of {name}"})
        call = f"call_{turn[:8]}"
        self.put("response_item", {"type": "function_call", "name": "exec_command", "arguments": "{}", "call_id": call})
        self.put("response_item", {"type": "function_call_output", "call_id": call, "output": f"output of turn {name}"})
        self.put("response_item", message("assistant", f"answer of {name}"))
        total = 100 * len(self.records)
        self.put("event_msg", {"type": "token_count", "info": {"total_token_usage": {"input_tokens": total}}})
        if named:
            self.put("event_msg", {"type": "task_complete", "turn_id": turn, "last_agent_message": f"answer of {name}"})
        return self

    def fork(self, name: str, minutes: int, upto: int | None = None, **meta: Any) -> Rollout:
        """All records up to one, stamped anew within a moment, behind a header of its own."""
        copy = Rollout(name, minutes, **{"forked_from_id": self.id, **meta})
        for record in self.records[:upto]:
            copy.put(record["type"], record["payload"], step=1)
        return copy


def message(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "text", "text": text}]}


def codex() -> Files:
    first = Rollout("first", 10)
    first.put("response_item", message("developer", "instructions of the turn"))
    first.turn("one").turn("two")
    spawned = first.fork("spawned", 20, None, forked_from_id=None, parent_thread_id=first.id).turn("of an agent")
    second = first.fork("second", 30).turn("fork")
    third = second.fork("third", 40).turn("fork of the fork")
    early = first.fork("early", 50, 11).turn("early fork")
    first.turn("three")
    unnamed = Rollout("unnamed", 60).turn("without a name", named=False).turn("without one either", named=False)
    other = unnamed.fork("other", 70).turn("fork without a name", named=False)
    orphan = Rollout("gone", 80).turn("of a session that is gone").fork("orphan", 90).turn("orphan")
    rollouts = (first, spawned, second, third, early, unnamed, other, orphan)
    files = {rollout.path: lines(rollout.records) for rollout in rollouts}
    files[second.path.replace(".codex/sessions/2026/06/01", ".codex/archived_sessions")] = lines(second.records[:20])
    return files


def home() -> Files:
    return {**claude_code(), **codex()}


# Reading


def append(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
    # Records without a time take that of the file.
    os.utime(path, (SECONDS, SECONDS))


def dump(library: Library) -> dict[str, Any]:
    """All that an archive has, and what it finds."""
    archive = library.archive
    request = SessionsRequest(start=0, end=1 << 50, limit=1000)
    sessions: dict[str, SessionRow] = {row.key: row for row in archive.sessions(request)}
    for key in list(sessions):
        sessions.update((row.key, row) for row in children_of(archive, key))
    turns = [turn for key in sorted(sessions) for turn in archive.turns(key)]
    events = [event for turn in turns for event in archive.events(turn.session, turn.ordinal)]
    usage = [row for key in sorted(sessions) for row in sorted(usage_of(archive, key), key=lambda row: row.key)]
    found = {}
    for query in QUERIES:
        hits = archive.search(SearchRequest(query=query, types=SEARCHABLE_TYPES, limit=1000)).hits
        found[query] = sorted((hit.session.key, hit.turn.ordinal, hit.event.uid.hex()) for hit in hits)
    traces = archive.spans.traces(TraceQuery(sort="createdAt", limit=1000))
    rows = {
        "sessions": [msgspec.to_builtins(sessions[key]) for key in sorted(sessions)],
        "turns": list(map(msgspec.to_builtins, turns)),
        "events": list(map(msgspec.to_builtins, events)),
        "usage": list(map(msgspec.to_builtins, usage)),
        "traces": [msgspec.to_builtins(row) for row in traces.rows],
        "found": found,
    }
    assert archive.counts().events == len(events)
    return rows


def changes(one: dict[str, Any], other: dict[str, Any]) -> list[Any]:
    """The differences between two dumps, for people."""
    different: list[Any] = []
    for part, rows in one.items():
        if part == "found":
            different += [(part, query) for query in rows if rows[query] != other[part][query]]
            continue
        left = {json.dumps(row, sort_keys=True, default=str) for row in rows}
        right = {json.dumps(row, sort_keys=True, default=str) for row in other[part]}
        different += [(part, "-", row) for row in sorted(left - right)]
        different += [(part, "+", row) for row in sorted(right - left)]
    return different
