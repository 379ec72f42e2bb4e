"""The text of records: content blocks, tool responses, and the parts a user record's text consists of."""

from __future__ import annotations

import json
import re
from enum import Enum, auto
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

import msgspec

from ..content import readable

MAX_SPILLED_BYTES = 8 << 20
_SPILLED = re.compile(r"Full output saved to: ([^\r\n<]{1,4096})")
_NOTICE = "Full output saved to: "
_SPILL_SCAN_CHARS = 5_000  # the notice is at the beginning
_EXIT_CODE = re.compile(r"(?:Error: )?Exit code (\d{1,5})\b")
_EXIT_CODE_FIELDS = ("exitCode", "exit_code")


def response_text(block: dict[str, Any], result: Any, folder: Path | None) -> str:
    """The text of a tool response. A long one is only a preview in the record: the whole is in a file of the session's
    `folder`, or in the `toolUseResult` beside it."""
    text = readable(block.get("content"))
    details = result if isinstance(result, dict) else {}
    path = details.get("persistedOutputPath")
    # The plain search is twenty times as fast, and nearly all texts have no notice.
    has_notice = not isinstance(path, str) and text.find(_NOTICE, 0, _SPILL_SCAN_CHARS) >= 0
    notice = _SPILLED.search(text, 0, _SPILL_SCAN_CHARS) if has_notice else None
    if isinstance(path, str) or notice:
        spilled = _spilled(folder, path if isinstance(path, str) else notice[1].strip())  # type: ignore[index]
        return spilled or _longer(text, _streams(details))
    if text.strip():
        return text
    return _streams(details) or (result if isinstance(result, str) else text)


def exit_code_of(text: str, result: Any, failed: bool) -> int | None:
    """The exit code where one was recorded; success alone has none."""
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


class Part(Enum):
    """A part of a user record's text: typed by a person, or put around it by Claude Code.

    Injected parts come as leading tags (`<system-reminder>`, `<ide_selection>` ...), as a trailing reminder, or as a
    tag around the whole (`<command-name>`, `<bash-input>`, `<task-notification>` ...). A text that only begins like one
    of them was typed. All are found with `str.find`, so hostile text costs linear time.
    """

    PROMPT = auto()
    """Typed by a person."""
    INJECTED = auto()
    """Said by Claude Code or one of its extensions in the user's name."""
    TASK = auto()
    """A slash command that Claude Code expands for the model (a skill, a command of a plugin), as "/name arguments"."""
    COMMAND = auto()
    """A slash command that Claude Code handles itself, as "/name arguments". With some the model goes on afterwards."""
    SHELL = auto()
    """A shell command typed at the prompt, as "!command". The model may go on with its output."""
    OUTPUT = auto()
    """The output of such a command."""
    INTERRUPT = auto()
    """The marker that the person stopped the agent."""


class Piece(NamedTuple):
    part: Part
    text: str


# The tags Claude Code writes itself. Any other tag at the beginning of a text belongs to what the person typed.
_COMMAND_TAGS = {"command-name", "command-message", "command-args", "command-contents", "skill-format"}
_BOILERPLATE = "local-command-caveat"  # one fixed sentence before each local command
_OUTPUT_TAGS = {"bash-stderr", "bash-stdout", "local-command-stderr", "local-command-stdout"}
_TYPED_TAGS = {"bash-input": (Part.SHELL, "!"), "user-memory-input": (Part.INJECTED, "# ")}  # with the sign typed
# These stand around the whole text or not at all.
_ENVELOPES = {*_COMMAND_TAGS, *_OUTPUT_TAGS, *_TYPED_TAGS, _BOILERPLATE}
# These may stand before what a person typed.
_CONTEXT_TAGS = {"ide_diagnostics", "ide_opened_file", "ide_selection", "system-reminder", "user-prompt-submit-hook"}

_INTERRUPTS = {"[Request interrupted by user]", "[Request interrupted by user for tool use]"}
_SUMMARY = "This session is being continued from a previous conversation"
_HOOK_STOP = "Operation stopped by hook"
_CAVEAT = (
    "Caveat: The messages below were generated by the user while running local commands. DO NOT respond to these "
    "messages or otherwise consider them in your response unless the user explicitly asks you to."
)

_PLAIN = re.compile(r"\s*[^\s<\[C]")
_TAG = re.compile(r"\s*<([a-z][a-z_-]{2,40})(\s[^<>]{0,400})?>")
_SLASH_COMMAND = re.compile(r"/[\w:.-]+(\s|$)")
_REMINDER_END = "</system-reminder>"
# Background tasks and other agents reporting, with the sentence that may follow the tag.
_NOTIFICATION = re.compile(
    r"\s*<(task-notification|agent-notification|agent-message|teammate-message)(\s[^<>]{0,400})?>"
)
_AFTER_NOTIFICATION = ("Read the output file", "Full transcript available at")


