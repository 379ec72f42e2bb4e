"""Real rollouts, counted a second time in the plainest way: by what their raw records say, without any state."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from codex_rollout import describe, events, feed, load, nothing_known

from backstory.model import EventType
from backstory.sources.base import Event, Item, TurnEnd, Usage
from backstory.sources.codex import Codex

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
HOME = sorted((CORPUS / "home" / ".codex").rglob("*.jsonl"))
OTHERS = sorted(
    path
    for part in ("odd", "fixtures")
    for path in (CORPUS / part).rglob("*.jsonl")
    if "codex" in str(path.relative_to(CORPUS))
)
# Samples of every record there is, in no order and with all their texts and ids replaced by one.
SAMPLERS = {"small.jsonl"}
ROLLOUTS = [path for path in HOME + OTHERS if path.name not in SAMPLERS and describe(path)]

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not HOME, reason="the shared corpus is not there")]

INJECTED = (
    "# AGENTS.md",
    "<environment_context>",
    "<INSTRUCTIONS>",
    "<user_instructions>",
    "<turn_aborted>",
    "<skill>",
)


@cache
def raw(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """(kind, payload) of each line, with the standard library."""
    return list(_raw(path))


def _raw(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in path.read_text(errors="replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        payload = record.get("payload", record)
        kind = payload.get("type") or ("message" if "role" in payload else record.get("type"))
        yield f"{record['type'] if 'payload' in record else 'response_item'}/{kind}", payload


def words(content: Any) -> str:
    if isinstance(content, list):
        content = "".join(block.get("text", "") for block in content if not block.get("text", "").startswith(INJECTED))
    return "".join(str(content or "").split())


def larger(one: Counter[str], other: Counter[str]) -> int:
    """Things that are written in two forms, of which either may be missing."""
    return sum((one | other).values())


def count_prompts(path: Path) -> int:
    items: Counter[str] = Counter()
    yielded: Counter[str] = Counter()
    for kind, payload in raw(path):
        if kind == "response_item/message" and payload["role"] == "user":
            text = words(payload.get("content", payload.get("message")))
            items[text] += bool(text)
        elif kind == "event_msg/user_message":
            yielded[words(payload["message"])] += 1
    return larger(items, yielded)


def count_calls_and_responses(path: Path) -> tuple[int, int]:
    calls: list[str | None] = []
    responses = 0
    searches: Counter[str] = Counter()
    reported_searches: Counter[str] = Counter()
    reports: set[str] = set()
    for kind, payload in raw(path):
        channel, _, kind = kind.partition("/")
        if kind == "web_search_call":
            searches[json.dumps(payload["action"])] += 1
        elif kind == "web_search_end":
            reported_searches[json.dumps(payload["action"])] += 1
        elif channel == "response_item" and kind.endswith("_call"):
            calls.append(payload.get("call_id"))
        elif channel == "response_item" and kind.endswith(("_output", "_result")):
            responses += 1
        elif channel == "event_msg" and kind in ("exec_command_end", "mcp_tool_call_end", "patch_apply_end"):
            reports.add(payload["call_id"])
    # A call that the agent reports, or that the provider made, has its response in the same record.
    alone = len(reports - {*calls}) + larger(searches, reported_searches)
    return len(calls) + alone, responses + alone


@cache
def read(path: Path) -> list[Item]:
    return feed(load(path), describe(path))


@pytest.fixture(scope="module", autouse=True)
def _caches() -> Iterator[None]:
    """The tests share what they read, and no other test keeps it in memory."""
    yield
    raw.cache_clear()
    read.cache_clear()


_SAID = ("event_msg/agent_message", "response_item/agent_message")
_STOPS = ("event_msg/task_complete", "event_msg/turn_aborted")


def raw_ended_turns(records: list[tuple[str, dict[str, Any]]]) -> list[bool]:
    """For each turn with an answer whether it has an end: a record that says so, or a final answer."""
    turns: dict[str, bool] = {}
    turn = ""
    for kind, payload in records:
        if kind == "event_msg/task_started":
            turn = payload["turn_id"]
        elif kind in _SAID:
            turns[turn] = payload.get("phase") == "final_answer"
        elif kind in _STOPS and turn in turns:
            turns[turn] = True
    return list(turns.values())


def ended_turns(items: list[Item]) -> list[bool]:
    turns: dict[str, bool] = {}
    turn = ""
    for item in items:
        if isinstance(item, Event) and item.type not in (EventType.SYSTEM, EventType.COMPACTION):
            turn = item.turn_key or ""
            if item.type is EventType.ASSISTANT_RESPONSE or (item.ends_turn and turn in turns):
                turns[turn] = item.ends_turn
        elif isinstance(item, TurnEnd):
            turns[turn] = True
    return list(turns.values())


class TestCorpus:
    def test_counts(self) -> None:
        """Prompts, calls and responses are as many as the raw records say."""
        for path in ROLLOUTS:
            items = read(path)
            assert len(events(items, EventType.USER_INPUT)) == count_prompts(path)
            calls, responses = count_calls_and_responses(path)
            assert len(events(items, EventType.TOOL_CALL)) == calls
            assert len(events(items, EventType.TOOL_RESPONSE)) == responses
            assert all(event.starts_turn for event in events(items, EventType.USER_INPUT))

    def test_answers_and_ends(self) -> None:
        """Every answer once, every end of a task, and tokens that add up to the agent's own total."""
        for path in HOME:
            records = raw(path)
            items = read(path)
            kinds = Counter(kind for kind, _ in records)
            assert len(events(items, EventType.ASSISTANT_RESPONSE)) == kinds["event_msg/agent_message"]
            finals = sum(payload.get("phase") == "final_answer" for kind, payload in records if kind in _SAID)
            ends = sum(isinstance(item, TurnEnd) or (isinstance(item, Event) and item.ends_turn) for item in items)
            aborted, completed = kinds["event_msg/turn_aborted"], kinds["event_msg/task_complete"]
            assert finals + aborted <= ends <= finals + aborted + completed
            assert ended_turns(items) == raw_ended_turns(records)
            totals = [payload["info"]["total_token_usage"] for kind, payload in records if _has_total(kind, payload)]
            for name in ("input_tokens", "output_tokens"):
                spent = sum(getattr(item, name) for item in items if isinstance(item, Usage))
                # a call that was aborted may be in the total without ever having been counted on its own
                assert 0.98 * totals[-1][name] <= spent <= totals[-1][name]

    def test_joins(self) -> None:
        """Every response names its tool and the model that called; every command that ended has its exit code."""
        for path in HOME:
            for event in events(read(path), EventType.TOOL_RESPONSE):
                assert event.tool
                assert event.originating_model
                assert ("Process exited with code" in event.text[:120]) == (
                    event.tool in ("exec_command", "write_stdin") and event.exit_code is not None
                )

    def test_nothing_is_unknown_or_refused(self) -> None:
        """Every record in every file is in a table, and no two events share an id."""
        for path in HOME + OTHERS:
            transcript = describe(path)
            if transcript is None:
                assert "history" in path.name or path.name == "oss-story.jsonl"
                continue
            items = feed(load(path), transcript)
            assert [event.text for event in events(items, EventType.UNKNOWN)] == []
            assert len({event.uid for event in events(items)}) == len(events(items))

    def test_restarts(self) -> None:
        """Reading can stop and go on anywhere."""
        for path in HOME[:4] + OTHERS:
            transcript, state, items = describe(path), None, []
            if transcript is None:
                continue
            records = load(path)
            for start in range(0, len(records), 7):
                parser = Codex().parser(transcript, state, nothing_known)
                for record in records[start : start + 7]:
                    items += parser.parse(record)
                state = msgspec.json.decode(msgspec.json.encode(parser.state()))
            assert items == feed(records, transcript)


def _has_total(kind: str, payload: dict[str, Any]) -> bool:
    return kind == "event_msg/token_count" and bool((payload.get("info") or {}).get("total_token_usage"))
