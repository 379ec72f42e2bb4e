"""Real transcripts: every file is read, and its counts agree with a separate count made straight from the JSON.

The count below shares no code with the source and does not look at how it works.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from claude_code_transcript import describe, events, feed, load

from backstory.model import EventType
from backstory.sources.base import Event, Item, Usage
from backstory.sources.claude_code.source import ClaudeCode

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "corpus"
FOLDERS = (CORPUS / "home" / ".claude", CORPUS / "odd" / "claude-code")
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.jsonl"))]

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not FILES, reason="the corpus of real transcripts is not beside the checkout"),
]

WRAPPED = re.compile(r"<(system-reminder|ide_\w+|local-command-\w+|bash-\w+|command-\w+)>.*?</\1>", re.DOTALL)
FOR_THE_MODEL = re.compile(r"<command-message>[^<]*</command-message>\s*<command-name>/")
NOT_TYPED = ("[Request interrupted by user", "Caveat: The messages below")
NOTICES = ("<task-notification", "<agent-notification")


@cache
def objects(path: Path) -> list[dict[str, Any]]:
    values = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    return [value for value in values if isinstance(value, dict)]


def blocks(record: dict[str, Any]) -> list[dict[str, Any]]:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block if isinstance(block, dict) else {"type": "text", "text": block} for block in content or []]


def typed(record: dict[str, Any]) -> str:
    """The text that a person typed in a user record; empty if there is none."""
    if record.get("type") != "user" or record.get("isMeta") or record.get("isCompactSummary"):
        return ""
    text = "\n".join(block["text"] for block in blocks(record) if block.get("type") == "text").strip()
    if text.startswith(NOT_TYPED + NOTICES):
        return ""
    return text if FOR_THE_MODEL.match(text) else WRAPPED.sub("", text).strip()


def count_prompts(records: list[dict[str, Any]]) -> int:
    said = [text for record in records if (text := typed(record))]
    for record in records:
        attachment = record.get("attachment") or {}
        if attachment.get("type") == "queued_command" and not attachment["prompt"].startswith(NOTICES):
            said.append(attachment["prompt"].strip())
    queue = [record for record in records if record.get("type") == "queue-operation"]
    for position, record in enumerate(queue):
        text = (record.get("content") or "").strip()
        removed = any(later["operation"] == "remove" for later in queue[position:])
        if text and removed and text not in said and not text.startswith(("/", *NOTICES)):
            said.append(text)  # handed to the agent, and written down nowhere else
    return len(said)


def count_blocks(records: list[dict[str, Any]], kind: str, field: str) -> int:
    return len({block.get(field) for record in records for block in blocks(record) if block.get("type") == kind})


def displaced(path: Path, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of this session that Claude Code wrote into the file of a run of its own."""
    known = {record.get("uuid") for record in records}
    missing = {record.get(name) for record in records for name in ("parentUuid", "logicalParentUuid")} - known
    helpers = path.parent.parent.glob(f"*/{path.stem}/subagents/agent-a*_*.jsonl")
    compactions = path.parent.parent.glob(f"*/{path.stem}/subagents/agent-acompact-*.jsonl")
    return [
        record for helper in (*helpers, *compactions) for record in objects(helper) if record.get("uuid") in missing
    ]


def nested(path: Path, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records of subagents that have no transcript of their own."""
    found = []
    for record in records:
        data = record.get("data") or {}
        own = path.with_suffix("") / "subagents" / f"agent-{data.get('agentId')}.jsonl"
        if data.get("type") == "agent_progress" and not own.exists():
            found.append(data["message"])
    return found


@cache
def read(path: Path) -> list[Item]:
    """The items of a file, without records that are no objects."""
    return feed([record for record in load(path) if isinstance(record, dict)], describe(path))


@pytest.fixture(scope="module", autouse=True)
def _caches() -> Iterator[None]:
    """The tests share what they read, and no other test keeps it in memory."""
    yield
    objects.cache_clear()
    read.cache_clear()


def is_helper(path: Path) -> bool:
    return path.name.startswith(("agent-acompact", "agent-aprompt_suggestion"))


class TestCounts:
    def test_prompts_calls_and_responses(self) -> None:
        """Prompts, tool calls and tool responses are those that stand in the file."""
        for path in FILES:
            yielded = events(read(path))
            if is_helper(path):
                assert yielded == []
                continue
            records = [*objects(path), *displaced(path, objects(path))]
            assert sum(event.starts_turn for event in yielded) == count_prompts(records)
            kinds = Counter(event.type for event in yielded)
            assert kinds[EventType.USER_INPUT] == count_prompts(records)
            assert kinds[EventType.TOOL_CALL] == count_blocks(records, "tool_use", "id")
            assert kinds[EventType.TOOL_RESPONSE] == count_blocks(records, "tool_result", "tool_use_id")

    def test_subagents_inside(self) -> None:
        """Records of subagents without a transcript, which a file repeats, belong to the subagents."""
        for path in FILES:
            theirs = [item for item in read(path) if isinstance(item, Event) and item.session]
            inner = nested(path, objects(path))
            kinds = Counter(event.type for event in theirs)
            assert kinds[EventType.TOOL_CALL] == count_blocks(inner, "tool_use", "id")
            assert kinds[EventType.TOOL_RESPONSE] == count_blocks(inner, "tool_result", "tool_use_id")
            assert kinds[EventType.USER_INPUT] == len([record for record in inner if typed(record)])

    def test_tokens(self) -> None:
        """The tokens of every message are counted once, at their highest."""
        for path in FILES:
            expected: dict[Any, int] = {}
            records = objects(path)
            for record in [*records, *([] if is_helper(path) else displaced(path, records)), *nested(path, records)]:
                message = record.get("message")
                if record.get("type") == "assistant" and message["model"] != "<synthetic>":
                    output = (message.get("usage") or {}).get("output_tokens", 0)
                    key = (message.get("id"), record.get("requestId"))
                    expected[key] = max(expected.get(key, 0), output)
            yielded: dict[bytes, int] = {}
            for item in read(path):
                if isinstance(item, Usage):
                    yielded[item.key] = max(yielded.get(item.key, 0), item.output_tokens)
            assert sum(yielded.values()) == sum(expected.values())

    def test_reading_in_pieces(self) -> None:
        """Reading a file as it grows gives what reading it at once gives."""
        for path in FILES:
            transcript = describe(path)
            records = [record for record in load(path) if isinstance(record, dict)]
            items: list[Any] = []
            state = None
            for begin in range(0, len(records), 61):
                parser = ClaudeCode().parser(transcript, state, lambda session: frozenset())
                for record in records[begin : begin + 61]:
                    items += parser.parse(record)
                state = json.loads(json.dumps(parser.state()))
            assert items == read(path)[: len(items)]


class TestWhole:
    def test_nothing_is_unknown_and_ids_are_unique(self) -> None:
        """Everything Claude Code wrote is known, and no two events of any two files share an id."""
        uids: Counter[bytes] = Counter()
        for path in (path for path in FILES if path.is_relative_to(CORPUS / "home")):
            for item in read(path):
                if isinstance(item, Event) and not item.replaces:
                    assert item.type is not EventType.UNKNOWN, item.text[:200]
                    uids[item.uid] += 1
        assert max(uids.values()) == 1