def is_notification(text: str) -> bool:
    """Something reporting back: queued like a prompt, but not typed by anyone."""
    tag = _NOTIFICATION.match(text)
    if tag is None:
        return _is_task_record(text)
    end = text.rfind(f"</{tag[1]}>")
    rest = text[end + len(tag[1]) + 3 :].strip()
    return end >= tag.end() and (not rest or rest.startswith(_AFTER_NOTIFICATION))


def _is_task_record(text: str) -> bool:
    """A background task as JSON, which about 2.1.49 put into the queue when the task began."""
    text = text.strip()
    if not (text.startswith("{") and text.endswith("}") and '"task_id"' in text):
        return False
    try:
        task = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(task, dict) and isinstance(task.get("task_id"), str) and "task_type" in task


def is_assignment(text: str) -> bool:
    """Another agent's message. A session that begins with one is a teammate's, and that is its task."""
    return text.lstrip().startswith("<teammate-message") and is_notification(text)


def is_hook_stop(text: str) -> bool:
    """The stand-in for an answer when a hook did not let a prompt through."""
    return text == _HOOK_STOP or text.startswith(f"{_HOOK_STOP}: ")


def is_slash_command(text: str) -> bool:
    return _SLASH_COMMAND.match(text.lstrip()) is not None


def has_only_tags(text: str, names: tuple[str, ...]) -> bool:
    """True when the text is tags whose names begin like one of these, with nothing outside of them."""
    position = 0
    while (tag := _TAG.match(text, position)) and tag[1].startswith(names):
        end = text.find(f"</{tag[1]}>", tag.end())
        if end < 0:
            return False
        position = end + len(tag[1]) + 3
    return position > 0 and not text[position:].strip()


def is_summary(text: str) -> bool:
    """The summary of a compaction, in a record that stands where such a summary does."""
    return text.lstrip().startswith(_SUMMARY)


def split_prompt(text: str, *, typed: bool = False) -> list[Piece]:
    """The pieces of a text, in order; blank ones and boilerplate left out. `typed`: the record says that a person sent
    it, so that no text as a whole is taken for Claude Code's."""
    if _PLAIN.match(text):
        return _prompt(text)
    start = text.strip()
    if not typed:
        if start in _INTERRUPTS:
            return [Piece(Part.INTERRUPT, start)]
        if start == _CAVEAT:
            return []
        if start.startswith("<") and is_notification(start):
            return [Piece(Part.INJECTED, text)]
    return _split_tags(text) if start.startswith("<") else _prompt(text)


def _prompt(text: str) -> list[Piece]:
    """Typed text to its last character, without a reminder that was appended to it."""
    pieces: list[Piece] = []
    stripped = text.rstrip()
    if stripped.endswith(_REMINDER_END):
        begin = stripped.rfind("<system-reminder>")
        if begin >= 0:
            reminder = stripped[begin + len("<system-reminder>") : -len(_REMINDER_END)].strip()
            pieces += [Piece(Part.INJECTED, reminder)] if reminder else []
            text = stripped[:begin].rstrip()
    if text.strip():
        pieces.insert(0, Piece(Part.PROMPT, text))
    return pieces


def _split_tags(text: str) -> list[Piece]:
    pieces: list[Piece] = []
    command: dict[str, str] = {}
    position = after_context = 0
    before_envelope: list[Piece] | None = None
    while (tag := _TAG.match(text, position)) and (tag[1] in _ENVELOPES or tag[1] in _CONTEXT_TAGS):
        end = text.find(f"</{tag[1]}>", tag.end())
        if end < 0:
            break
        if tag[1] in _ENVELOPES and before_envelope is None:
            before_envelope, after_context = list(pieces), position
        position = end + len(tag[1]) + 3
        inner = text[tag.end() : end].strip()
        if tag[1] in _COMMAND_TAGS:
            command[tag[1]] = inner
        elif inner and tag[1] != _BOILERPLATE:
            pieces.append(_piece(tag[1], inner))
    rest = _prompt(text[position:].lstrip() if position else text)
    if before_envelope is not None and any(piece.part is Part.PROMPT for piece in rest):
        return before_envelope + _prompt(text[after_context:].lstrip())
    if command.get("command-name") or command.get("command-message"):
        pieces.insert(0, _command(command))
    return pieces + rest


def _piece(tag: str, inner: str) -> Piece:
    if tag in _TYPED_TAGS:
        part, sign = _TYPED_TAGS[tag]
        return Piece(part, f"{sign}{inner}")
    return Piece(Part.OUTPUT if tag in _OUTPUT_TAGS else Part.INJECTED, inner)


def _command(tags: dict[str, str]) -> Piece:
    """A command by its tags, in their order.

    What the model gets begins with `command-message`, in all versions; what Claude Code handles itself, with
    `command-name`. A skill that the model itself called for has no slash in its name.
    """
    name = tags.get("command-name") or tags.get("command-message", "")
    text = f"/{name.lstrip('/')} {tags.get('command-args', '')}".rstrip()
    expanded = next(iter(tags)) == "command-message" and tags.get("command-name", "").startswith("/")
    return Piece(Part.TASK if expanded else Part.COMMAND, text)
