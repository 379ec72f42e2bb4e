"""Copilot Chat in VS Code: a document for each session, rewritten (`.json`) or kept as a log of changes (`.jsonl`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import EventType, parse_time
from .base import About, Item, Lookup, Parser, Source, Transcript
from .content import command_exit_code
from .decoding import decode, decode_or_none, encode, read_document, read_or_none
from .fields import Payload, integer, list_of, local_path, mapping_of, mappings_of, text_of
from .parsing import StatelessParser, Writer

# The kinds of changes in a log.
_INITIAL, _SET, _PUSH, _DELETE = range(4)
# Parts of a response that only the editor shows, or that repeat what others say.
_SILENT = set(
    """
    undoStop codeblockUri progressMessage progressTaskSerialized prepareToolInvocation mcpServersStarting confirmation
    command treeData reference textEditGroup notebookEditGroup multiDiffData extensions pullRequest elicitation
    elicitationSerialized codeCitation usedContext contentReference externalEdit workspaceEdit questionCarousel todoList
    """.split()
)


class CopilotChat(Source):
    name = "copilot-chat"

    def accepts(self, path: Path) -> bool:
        return path.suffix in (".json", ".jsonl") and path.parent.name.endswith("hatSessions")

    def describe(self, path: Path, head: bytes) -> Transcript | None:
        return Transcript(source=self.name, path=path, session=path.stem) if b'"requests"' in head else None

    def parser(self, transcript: Transcript, state: dict[str, Any] | None, lookup: Lookup) -> Parser:
        return _Session(transcript)

    def records(self, path: Path) -> Iterator[Any]:
        found, broken = _replayed(path) if path.suffix == ".jsonl" else (read_document(path), 0)
        yield from [None] * broken
        document = mapping_of(found)
        workspace = read_or_none(path.parent.parent / "workspace.json")
        yield {"session": document, "folder": text_of(workspace, "folder")}
        for index, request in enumerate(list_of(document.get("requests"))):
            yield {"request": mapping_of(request), "index": index}


def _replayed(path: Path) -> tuple[Any, int]:
    """The document that a log of changes leads to, and the number of lines that are none. A torn last line waits for
    its end."""
    document: Any = {}
    broken = 0
    *lines, torn = path.read_bytes().split(b"\n")
    for line in (*lines, torn if decode_or_none(torn) else b""):
        if not line.strip():
            continue
        try:
            change = mapping_of(decode(line))
            keys = change.get("k")
            if change.get("kind") == _INITIAL:
                document = change.get("v")
            elif isinstance(keys, list) and keys:
                _apply(document, keys, change)
        except (AttributeError, LookupError, TypeError, ValueError):
            broken += 1
    return document, broken


def _apply(document: Any, keys: list[Any], change: Payload) -> None:
    *path, last = keys
    for key in path:
        document = document[key]
    value = change.get("v")
    match change.get("kind"):
        case 1:
            if isinstance(document, list) and last == len(document):
                document.append(value)
            else:
                document[last] = value
        case 2:
            items = document.setdefault(last, []) if isinstance(document, dict) else document[last]
            if (start := integer(change.get("i"))) is not None:
                del items[start:]
            items.extend(value or ())
        case 3:
            if isinstance(document, dict):
                document.pop(last, None)
            else:
                del document[last]


class _Session(StatelessParser):
    def parse(self, record: Payload) -> Iterator[Item]:
        if "session" in record:
            folder = record["folder"]
            title = text_of(record["session"], "customTitle", "computedTitle")
            yield About(title=title, title_rank=2, cwd=local_path(folder) if folder else None)
            return
        request = record["request"]
        identity = text_of(request, "requestId") or str(record["index"])
        ts = parse_time(request.get("timestamp"))
        result = mapping_of(request, "result")
        metadata = mapping_of(result, "metadata")
        model = text_of(metadata, "resolvedModel") or (text_of(request, "modelId") or "").rpartition("/")[2] or None
        write = self.writer(identity, ts=ts, model=model)
        message = request.get("message")
        yield write.prompt("prompt", message if isinstance(message, str) else text_of(message, "text") or "")
        yield from write.usage(
            fresh=metadata.get("promptTokens"),
            output=metadata.get("outputTokens") or request.get("completionTokens"),
        )
        yield from _response(write, request, metadata)
        if error := mapping_of(result, "errorDetails"):
            yield write.event("error", EventType.RUNTIME, text_of(error, "message") or "error", ends_turn=True)
        elif request.get("isCanceled") is True:
            extra = {"interrupted": True}
            yield write.event("canceled", EventType.RUNTIME, "canceled", ends_turn=True, extra=extra)


def _response(write: Writer, request: Payload, metadata: Payload) -> Iterator[Item]:
    """Markdown and references between it are one answer, up to the next thought or tool."""
    parts = request.get("response")
    calls, results = _calls(metadata)
    texts: list[str] = []
    start = 0
    done = "result" in request

    def answer(*, last: bool) -> Iterator[Item]:
        if text := "".join(texts).strip():
            yield write.answer(f"text {start}", text, ends_turn=last and done)
        texts.clear()

    for number, part in enumerate(mappings_of(parts)):
        kind = part.get("kind")
        if kind in (None, "markdownContent", "markdownVuln", "inlineReference", "warning"):
            start = start if texts else number
            texts.append(_reference(part) if kind == "inlineReference" else _markdown(part))
        elif kind == "thinking":
            yield from answer(last=False)
            if thought := _markdown(part):
                yield write.thought(f"thought {number}", thought)
        elif kind in ("toolInvocationSerialized", "toolInvocation"):
            yield from answer(last=False)
            yield from _tool(write, str(number), part, calls, results)
        elif kind not in _SILENT:
            yield write.event(f"raw {number}", EventType.UNKNOWN, encode(part))
    yield from answer(last=True)


def _calls(metadata: Payload) -> tuple[dict[str, Payload], Payload]:
    """The calls as the model made them, and what it got, by the call's id."""
    rounds = metadata.get("toolCallRounds")
    calls: dict[str, Payload] = {}
    for round_ in mappings_of(rounds):
        for call in mappings_of(round_.get("toolCalls")):
            calls[_call_id(text_of(call, "id") or "")] = call
    results = {_call_id(name): value for name, value in mapping_of(metadata, "toolCallResults").items()}
    return calls, results


