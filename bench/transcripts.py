"""Claude Code homes of any size: projects, transcripts, subagents, and the noise that is half of every real file."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from backstory.model import rfc3339

from .texts import Texts

_FIRST_DAY_MS = 1_767_225_600_000  # 2026-01-01
_DAYS = 180
_PROJECTS = 40
_MODELS = ("claude-opus-4-6", "claude-sonnet-4-6", "claude-haiku-4-5")
_HOOKS = ("PreToolUse", "PostToolUse", "PostToolUse")
_encode = msgspec.json.Encoder().encode

Record = dict[str, Any]


class Home(NamedTuple):
    """The size of a home. Subagents are sessions of their own; their events are counted with the others."""

    sessions: int
    subagents: int
    bytes: int
    prompts: int
    answers: int
    thoughts: int
    tool_calls: int
    tool_results: int


def write_claude_home(
    folder: Path, *, sessions: int | None = None, megabytes: float | None = None, seed: int = 0
) -> Home:
    """Write `<folder>/.claude/projects`, with so many sessions or of at least this size."""
    if (sessions is None) == (megabytes is None):
        raise ValueError("give either sessions or megabytes")
    texts = Texts(f"home {seed}")
    counts: Counter[str] = Counter()
    while counts["sessions"] < sessions if sessions is not None else counts["bytes"] < (megabytes or 0) * 1e6:
        texts.new_topic()
        _write_session(folder / ".claude" / "projects", texts, counts)
    return Home(**{name: counts[name] for name in Home._fields})


def _write_session(projects: Path, texts: Texts, counts: Counter[str]) -> None:
    cwd = f"/home/dev/src/project-{texts.number(_PROJECTS)}"
    session = texts.uuid()
    path = projects / re.sub(r"[^0-9A-Za-z-]", "-", cwd) / f"{session}.jsonl"
    started = _FIRST_DAY_MS + texts.number(_DAYS * 86_400) * 1000
    counts["sessions"] += 1
    with transcript(path, counts) as file:
        Session(file, texts, counts, {"cwd": cwd, "sessionId": session}, started, path.with_suffix("")).write()


@contextmanager
def transcript(path: Path, counts: Counter[str]) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=1 << 20) as file:
        yield file
        counts["bytes"] += file.tell()


class Session:
    """One transcript in the making: every record links to the one before it and is a little later."""

    def __init__(
        self, file: BinaryIO, texts: Texts, counts: Counter[str], about: Record, clock: int, siblings: Path
    ) -> None:
        self._file = file
        self._texts = texts
        self._counts = counts
        self._about = {
            "isSidechain": "agentId" in about,
            "userType": "external",
            **about,
            "version": "2.1.39",
            "gitBranch": "main" if texts.number(3) else texts.identifier().lower(),
        }
        self._clock = clock
        self._siblings = siblings
        self._parent: str | None = None
        self._model = _MODELS[texts.number(len(_MODELS))]

    def write(self) -> None:
        turns = 1 + min(self._texts.length() // 16, 60)
        for turn in range(turns):
            self._turn(first=turn == 0)
            if turn % 12 == 11:
                self._compaction()
        self._date()

    def write_as_subagent(self, prompt: str) -> str:
        """The task, the work, and the report, which is returned."""
        self._user({"role": "user", "content": prompt})
        self._counts["prompts"] += 1
        report = self._work(rounds=1 + self._texts.number(8), may_delegate=False)
        self._date()
        return report

    def _date(self) -> None:
        """The file is as old as its last record: what is read first depends on it."""
        self._file.flush()
        os.utime(self._file.fileno(), ns=(self._clock * 1_000_000, self._clock * 1_000_000))

    def _turn(self, *, first: bool) -> None:
        texts = self._texts
        self._clock += texts.number(600_000)
        moment = {"messageId": texts.uuid(), "trackedFileBackups": {}, "timestamp": rfc3339(self._clock)}
        self._put({"type": "file-history-snapshot", "messageId": moment["messageId"], "snapshot": moment})
        prompt = texts.question(texts.length())
        self._user({"role": "user", "content": prompt}, permissionMode="acceptEdits")
        self._counts["prompts"] += 1
        started = self._clock
        self._work(rounds=texts.number(14), may_delegate=texts.number(25) == 0)
        self._link("system", subtype="stop_hook_summary", hookCount=1, hookInfos=[{"command": "notify"}], level="info")
        self._link("system", subtype="turn_duration", durationMs=self._clock - started, isMeta=False)
        session = self._about["sessionId"]
        if first:
            self._put({"type": "ai-title", "aiTitle": texts.words(5).capitalize(), "sessionId": session})
        self._put({"type": "last-prompt", "lastPrompt": prompt[:200], "sessionId": session})

    def _compaction(self) -> None:
        before, self._parent = self._parent, None
        details = {"trigger": "auto", "preTokens": 150_000 + self._texts.number(20_000)}
        self._link(
            "system",
            subtype="compact_boundary",
            content="Conversation compacted",
            logicalParentUuid=before,
            compactMetadata=details,
        )
        summary = f"This session is being continued from a previous conversation. {self._texts.prose(400)}"
        self._user({"role": "user", "content": summary}, isCompactSummary=True, isVisibleInTranscriptOnly=True)

    def _work(self, rounds: int, *, may_delegate: bool) -> str:
        """Rounds of thinking and tools, then the answer."""
        for step in range(rounds):
            self._round(delegate=may_delegate and step == 0)
        answer = self._texts.prose(self._texts.length())
        self._message([{"type": "text", "text": answer}], stop_reason="end_turn")
        return answer

    def _round(self, *, delegate: bool) -> None:
        """One API message, each block in a record of its own, then what its tools gave."""
        texts = self._texts
        blocks: list[Record] = []
        if texts.number(5) == 0:
            thinking = texts.prose(texts.length())
            blocks.append({"type": "thinking", "thinking": thinking, "signature": texts.hex(256)})
        if texts.number(2):
            blocks.append({"type": "text", "text": texts.prose(min(texts.length(), 60))})
        tools = [_task] if delegate else [_TOOLS[texts.number(len(_TOOLS))] for _ in range(1 + (texts.number(5) == 0))]
        calls = []
        for tool in tools:
            name, arguments, result, details = tool(self)
            calls.append((f"toolu_01{texts.hex(22)}", name, result, details))
            blocks.append({"type": "tool_use", "id": calls[-1][0], "name": name, "input": arguments})
        self._message(blocks, stop_reason=None)
        for call, name, result, details in calls:
            self._tool_result(call, name, result, details)

    def _message(self, blocks: list[Record], stop_reason: str | None) -> None:
        texts = self._texts
        message, request = f"msg_01{texts.hex(22)}", f"req_011{texts.hex(21)}"
        read, written = texts.number(150_000), texts.number(9_000)
        for position, block in enumerate(blocks):
            last = position == len(blocks) - 1
            usage = {
                "input_tokens": 3,
                "cache_creation_input_tokens": written,
                "cache_read_input_tokens": read,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": written},
                "output_tokens": texts.number(2_000) + 9 if last else 8,
                "service_tier": "standard",
            }
            content: Record = {"model": self._model, "id": message, "type": "message", "role": "assistant"}
            content |= {"content": [block], "stop_reason": stop_reason if last else None, "usage": usage}
            self._link("assistant", message=content, requestId=request)
            self._counts[_COUNTED[block["type"]]] += 1

    def _tool_result(self, call: str, name: str, result: str, details: Any) -> None:
        """The result, which is in the record twice, between what hooks and the running command reported."""
        assistant = self._parent
        for event in _HOOKS[:1]:
            self._hook(call, name, event)
        if name == "Bash" and self._texts.number(2):
            data = {
                "type": "bash_progress",
                "output": result[-400:],
                "fullOutput": result[-400:],
                "elapsedTimeSeconds": 2,
            }
            self._link("progress", data=data, toolUseID="bash-progress-0", parentToolUseID=call)
        failed = isinstance(details, str)
        block = {"tool_use_id": call, "type": "tool_result", "content": result, "is_error": failed}
        message = {"role": "user", "content": [block]}
        self._user(message, toolUseResult=details, sourceToolAssistantUUID=assistant)
        self._counts["tool_results"] += 1
        for event in _HOOKS[1:]:
            self._hook(call, name, event)

    def _hook(self, call: str, name: str, event: str) -> None:
        data = {"type": "hook_progress", "hookEvent": event, "hookName": f"{event}:{name}", "command": "hooks/note.sh"}
        self._link("progress", data=data, parentToolUseID=call, toolUseID=call)

    def _user(self, message: Record, **more: Any) -> None:
        self._link("user", message=message, **more)

    def _link(self, kind: str, **fields: Any) -> None:
        self._clock += 40 + self._texts.number(4_000)
        uuid = self._texts.uuid()
        envelope = {"parentUuid": self._parent, **self._about, "type": kind}
        self._put(envelope | fields | {"uuid": uuid, "timestamp": rfc3339(self._clock)})
        self._parent = uuid

    def _put(self, record: Record) -> None:
        self._file.write(_encode(record) + b"\n")

    # Tools: name, arguments, what the model sees, and what the transcript keeps besides.

    def bash(self) -> tuple[str, Record, str, Any]:
        texts = self._texts
        output = (texts.shell, texts.logs, texts.trace, texts.json)[texts.number(4)](2 * texts.length())
        arguments = {"command": f"cd {texts.path()} && git log -p {texts.identifier()}", "description": texts.words(6)}
        if texts.number(12) == 0:
            return "Bash", arguments, f"Exit code 1\n{output}", f"Error: Exit code 1\n{output}"
        return "Bash", arguments, output, {"stdout": output, "stderr": "", "interrupted": False, "isImage": False}

    def read(self) -> tuple[str, Record, str, Any]:
        path = f"{self._about['cwd']}/{self._texts.path()}"
        content = self._texts.code(3 * self._texts.length())
        lines = content.split("\n")
        numbered = "\n".join(f"{number:>6}→{line}" for number, line in enumerate(lines, 1))
        file = {"filePath": path, "content": content, "numLines": len(lines), "startLine": 1, "totalLines": len(lines)}
        return "Read", {"file_path": path}, numbered, {"type": "text", "file": file}

    def edit(self) -> tuple[str, Record, str, Any]:
        texts = self._texts
        path = f"{self._about['cwd']}/{texts.path()}"
        old, new = texts.code(30), texts.code(40)
        patch = [f"-{line}" for line in old.split("\n")] + [f"+{line}" for line in new.split("\n")]
        details = {
            "filePath": path,
            "oldString": old,
            "newString": new,
            "originalFile": f"{texts.code(300)}\n{old}\n{texts.code(300)}",
            "structuredPatch": [{"oldStart": 7, "oldLines": 7, "newStart": 7, "newLines": 10, "lines": patch}],
        }
        arguments = {"replace_all": False, "file_path": path, "old_string": old, "new_string": new}
        return "Edit", arguments, f"The file {path} has been updated successfully.", details

    def grep(self) -> tuple[str, Record, str, Any]:
        texts = self._texts
        found = texts.shell(texts.length())
        details = {"mode": "content", "numFiles": 0, "filenames": [], "content": found, "numLines": found.count("\n")}
        return "Grep", {"pattern": texts.identifier(), "path": "src", "output_mode": "content"}, found, details

    def task(self) -> tuple[str, Record, str, Any]:
        agent = self._texts.hex(7)
        prompt = self._texts.prose(80)
        about = {"cwd": self._about["cwd"], "sessionId": self._about["sessionId"], "agentId": agent}
        self._counts["subagents"] += 1
        with transcript(self._siblings / "subagents" / f"agent-{agent}.jsonl", self._counts) as file:
            child = Session(file, self._texts, self._counts, about, self._clock, self._siblings)
            report = child.write_as_subagent(prompt)
        details = {
            "status": "completed",
            "prompt": prompt,
            "agentId": agent,
            "content": [{"type": "text", "text": report}],
        }
        arguments = {"description": self._texts.words(4), "prompt": prompt, "subagent_type": "Explore"}
        return "Task", arguments, report, details


Tool = Callable[[Session], tuple[str, Record, str, Any]]
_TOOLS: tuple[Tool, ...] = (
    Session.bash,
    Session.bash,
    Session.bash,
    Session.read,
    Session.read,
    Session.edit,
    Session.grep,
)
_task: Tool = Session.task
_COUNTED = {"text": "answers", "thinking": "thoughts", "tool_use": "tool_calls"}
