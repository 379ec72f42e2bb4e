"""Cline and its relatives: a folder for each session, whose files are rewritten.

The current generation keeps `<id>.json` and `<id>.messages.json`. The extensions (Cline before, Roo Code, Kilo Code)
keep a task: `api_conversation_history.json`, `ui_messages.json` and what they know of the task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript, TurnEnd
from .decoding import decode_or_none, read_document, read_mapping, read_or_none
from .fields import Payload, list_of, mapping_of, mappings_of, remote_address, text_of
from .messages import Blocks
from .parsing import StatelessParser, Writer

_CONVERSATIONS = ("api_conversation_history.json", "claude_messages.json")
_WRAPPER = re.compile(r"\s*<(task|user_message|user_input|feedback|answer)(?:\s[^>]*)?>\s*(.*?)\s*</\1>\s*", re.DOTALL)
_FEEDBACK = re.compile(r"<(feedback|answer|user_message)>\s*(.*?)\s*</\1>", re.DOTALL)
_CONTEXT = ("<environment_details>", "[TASK RESUMPTION]", "[ERROR]", "<explicit_instructions", "# Current ")
# Results of tools that the model calls in its text: "[execute_command for 'ls'] Result:".
_TEXT_RESULT = re.compile(r"\[(\w+)(?: for .{0,500}?)?\] Result:\s*", re.DOTALL)
_TOOLS = """
    execute_command read_file write_to_file replace_in_file apply_diff insert_content search_and_replace search_files
    list_files list_code_definition_names browser_action use_mcp_tool access_mcp_resource ask_followup_question
    attempt_completion plan_mode_respond new_task switch_mode fetch_instructions codebase_search update_todo_list
    web_fetch load_mcp_documentation condense report_bug
""".split()
_COMPLETION = "attempt_completion"
_TEXT_THOUGHT = re.compile(r"<thinking>\s*(.*?)\s*</thinking>", re.DOTALL)
_TEXT_CALL = re.compile(rf"<({'|'.join(_TOOLS)})>(.*?)</\1>", re.DOTALL)
_ARGUMENT = re.compile(r"<(\w+)>\n?(.*?)\n?</\1>", re.DOTALL)


class Cline(Source):
    name = "cline"

    def gathers(self, folder: Path) -> bool:
        return folder.parent.name in ("tasks", "sessions")

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        if path.parent.name == "tasks":
            return describe_task(self.name, path)
        if not (path / f"{path.name}.messages.json").exists():
            return None
        about = read_or_none(path / f"{path.name}.json")
        parent = text_of(about, "parent_session_id") or text_of(mapping_of(about, "metadata"), "parentSessionId")
        return Transcript(source=self.name, path=path, session=path.name, parent=parent)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        if transcript.path.parent.name == "tasks":
            return Task(transcript)
        return _Session(transcript)

    def records(self, path: Path) -> Iterator[Any] | None:
        return task_records(path) if path.parent.name == "tasks" else _session_records(path)

    def resume(self, session: str) -> tuple[str, ...] | None:
        """Tasks of the extension, which are named by numbers, are not known to the command."""
        return None if session.isdecimal() else ("cline", "--id", session)


class RooCode(Source):
    """Only tasks, as Cline's extension had them."""

    name = "roo-code"

    def gathers(self, folder: Path) -> bool:
        return folder.parent.name == "tasks"

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return describe_task(self.name, path)

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return Task(transcript)

    def records(self, path: Path) -> Iterator[Any] | None:
        return task_records(path)


# The current generation


def _session_records(folder: Path) -> Iterator[Payload]:
    about = mapping_of(read_or_none(folder / f"{folder.name}.json"))
    yield {"session": about}
    document = mapping_of(read_document(folder / f"{folder.name}.messages.json"))
    for message in list_of(document.get("messages")):
        yield {"message": mapping_of(message), "model": about.get("model")}
    yield {"ended": about.get("ended_at") is not None}


