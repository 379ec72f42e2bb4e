"""Tool responses: their full text, wherever Claude Code put it, and how the tool ended."""

from __future__ import annotations

import re
from pathlib import Path
from stat import S_ISREG
from typing import Any

import msgspec

from .content import readable

__all__ = ["exit_code_of", "response_text"]

MAX_SPILLED_BYTES = 8 << 20
_SPILLED = re.compile(r"Full output saved to: ([^\r\n<]{1,4096})")
_SPILL_SCAN_CHARS = 5_000  # the notice is at the beginning
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,5})\b")
_EXIT_CODE_FIELDS = ("exitCode", "exit_code")


def response_text(block: dict[str, Any], result: Any, folder: Path | None) -> str:
    """What the tool answered. A long answer is only a preview in the record: the whole is in a file of the session's
    `folder`, or in the `toolUseResult` beside it."""
    text = readable(block.get("content"))
    details = result if isinstance(result, dict) else {}
    path = details.get("persistedOutputPath")
    notice = None if isinstance(path, str) else _SPILLED.search(text, 0, _SPILL_SCAN_CHARS)
    if isinstance(path, str) or notice:
        spilled = _spilled(folder, path if isinstance(path, str) else notice[1].strip())  # type: ignore[index]
        return spilled or _longer(text, _streams(details))
    if text.strip():
        return text
    return _streams(details) or (result if isinstance(result, str) else text)


def exit_code_of(text: str, result: Any, failed: bool) -> int | None:
    """The exit code where one was recorded; success alone does not tell."""
    if isinstance(result, dict):
        task = result.get("task")
        for place in (result, task if isinstance(task, dict) else {}):
            for field in _EXIT_CODE_FIELDS:
                if type(place.get(field)) is int:
                    return int(place[field])
    found = _EXIT_CODE.match(text) if failed else None
    return int(found[1]) if found else None


def _streams(details: dict[str, Any]) -> str:
    return "\n".join(part for name in ("stdout", "stderr") if isinstance(part := details.get(name), str) and part)


def _longer(one: str, other: str) -> str:
    return other if len(other) > len(one) else one


def _spilled(folder: Path | None, recorded: str) -> str | None:
    """The file the record names, taken only from the session's own `tool-results`, never from anywhere else the record
    may point to. The recorded folder is not used: transcripts are moved and copied between machines."""
    name = re.split(r"[\\/]", recorded)[-1]
    if folder is None or name in ("", ".", ".."):
        return None
    results = folder / "tool-results"
    try:
        path = (results / name).resolve(strict=True)
        if path.parent != results.resolve(strict=True) or not S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            data = file.read(MAX_SPILLED_BYTES)
            rest = len(file.read(1))
    except (OSError, ValueError):  # gone, unreadable, or a name no file can have
        return None
    return _decoded(path, data) + ("\n[cut here: the output is longer than 8 MiB]" if rest else "") or None


def _decoded(path: Path, data: bytes) -> str:
    if path.suffix == ".json":  # answers of MCP tools are kept as content blocks
        try:
            return readable(msgspec.json.decode(data))
        except ValueError:
            pass
    return data.decode("utf-8", "replace")
