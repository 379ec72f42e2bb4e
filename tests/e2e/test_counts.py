"""Prompts, tool calls and tokens of whole homes, counted a second time from the raw records, and compared with the
archive: what is copied, repeated or nested in other transcripts counts once, and nothing is left out."""

from __future__ import annotations

import json
import operator
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backstory.archive.base import SessionsRequest
from backstory.archive.spans import Window
from backstory.ingest.unknown import unknown_records
from backstory.library import Library
from backstory.model import EventType
from tests import plain_counts as plain
from tests.ingest.family_world import home as family

Record = dict[str, Any]
_SCRIPTS = Path(__file__).parents[1] / "sources/codex/code_mode_2026"


class Count(NamedTuple):
    prompts: int
    calls: int
    input: int
    output: int


def records(home: Path, pattern: str) -> Iterator[tuple[Path, int, Record]]:
    """Every JSON object of every line, also of lines that have two."""
    decoder = json.JSONDecoder(strict=False)
    for path in sorted(home.glob(pattern)):
        number = 0
        for line in path.read_text("utf-8", "replace").split("\n"):
            rest = line.strip()
            while rest.startswith("{"):
                value, end = decoder.raw_decode(rest)
                yield path, number, value
                rest, number = rest[end:].lstrip(), number + 1


def blocks(content: Any) -> list[Record]:
    content = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return [block for block in content or [] if isinstance(block, dict)]


_NOTES = re.compile(r"<(system-reminder|ide_\w+|local-command-\w+|bash-\w+|command-\w+)>.*?</\1>", re.DOTALL)
_COMMAND = re.compile(r"<command-message>[^<]*</command-message>\s*<command-name>/")
_NOTICES = ("<task-notification", "<agent-notification")
_NOT_TYPED = ("[Request interrupted by user", "Caveat: The messages below", *_NOTICES)
_OWN_RUNS = ("agent-aprompt_suggestion", "agent-acompact")
_CLAUDE_INPUT = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
_CLAUDE_TOTALS = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")


def claude_code(home: Path) -> Count:
    """By ids: `uuid` of a prompt, `id` of a call, `message.id` of an answer. Records of runs that Claude Code makes for
    itself count where a session goes on from them; their tokens always do."""
    found = list(records(home, ".claude/projects/**/*.jsonl"))
    own = [record for path, _, record in found if path.name.startswith(_OWN_RUNS)]
    theirs = [record for path, _, record in found if not path.name.startswith(_OWN_RUNS)]
    parents = {record.get(name) for record in theirs for name in ("parentUuid", "logicalParentUuid")}
    theirs += [record for record in own if record.get("uuid") in parents]
    theirs += [r["data"]["message"] for r in theirs if (r.get("data") or {}).get("type") == "agent_progress"]
    said = [block for record in theirs for block in blocks((record.get("message") or {}).get("content"))]
    calls = {block["id"] for block in said if block.get("type") == "tool_use"}
    tokens: dict[str, Counter[str]] = {}
    for record in (*theirs, *own):
        message = record.get("message") or {}
        if message.get("usage") and message.get("model") != "<synthetic>":
            usage = message["usage"]
            spent = Counter(input=sum(usage.get(name) or 0 for name in _CLAUDE_INPUT), output=usage["output_tokens"])
            tokens[message["id"]] = tokens.get(message["id"], Counter()) | spent
    total = sum(tokens.values(), _compactions(found))
    return Count(len(_claude_prompts(theirs)), len(calls), total["input"], total["output"])


def _compactions(found: list[tuple[Path, int, Record]]) -> Counter[str]:
    """Tokens of compactions, which are in the running totals of a transcript alone: what its last ones have beyond its
    messages."""
    spent: Counter[str] = Counter()
    for path in {path for path, _, record in found if record.get("subtype") == "compact_boundary"}:
        own = [record for place, _, record in found if place == path]
        totals = [record["modelUsage"] for record in own if record["type"] == "cost-state"]
        for usage in totals[-1].values() if totals else ():
            spent["input"] += sum(usage[name] for name in _CLAUDE_TOTALS)
            spent["output"] += usage["outputTokens"]
        answers = {
            record["message"]["id"]: record["message"]["usage"] for record in own if record["type"] == "assistant"
        }
        for usage in answers.values() if totals else ():
            spent["input"] -= sum(usage[name] for name in _CLAUDE_INPUT)
            spent["output"] -= usage["output_tokens"]
    return spent