class _Session(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._blocks = Blocks(_texts)

    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            yield from _about_session(record["session"])
        elif "message" in record:
            yield from self._message(record["message"], record["model"])
        elif record["ended"]:
            yield TurnEnd()

    def _message(self, message: Payload, model: str | None) -> Iterator[Item]:
        ts, model = parse_time(message.get("ts")), text_of(mapping_of(message, "modelInfo"), "id") or model
        write = self.writer(text_of(message, "id") or str(ts), ts=ts, model=model)
        content = message.get("content")
        match message.get("role"):
            case "user":
                yield from self._blocks.user(write, content)
            case "assistant":
                metrics = mapping_of(message, "metrics")
                read, written = metrics.get("cacheReadTokens") or 0, metrics.get("cacheWriteTokens") or 0
                yield from write.usage(
                    fresh=(metrics.get("inputTokens") or 0) - read - written,  # inputTokens has them all
                    output=metrics.get("outputTokens"),
                    cache_read=read,
                    cache_write=written,
                    cost=metrics.get("cost"),
                )
                yield from self._blocks.assistant(write, content)
            case role:
                raise ValueError(f"a message of the role {role!r}")


def _about_session(session: Payload) -> Iterator[Item]:
    metadata = mapping_of(session, "metadata")
    yield About(
        title=text_of(metadata, "title"),
        title_rank=2,
        cwd=text_of(session, "cwd", "workspace_root"),
        branch=text_of(mapping_of(metadata, "git"), "branch"),
        remote=remote_address(mapping_of(metadata, "git").get("url")),
        version=text_of(mapping_of(metadata, "sessionHistoryOrigin"), "version"),
        parent=text_of(session, "parent_session_id"),
    )


# Tasks of the extensions


def describe_task(source: str, folder: Path) -> Transcript | None:
    if not any((folder / name).exists() for name in _CONVERSATIONS):
        return None
    about = read_or_none(folder / "history_item.json")
    parent = text_of(about, "parentTaskId")
    return Transcript(source=source, path=folder, session=folder.name, parent=parent)


def task_records(folder: Path) -> Iterator[Payload]:
    """Times and tokens are in `ui_messages.json`, which has a record for each request to the model."""
    path = next(path for name in _CONVERSATIONS if (path := folder / name).exists())
    history = read_document(path)
    shown = mappings_of(read_or_none(folder / "ui_messages.json"))
    requests = [entry for entry in shown if entry.get("say") == "api_req_started"]
    about = {**_listed_task(folder), **read_mapping(folder / "history_item.json")}
    metadata = read_mapping(folder / "task_metadata.json")
    used = metadata.get("model_usage")
    model = text_of(mapping_of(metadata, "modelInfo"), "id") or text_of(about, "modelId")
    if isinstance(used, list) and used:
        model = text_of(used[-1], "model_id") or model
    yield {"task": about}
    number, ts = 0, parse_time(about.get("ts"))
    for index, message in enumerate(mappings_of(history)):
        request: Payload = {}
        if message.get("role") == "assistant":
            request, number = requests[number] if number < len(requests) else {}, number + 1
        ts = parse_time(message.get("ts")) or parse_time(request.get("ts")) or ts
        yield {"message": message, "index": index, "request": request, "model": model, "ts": ts}


def _listed_task(folder: Path) -> Payload:
    """The entry of a task in the list of all tasks, beside the folder of tasks."""
    listed = mappings_of(read_or_none(folder.parent.parent / "state" / "taskHistory.json"))
    return next((task for task in listed if task.get("id") == folder.name), {})


class Task(StatelessParser):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript)
        self._blocks = Blocks(_texts)

    def parse(self, record: Payload) -> Iterator[Item]:
        if "task" in record:
            about = record["task"]
            yield About(
                title=text_of(about, "task"),
                title_rank=1,
                cwd=text_of(about, "workspace", "cwd", "cwdOnTaskInitialization"),
                parent=text_of(about, "parentTaskId"),
            )
            return
        message, request = record["message"], record["request"]
        model = text_of(message, "model") or text_of(mapping_of(message, "modelInfo"), "modelId") or record["model"]
        write = self.writer(str(record["index"]), ts=record["ts"], model=model)
        content = message.get("content")
        if message.get("role") == "user":
            yield from self._blocks.user(write, _joined(content))
            return
        counts = mapping_of(decode_or_none(text_of(request, "text")))
        yield from write.usage(
            fresh=counts.get("tokensIn"),
            output=counts.get("tokensOut"),
            cache_read=counts.get("cacheReads"),
            cache_write=counts.get("cacheWrites"),
            cost=counts.get("cost"),
        )
        for item in self._blocks.assistant(write, content):
            if getattr(item, "type", None) is EventType.ASSISTANT_RESPONSE:
                yield from _calls_in_text(write, item)
            else:
                yield item


def _joined(content: Any) -> Any:
    """Content in which a result that follows its heading, in a block of its own, is one block with it."""
    if not isinstance(content, list):
        return content
    joined: list[Any] = []
    for block in content:
        before = text_of(joined[-1], "text") if joined else None
        text = text_of(block, "text")
        if before and text and (heading := _TEXT_RESULT.match(before)) and heading.end() == len(before):
            joined[-1] = {"type": "text", "text": f"{before}\n{text}"}
        else:
            joined.append(block)
    return joined


def _calls_in_text(write: Writer, answer: Any) -> Iterator[Item]:
    """The items of an answer whose text holds thoughts and a tool call, from models without native tool calls."""
    for number, thought in enumerate(_TEXT_THOUGHT.finditer(answer.text)):
        yield write.thought(f"thought {number}", thought[1])
    answer.text = _TEXT_THOUGHT.sub("", answer.text).strip()
    call = _TEXT_CALL.search(answer.text)
    if call is None:
        if answer.text:
            yield answer
        return
    said, tool = answer.text[: call.start()].strip(), call[1]
    if said:
        answer.text, answer.may_end_turn = said, False
        yield answer
    arguments = dict(_ARGUMENT.findall(call[2]))
    if tool == _COMPLETION:
        yield write.answer("completion", arguments.get("result", call[2].strip()), ends_turn=True)
    else:
        yield write.call("call", tool, None, arguments)


def _texts(write: Writer, part: str, text: str) -> Iterator[Item]:
    """The items of a text. A tag marks prompts of a person; other texts are context or results of tools."""
    if wrapped := _WRAPPER.fullmatch(text):
        yield write.prompt(part, wrapped[2])
    elif result := _TEXT_RESULT.match(text):
        output = text[result.end() :]
        if result[1] != _COMPLETION:  # which was the answer, not a call
            yield write.text_result(part, result[1], None, output)
        if typed := _FEEDBACK.search(output):
            yield write.prompt(f"{part} feedback", typed[2])
    elif text.lstrip().startswith(_CONTEXT):
        yield write.event(part, EventType.SYSTEM, text)
    elif typed := _FEEDBACK.search(text):
        yield write.prompt(part, typed[2])
    elif text.strip():
        yield write.prompt(part, text)
