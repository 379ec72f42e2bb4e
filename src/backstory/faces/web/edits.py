"""File edits of tool calls: the arguments that agents give their editors, as diffs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, Literal

from msgspec import Struct

from ...toolcalls import shell_command

Kind = Literal["added", "removed", "same", "place"]

# The names agents give the file, the text before and the text after.
_PATHS = ("file_path", "path", "notebook_path", "filePath", "filename", "target_file")
_BEFORE = ("old_string", "old_str", "oldText", "oldString", "old_text", "search")
_AFTER = ("new_string", "new_str", "newText", "newString", "new_text", "replace", "new_source")
_WHOLE = ("content", "file_text", "contents", "new_text")
_PATCHES = ("input", "patch", "diff", "patchText")
_PATCH_STARTS = ("*** Begin Patch", "diff --git ", "--- ")
# Codex may give a patch to its program by the shell.
_PIPED_PATCH = re.compile(r"\bapply_patch\b[^\n]{0,40}\n?(\*\*\* Begin Patch\n.*?)\n\*\*\* End Patch", re.DOTALL)
_PATCH_HEADS = ("*** ", "--- ", "+++ ", "index ")
_FILE_MARKS = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")
# Comparing more lines may take longer than 0.1 s; they are shown as removed and added.
_COMPARED_LINES = 3_000
_CONTEXT_LINES = 3


class Line(Struct, frozen=True):
    kind: Kind
    text: str


class Diff(Struct, frozen=True):
    """The change of one file: the first lines of it, and how many there are of each kind in all."""

    path: str
    lines: list[Line]
    added: int
    removed: int
    more: int
    """Lines that are left out."""

    @classmethod
    def of(cls, path: str, lines: list[Line], most_lines: int | None = None) -> Diff:
        kinds, shown = Counter(line.kind for line in lines), lines[:most_lines]
        return cls(path, shown, kinds["added"], kinds["removed"], len(lines) - len(shown))


_Change = tuple[str, list[Line]]
"""The path of a file and its changed lines."""


def find_diffs(arguments: Any, most_lines: int) -> list[Diff]:
    """The edits in the arguments of a tool call; none for a call that edits no file."""
    if isinstance(arguments, str):
        arguments = {"input": arguments}
    if not isinstance(arguments, Mapping):
        return []
    for find in (_edits, _patches, _changes, _writes):
        if changes := list(find(arguments)):
            return [Diff.of(path, lines, most_lines) for path, lines in changes]
    return []


def _edits(arguments: Mapping[str, Any]) -> Iterator[_Change]:
    path = _first(arguments, _PATHS) or ""
    several = arguments.get("edits")
    for edit in several if isinstance(several, list) else [arguments]:
        if isinstance(edit, Mapping):
            before, after = _first(edit, _BEFORE), _first(edit, _AFTER)
            if before is not None and after is not None:
                yield _first(edit, _PATHS) or path, compare(before, after)


def _writes(arguments: Mapping[str, Any]) -> Iterator[_Change]:
    path, text = _first(arguments, _PATHS), _first(arguments, _WHOLE)
    if path and text is not None:
        yield path, [Line("added", line) for line in text.splitlines()]


def _changes(arguments: Mapping[str, Any]) -> Iterator[_Change]:
    """Of a table of files, as Codex reports a patch: the whole file that was added or deleted, or its patch."""
    files = arguments.get("changes")
    for path, change in files.items() if isinstance(files, Mapping) else ():
        if isinstance(change, Mapping):
            kind: Kind = "removed" if change.get("type") == "delete" else "added"
            patch, text = _first(change, ("unified_diff",)), _first(change, _WHOLE)
            if patch is not None:
                yield str(path), [_patch_line(raw) for raw in patch.splitlines()]
            elif text is not None:
                yield str(path), [Line(kind, line) for line in text.splitlines()]


def _patches(arguments: Mapping[str, Any]) -> Iterator[_Change]:
    text = _first(arguments, _PATCHES) or ""
    if piped := _PIPED_PATCH.search(shell_command(arguments) or ""):
        text = piped[1]
    if not text.lstrip().startswith(_PATCH_STARTS):
        return
    # In Codex's own form a line that begins with `---` is a removed one that begins with `--`.
    heads = _PATCH_HEADS[:1] if text.lstrip().startswith(_PATCH_STARTS[0]) else _PATCH_HEADS
    path, lines = "", list[Line]()
    for raw in text.splitlines():
        mark = next((mark for mark in _FILE_MARKS if raw.startswith(mark)), None)
        if mark or raw.startswith("diff --git "):
            if lines:
                yield path, lines
            path, lines = raw.removeprefix(mark) if mark else raw.rpartition(" b/")[2], []
        elif not raw.startswith(heads):
            lines.append(_patch_line(raw))
    if lines:
        yield path, lines


def _patch_line(raw: str) -> Line:
    if raw.startswith("@@"):
        return Line("place", raw.strip("@ "))
    kinds: Mapping[str, Kind] = {"+": "added", "-": "removed"}
    kind = kinds.get(raw[:1], "same")
    return Line(kind, raw[1:] if raw[:1] in "+- " else raw)


def compare(before: str, after: str) -> list[Line]:
    """The lines of two texts, as a unified diff."""
    old, new = before.splitlines(), after.splitlines()
    start = max(_same_lines(old, new) - _CONTEXT_LINES, 0)
    old, new = old[start:], new[start:]
    end = max(_same_lines(old[::-1], new[::-1]) - _CONTEXT_LINES, 0)
    old, new = old[: len(old) - end], new[: len(new) - end]
    if len(old) + len(new) > _COMPARED_LINES:
        return [*(Line("removed", line) for line in old), *(Line("added", line) for line in new)]
    compared = list(unified_diff(old, new, lineterm="", n=_CONTEXT_LINES))[2:]
    lines = [_patch_line(line) for line in compared]
    # The place of the first change says nothing: line 1 is the first line of the edit, not of the file.
    return [line if line.kind != "place" else Line("place", "…") for line in lines[1:]]


def _same_lines(old: Sequence[str], new: Sequence[str]) -> int:
    """The number of lines at the beginning that are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(old), len(new)))


def _first(arguments: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((value for name in names if isinstance(value := arguments.get(name), str)), None)