def _claude_prompts(theirs: list[Record]) -> set[str]:
    """Records that a person typed, by id, and texts that were typed while the agent worked."""
    prompts: dict[str, str] = {}
    for record in theirs:
        attachment = record.get("attachment") or {}
        if attachment.get("type") == "queued_command" and not attachment["prompt"].startswith(_NOTICES):
            prompts[record["uuid"]] = attachment["prompt"].strip()
        elif record.get("type") == "user" and not record.get("isMeta") and not record.get("isCompactSummary"):
            texts = [block["text"] for block in blocks(record["message"]["content"]) if block.get("type") == "text"]
            text = "\n".join(texts).strip()
            if not text.startswith(_NOT_TYPED) and (_COMMAND.match(text) or _NOTES.sub("", text).strip()):
                prompts[record["uuid"]] = text
    for record in theirs:
        text = (record.get("content") or "") if record.get("type") == "queue-operation" else ""
        removed = (
            any(r.get("operation") == "remove" and r["sessionId"] == record["sessionId"] for r in theirs)
            if text
            else False
        )
        if removed and text.strip() not in prompts.values() and not text.startswith(("/", *_NOTICES)):
            prompts[text] = text.strip()
    return set(prompts)


def codex(home: Path) -> Count:
    """Calls by id, also those that a script made; the tokens of each request, whose report may be repeated. A prompt is
    written as an item and as an event, of which either may be missing, and again in every fork of its session."""
    calls: set[Any] = set()
    spent: Counter[str] = Counter()
    said: dict[tuple[Path, str], Counter[tuple[str, str]]] = {}
    totals: dict[Path, Any] = {}
    roots: dict[str, str] = {}
    root = turn = ""
    for path, number, record in records(home, ".codex/*sessions/**/*.jsonl"):
        payload = record["payload"]
        kind, item = payload.get("type", ""), payload.get("item") or {}
        if number == 0:
            original = payload.get("forked_from_id") or payload.get("parent_thread_id") or payload["id"]
            turn = root = roots[payload["id"]] = roots.get(original, original)
        turn = payload.get("turn_id") or (root if record["type"] == "turn_context" else turn)
        if record["type"] == "response_item" and kind.endswith("_call"):
            calls.add(payload.get("call_id") or (path, number))
        elif item.get("type") in ("CommandExecution", "FileChange", "McpToolCall"):
            calls.add(item["id"])
        elif kind == "token_count" and payload["info"] and payload["info"]["total_token_usage"] != totals.get(path):
            totals[path] = payload["info"]["total_token_usage"]
            spent.update(payload["info"].get("last_token_usage") or {})
        if kind == "user_message" or item.get("type") == "UserMessage":
            text = payload.get("message") or "".join(block["text"] for block in item["content"])
            said.setdefault((path, kind), Counter())[turn, text] += 1
    prompts = reduce(operator.or_, said.values(), Counter[tuple[str, str]]())
    return Count(sum(prompts.values()), len(calls), spent["input_tokens"], spent["output_tokens"])


def copilot_cli(home: Path) -> Count:
    """Calls by id. Tokens have a record for each request, or else the totals at the end of a run; where those leave
    something out, the messages have their output."""
    prompts, calls = 0, set[str]()
    runs: dict[Path, tuple[Counter[str], Counter[str], Counter[str]]] = {}
    for path, _, record in records(home, ".copilot/session-state/**/*.jsonl"):
        kind, data = record["type"], record.get("data") or {}
        by_request, by_message, totals = runs.setdefault(path, (Counter(), Counter(), Counter()))
        prompts += (
            kind == "user.message" and bool(data.get("content")) and not str(data.get("source")).startswith("skill")
        )
        calls.update(each["toolCallId"] for each in (data, *(data.get("toolRequests") or ())) if "toolCallId" in each)
        if kind == "session.usage_record":
            by_request.update({name: data["usage"][name] for name in ("inputTokens", "outputTokens")})
        elif kind == "assistant.message":
            by_message["outputTokens"] += data.get("outputTokens") or 0
        elif kind == "session.shutdown":
            totals.clear()
            for metrics in data["modelMetrics"].values():
                totals.update({name: metrics["usage"][name] for name in ("inputTokens", "outputTokens")})
    spent = sum((by_request or by_message | totals for by_request, by_message, totals in runs.values()), Counter[str]())
    return Count(prompts, len(calls), spent["inputTokens"], spent["outputTokens"])


