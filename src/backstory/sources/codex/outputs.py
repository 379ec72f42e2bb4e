"""Tool outputs in the many shapes Codex has written: one readable text, the exit code, failure."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import msgspec

from ..fields import integer
from .session import fingerprint

# {"output": "...", "metadata": {"exit_code": 0, ...}} as a string: shell and apply_patch of 2025.
_WRAPPED = re.compile(r'\s*\{\s*"(?:output|metadata)"\s*:')
# The lines above the output proper: exec_command, write_stdin, apply_patch of 2026.
_HEADER = re.compile(r"(?:Chunk ID|Wall time|Exit code|Process exited|Total output lines|Command)\b")
_EXIT_CODE = re.compile(r"^(?:Process exited with code|Exit code:?) (-?\d{1,10})\b", re.MULTILINE)
_BODY = re.compile(r"^(?:Final output|Output):", re.MULTILINE)
_FAILURE = re.compile(r"aborted by user|(?:\w+ verification|\w+) failed(?: for|:| in sandbox)|execution error:")


class Output(NamedTuple):
    text: str
    exit_code: int | None = None
    failed: bool | None = None
    parts: tuple[str, ...] = ()
    """The JSON of structured results, which a script may print."""


def read_output(output: Any) -> Output:
    """The output of a response item: a string, blocks of content, or an object of one or the other sort."""
    if isinstance(output, str):
        return _read_text(output)
    if isinstance(output, list):
        return Output(_blocks(output))
    if isinstance(output, dict):
        return _read_object(output)
    return Output("" if output is None else as_json(output))


def _read_text(text: str) -> Output:
    if _WRAPPED.match(text) and (wrapped := as_mapping(text)) and isinstance(wrapped.get("output"), str):
        return _read_object(wrapped)
    exit_code = None
    if _HEADER.match(text):
        body = _BODY.search(text)
        if found := _EXIT_CODE.search(text, 0, body.start() if body else 2000):
            exit_code = int(found[1])
    failed = None if exit_code is None else exit_code != 0
    if exit_code is None and _FAILURE.match(text):
        failed = True
    return Output(text, exit_code, failed)


def _read_object(output: dict[str, Any]) -> Output:
    metadata = output.get("metadata")
    exit_code = _exit_code(metadata if isinstance(metadata, dict) else output)
    success = output.get("success")
    failed = not success if isinstance(success, bool) else None if exit_code is None else exit_code != 0
    for key in ("output", "content", "text"):
        if isinstance(body := output.get(key), str):
            return Output(body, exit_code, failed)
        if isinstance(body, list):
            return Output(_blocks(body), exit_code, failed)
    streams = [stream for key in ("stdout", "stderr") if isinstance(stream := output.get(key), str) and stream]
    if streams or "stdout" in output:
        return Output("\n".join(streams), exit_code, failed)
    return Output(as_json(output), exit_code, failed)


def _exit_code(facts: dict[str, Any]) -> int | None:
    return integer(facts.get("exit_code", facts.get("exitCode")))


def read_mcp(result: Any) -> Output:
    """The result of an MCP server: {"Ok": {...}} or {"Err": "..."} in events, the bare result in turn items."""
    if not isinstance(result, dict):
        return Output(result if isinstance(result, str) else "")
    if "Err" in result:
        error = result["Err"]
        return Output(error if isinstance(error, str) else as_json(error), failed=True)
    answer = result.get("Ok", result)
    if not isinstance(answer, dict):
        return Output(answer if isinstance(answer, str) else as_json(answer), failed=False)
    content = answer.get("content")
    text = _blocks(content) if isinstance(content, list) else ""
    structured = answer.get("structuredContent")
    if structured and not text:
        text = as_json(structured)
    parts = tuple(as_json(part) for part in (content, structured) if part)
    return Output(text, failed=bool(answer.get("isError", answer.get("is_error"))), parts=parts)


def _blocks(blocks: list[Any]) -> str:
    """Texts as they are; what cannot be read as text (images, audio) by its kind."""
    texts = []
    for block in blocks:
        if isinstance(block, str):
            texts.append(block)
        elif isinstance(block, dict):
            text = block.get("text")
            if isinstance(text, str):
                texts.append(text)
            elif "image" in str(block.get("type")).lower():
                texts.append("[image]")
            elif isinstance(resource := block.get("resource"), dict) and isinstance(resource.get("text"), str):
                texts.append(resource["text"])
    return "\n".join(texts)


_REPEATED = "…"
_MAX_DEPTH = 32


def without_repeats(output: Any, shown: frozenset[str]) -> str:
    """The output of a script, without what the responses of its calls show: their lines, and their results as JSON."""
    blocks = output if isinstance(output, list) else [output]
    return "\n".join(filter(None, (_fresh_text(_blocks([block]), shown) for block in blocks)))


def _fresh_text(text: str, shown: frozenset[str]) -> str:
    if text.lstrip().startswith(("{", "[")):
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        else:
            return as_json(_fresh_value(value, shown))
    kept: list[str] = []
    for line in text.splitlines():
        repeated = fingerprint(line) in shown
        if not repeated or kept[-1:] != [_REPEATED]:
            kept.append(_REPEATED if repeated else line)
    return "\n".join(kept)


def _fresh_value(value: Any, shown: frozenset[str], depth: int = _MAX_DEPTH) -> Any:
    if isinstance(value, str):
        return _fresh_text(value, shown)
    if not isinstance(value, dict | list) or not value or not depth:
        return value
    if fingerprint(as_json(value)) in shown:
        return _REPEATED
    if isinstance(value, list):
        return [_fresh_value(item, shown, depth - 1) for item in value]
    return {key: _fresh_value(item, shown, depth - 1) for key, item in value.items()}


def as_mapping(value: Any) -> dict[str, Any] | None:
    """A mapping, whether it is one or the JSON text of one."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def as_json(value: Any) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeError, RecursionError, OverflowError):
        return ascii(value)


def duration(value: Any) -> dict[str, Any]:
    """{"secs": 1, "nanos": 5000000} as milliseconds, ready to be kept with the event."""
    if not isinstance(value, dict) or (seconds := integer(value.get("secs"))) is None:
        return {}
    return {"duration_ms": seconds * 1000 + (integer(value.get("nanos")) or 0) // 1_000_000}