def _call_id(identity: str) -> str:
    """The id that the model gave the call: the editor adds a number to it."""
    return identity.partition("__vscode")[0]


def _tool(write: Writer, part: str, invocation: Payload, calls: dict[str, Payload], results: Payload) -> Iterator[Item]:
    call_id = _call_id(text_of(invocation, "toolCallId") or part)
    call, details = calls.get(call_id, {}), mapping_of(invocation, "resultDetails")
    tool = text_of(call, "name") or text_of(invocation, "toolId") or "unknown"
    specific = mapping_of(invocation, "toolSpecificData")
    given = decode_or_none(text_of(call, "arguments")) or decode_or_none(text_of(details, "input"))
    if given is None:
        command = mapping_of(specific, "commandLine") or specific
        given = {"command": text_of(command, "userEdited", "original", "command")} if "commandLine" in specific else {}
    yield write.call(f"call {part}", tool, call_id, given)
    if invocation.get("isComplete") is False:
        return
    text = _result_text(results.get(call_id)) or _result_text(details.get("output"))
    text = text or _markdown({"value": invocation.get("pastTenseMessage")})
    exit_code = integer(mapping_of(specific, "terminalCommandState").get("exitCode"))
    if exit_code is None:
        exit_code = command_exit_code(text, tool)
    failed = details.get("isError") is True or bool(exit_code)
    yield write.result(f"result {part}", tool, call_id, text, exit_code=exit_code, failed=failed)


def _result_text(result: Any) -> str:
    parts = mapping_of(result).get("content", result)
    if not isinstance(parts, list):
        return ""
    return "\n".join(text for part in parts if (text := text_of(part, "value", "text")))


def _markdown(part: Payload) -> str:
    """Text, a Markdown string, or a list of texts."""
    value = part.get("content", part.get("value"))
    if isinstance(value, list):
        return "".join(text for text in value if isinstance(text, str))
    return value if isinstance(value, str) else text_of(value, "value") or ""


def _reference(part: Payload) -> str:
    target = mapping_of(part, "inlineReference")
    place = mapping_of(target, "location", "uri") or target
    name = text_of(target, "name") or (text_of(place, "path", "fsPath") or "").rpartition("/")[2]
    return f"`{name}`" if name else ""