def pi(home: Path) -> Count:
    """Entries by id, or by their place in files that have none."""
    entries = {
        record.get("id") or (path, number): record["message"]
        for path, number, record in records(home, ".pi/agent/sessions/**/*.jsonl")
        if record["type"] == "message"
    }
    answers = [message for message in entries.values() if message["role"] == "assistant"]
    usages = [message["usage"] for message in answers]
    return Count(
        sum(message["role"] == "user" for message in entries.values()),
        sum(block["type"] == "toolCall" for message in answers for block in blocks(message["content"])),
        sum(usage["input"] + usage["cacheRead"] + usage["cacheWrite"] for usage in usages),
        sum(usage["output"] for usage in usages),
    )


COUNTS: dict[str, Callable[[Path], Count]] = {
    "claude-code": claude_code,
    "codex": codex,
    "copilot-cli": copilot_cli,
    "pi": pi,
}


def archived(library: Library, source: str) -> Count:
    archive = library.archive
    types: Counter[str] = Counter()
    for session in archive.sessions(SessionsRequest(source=source)):
        for turn in archive.turns(session.key):
            types.update(event.type for event in archive.events(session.key, turn.ordinal))
    spent = archive.spans.usage(Window(source=source))
    return Count(
        types[EventType.USER_INPUT],
        types[EventType.TOOL_CALL],
        sum(total.input_tokens for total in spent),
        sum(total.output_tokens for total in spent),
    )


class TestMadeUpTranscripts:
    """Forks, copies, subagents inside other transcripts, strayed records and scripts that call tools."""

    def test_families(self, tmp_path: Path) -> None:
        for name, lines in family().items():
            path = tmp_path / "home" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"".join(lines))
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            assert library.sync().errors == 0
            assert archived(library, "claude-code") == claude_code(tmp_path / "home")
            assert archived(library, "codex")[:2] == codex(tmp_path / "home")[:2]

    def test_scripts(self, tmp_path: Path) -> None:
        folder = tmp_path / "home/.codex/sessions/2026/10/20"
        shutil.copytree(_SCRIPTS, folder, ignore=shutil.ignore_patterns("golden*"))
        with Library(tmp_path / "backstory", agents_home=tmp_path / "home", environ={}) as library:
            assert library.sync().errors == 0
            assert archived(library, "codex") == codex(tmp_path / "home")


class Recording(NamedTuple):
    source: str
    folder: str
    files: str
    count: Callable[[list[Record], Path], plain.Count]


RECORDINGS = (
    Recording("gemini-cli", "gemini-cli", ".gemini/tmp/*/chats/session-*", plain.count_gemini),
    Recording("qwen-code", "qwen-code", ".qwen/projects/**/*.jsonl", plain.count_qwen),
    Recording("oh-my-pi", "oh-my-pi", ".omp/agent/sessions/**/*.jsonl", plain.count_pi),
    Recording("kimi-cli", "kimi-code", ".kimi-code/sessions/**/wire.jsonl", plain.count_kimi),
    Recording("factory-droid", "factory-droid", ".factory/sessions/**/*.jsonl", plain.count_droid),
    Recording("grok-build", "grok-build", ".grok/sessions/**/updates.jsonl", plain.count_grok),
    Recording("gptme", "gptme", ".local/share/gptme/logs/*/conversation.jsonl", plain.count_gptme),
)


@pytest.mark.corpus
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.source)
class TestRecordings:
    """The archive has as many prompts, tool calls and output tokens as the files that today's agents wrote."""

    def test_all_files(self, recording: Recording, corpus: Path, tmp_path: Path) -> None:
        home = corpus / "agents" / recording.folder / "home"
        counts = [recording.count(plain.raw(path), path) for path in sorted(home.glob(recording.files))]
        with Library(tmp_path, agents_home=home, environ={"BACKSTORY_SOURCES": recording.source}) as library:
            assert library.sync().errors == 0
            assert unknown_records(library.archive) == []
            found = archived(library, recording.source)
        assert (found.prompts, found.calls, found.output) == tuple(map(sum, zip(*counts, strict=True)))
        assert found.prompts > 0


@pytest.mark.corpus
@pytest.mark.parametrize("source", COUNTS)
class TestRealTranscripts:
    """The archive has as many prompts, tool calls and tokens as the files."""

    def test_sessions_of_people(self, source: str, corpus_library: Library, corpus: Path) -> None:
        assert unknown_records(corpus_library.archive) == []
        assert archived(corpus_library, source) == COUNTS[source](corpus / "home")

    def test_recordings(self, source: str, corpus: Path, tmp_path: Path) -> None:
        home = corpus / "agents" / source / "home"
        with Library(tmp_path, agents_home=home, environ={"BACKSTORY_SOURCES": source}) as library:
            assert library.sync().errors == 0
            assert unknown_records(library.archive) == []
            assert archived(library, source) == COUNTS[source](home)
