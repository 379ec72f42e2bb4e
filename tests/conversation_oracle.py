"""The turns of a Claude Code transcript, read from its lines by the letter of the rules: a second, plain reader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec import Struct

Json = dict[str, Any]

_COMMANDS = re.compile(r"(\s*<(command-[a-z]+|local-command-[a-z]+|skill-format)>.*?</\2>)+\s*", re.DOTALL)
# Texts in a list of blocks that nobody typed.
_INJECTED = re.compile(
    r"\s*(<(system-reminder|ide_[a-z_]+)>.*</\2>|\[Request interrupted by user( for tool use)?\])\s*", re.DOTALL
)


class OracleTurn(Struct):
    timestamp: str | None
    user_text: str = ""
    answers: list[str] = []
    tools: list[str] = []

    @property
    def assistant_text(self) -> str:
        return "\n".join(self.answers)


def oracle_turns(path: Path) -> list[OracleTurn]:
    records = _records(path)
    texts = {text.strip() for record in records if (text := _prompt(record)) is not None}
    turns: list[OracleTurn] = []
    waiting: list[str] = []
    handed_over: list[OracleTurn] = []
    blocks_seen: set[tuple[str, str]] = set()
    for record in records:
        timestamp = record.get("timestamp")
        if record["type"] == "queue-operation":
            _follow_queue(record, waiting, handed_over, texts)
        elif (text := _prompt(record)) is not None:
            turns.append(OracleTurn(timestamp, text))
        elif record["type"] == "assistant":
            # A prompt that stands in no record of its own is a turn from where the assistant got it.
            turns += handed_over
            handed_over = []
            for kind, said in _said(record, blocks_seen):
                if not turns:
                    turns.append(OracleTurn(timestamp))
                (turns[-1].answers if kind == "text" else turns[-1].tools).append(said)
    return turns


def shown(turns: list[Json]) -> list[tuple[str, str, list[str]]]:
    return [
        (turn["user_text"], turn["assistant_text"], [call["tool"] for call in turn["tools_used"]]) for turn in turns
    ]


def expected(turns: list[OracleTurn]) -> list[tuple[str, str, list[str]]]:
    return [(turn.user_text, turn.assistant_text, turn.tools) for turn in turns]


def check(turns: list[Json], path: Path) -> None:
    """Every turn is as the lines of the transcript have it."""
    reference = oracle_turns(path)
    if not any((path.with_suffix("") / "subagents").glob("agent-ap*")):
        assert shown(turns) == expected(reference), path
        return
    # Old versions moved records of a session into the files of its helpers; they are put back where they belong.
    assert [turn["user_text"] for turn in turns] == [turn.user_text for turn in reference]
    for turn, raw in zip(turns, reference, strict=True):
        rest = iter(turn["assistant_text"].split("\n"))
        assert all(line in rest for line in raw.assistant_text.split("\n")), path
    assert all(before["turn_number"] + 1 == after["turn_number"] for before, after in pairwise(turns))


def check_home(home: Path, listed: list[Json], turns_of: Callable[[str], list[Json]]) -> None:
    """Every transcript of the home is a listed conversation, and every turn is as its lines have it."""
    paths = {path.stem: path for path in (home / ".claude" / "projects").glob("*/*.jsonl")}
    assert {conversation["session_id"] for conversation in listed} == {
        name for name in paths if not name.startswith("agent-")
    }
    for conversation in listed:
        turns = turns_of(conversation["session_id"])
        assert conversation["turn_count"] == len(turns)
        check(turns, paths[conversation["session_id"]])


def _records(path: Path) -> list[Json]:
    found: list[Json] = []
    seen: set[str] = set()
    for line in path.read_bytes().decode("utf-8", "replace").split("\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict) or record.get("isMeta") is True or record.get("isSidechain") is True:
            continue
        if record.get("type") not in ("user", "assistant", "attachment", "queue-operation"):
            continue
        mark = json.dumps([record.get("uuid"), record.get("message")])
        if record.get("uuid") and mark in seen:  # written twice
            continue
        seen.add(mark)
        found.append(record)
    return found


def _prompt(record: Json) -> str | None:
    """The text of a record that starts a turn."""
    attachment, message = record.get("attachment"), record.get("message")
    if isinstance(attachment, dict):
        if attachment.get("type") == "queued_command" and attachment.get("commandMode", "prompt") == "prompt":
            return _typed(attachment.get("prompt"))
        return None
    if record["type"] != "user" or not isinstance(message, dict):
        return None
    return _typed(message.get("content"))


def _typed(content: Any) -> str | None:
    if isinstance(content, str):
        return content if content.strip() and not _COMMANDS.fullmatch(content) else None
    if not isinstance(content, list):
        return None
    shown, typed = [], False
    for block in content:
        if isinstance(block, dict) and block.get("type") == "image":
            shown.append("[image]")
        text = block if isinstance(block, str) else block.get("text") if isinstance(block, dict) else None
        if isinstance(text, str) and text:
            shown.append(text)
            typed = typed or not (not text.strip() or _COMMANDS.fullmatch(text) or _INJECTED.fullmatch(text))
    return "\n".join(shown) if typed else None


def _said(record: Json, blocks_seen: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Texts and tools of an assistant record, without what an earlier record of the same API message had."""
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    said = []
    for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in ("text", "tool_use"):
            continue
        text = block.get("text") if kind == "text" else block.get("name")
        mark = (str(message.get("id") or record.get("uuid")), str(text if kind == "text" else block.get("id")))
        if isinstance(text, str) and text.strip() and mark not in blocks_seen:
            blocks_seen.add(mark)
            said.append((kind, text))
    return said


def _follow_queue(record: Json, waiting: list[str], handed_over: list[OracleTurn], texts: set[str]) -> None:
    """Of what waits in the queue, only what a person typed and no other record carries is a prompt."""
    operation, content = record.get("operation"), record.get("content")
    if operation == "enqueue" and isinstance(content, str):
        waiting.append(content.strip())
    elif operation == "popAll":
        waiting.clear()
    elif operation in ("dequeue", "remove") and waiting:
        people = [text for text in waiting if not re.match(r"<(task|agent)-notification|/[\w:.-]+(\s|$)", text)]
        text = (people or waiting)[0]
        waiting.remove(text)
        if operation == "remove" and text not in texts and people:
            handed_over.append(OracleTurn(record.get("timestamp"), text))
