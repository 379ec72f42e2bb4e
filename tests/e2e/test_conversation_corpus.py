"""Real transcripts, turn by turn, against what their lines say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstory.library import Library

Json = dict[str, Any]

pytestmark = pytest.mark.corpus

# User records that nobody typed; the rules name the first kind, the others came with later versions of Claude Code.
MACHINERY = re.compile(
    r"(\s*<(command-[a-z]+|local-command-[a-z]+)>.*?</\2>)+\s*$"
    r"|<(bash-input|bash-stdout|bash-stderr|task-notification|system-reminder)>"
    r"|\[Request interrupted by user|This session is being continued from a previous conversation",
    re.DOTALL,
)


class Raw:
    """A turn as it stands in the file."""

    def __init__(self, record: Json, text: str) -> None:
        self.timestamp = record["timestamp"]
        self.text = text
        self.answers: list[str] = []
        self.tools: list[str] = []


def records(path: Path) -> Iterator[Json]:
    for line in path.read_text("utf-8", "surrogatepass").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record.get("type") in ("user", "assistant") and not record.get("isMeta") and not record.get("isSidechain"):
            yield record


def raw_turns(path: Path) -> list[Raw]:
    turns: list[Raw] = []
    for record in records(path):
        content = record["message"]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if record["type"] == "user":
            texts = [block["text"] for block in blocks if block["type"] == "text"]
            if texts and not any(block["type"] == "tool_result" for block in blocks):
                text = "\n".join(texts)
                if text.strip() and not MACHINERY.match(text):
                    turns.append(Raw(record, text))
        elif turns and record["message"].get("model") != "<synthetic>":
            turns[-1].answers += [b["text"] for b in blocks if b["type"] == "text" and b["text"].strip()]
            turns[-1].tools += [b["name"] for b in blocks if b["type"] == "tool_use"]
    return turns


@pytest.fixture(scope="module")
def library(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    environ = {"BACKSTORY_REDACT": "off", "BACKSTORY_SOURCES": "claude-code"}
    with Library(tmp_path_factory.mktemp("backstory"), agents_home=corpus / "home", environ=environ) as library:
        library.sync()
        yield library


class TestRealTranscripts:
    """Nothing that a person typed is missing, and nothing else is taken for it."""

    def test_every_turn(self, corpus: Path, library: Library) -> None:
        paths = {path.stem: path for path in (corpus / "home" / ".claude" / "projects").glob("*/*.jsonl")}
        listed = library.call("list_conversations", {"limit": 10_000})["conversations"]
        assert {conversation["session_id"] for conversation in listed} == set(paths)
        checked = 0
        for conversation in listed:
            id = conversation["session_id"]
            turns = library.call("read_conversation", {"session_id": id, "limit": 10_000})["turns"]
            assert len(turns) == conversation["turn_count"]
            assert [turn["turn_number"] for turn in turns] == list(range(len(turns)))
            raw = raw_turns(paths[id])
            by_time = {turn["timestamp"]: turn for turn in turns}
            for expected in raw:
                turn = by_time[expected.timestamp]
                assert turn["user_text"] == expected.text
                checked += 1
            if len(raw) == len(turns):  # no prompt came in on the way, by another record: the rest is equal too
                for expected, turn in zip(raw, turns, strict=True):
                    assert all(answer in turn["assistant_text"] for answer in expected.answers)
                    assert [call["tool"] for call in turn["tools_used"]] == expected.tools
        assert checked > 50

    def test_every_turn_is_found_by_its_own_words(self, library: Library) -> None:
        listed = library.call("list_conversations", {"limit": 10_000})["conversations"]
        for conversation in listed:
            id = conversation["session_id"]
            for turn in library.call("read_conversation", {"session_id": id, "limit": 3})["turns"]:
                query = re.sub(r'["“”]', " ", turn["user_text"])[:200]
                results = library.call("search_conversations", {"query": query, "session_id": id, "limit": 50})[
                    "results"
                ]
                assert turn["turn_number"] in {result["turn_number"] for result in results}
