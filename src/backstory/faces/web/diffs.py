"""File edits of tool calls as diffs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any, Literal

from msgspec import Struct

Kind = Literal["added", "removed", "same", "place"]

# The names agents give the file, the text before and the text after.
_PATHS = ("file_path", "path", "notebook_path", "filePath", "filename", "target_file")
_BEFORE = ("old_string", "old_str", "oldText", "oldString", "old_text", "search")
_AFTER = ("new_string", "new_str", "newText", "newString", "new_text", "replace", "new_source")
_WHOLE = ("content", "file_text", "contents")
_PATCHES = ("input", "patch", "diff", "patchText")
_PATCH_STARTS = ("*** Begin Patch", "diff --git ", "--- ")
_FILE_MARKS = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")
# Comparing more lines takes too long; they are shown as removed and added.
_COMPARED_LINES = 600
_CONTEXT_LINES = 3


class Line(Struct, frozen=True):
    kind: Kind
    text: str


class Diff(Struct, frozen=True):
    """The change of one file."""

    path: str
    lines: list[Line]
    more: int = 0
    """Lines that are left out."""

    @property
    def added(self) -> int:
        return sum(line.kind == "added" for line in self.lines)

    @property
    def removed(self) -> int:
        return sum(line.kind == "removed" for line in self.lines)


def find_diffs(arguments: Any, most_lines: int) -> list[Diff]:
    """The edits in the arguments of a tool call; none for a call that edits no file."""
    if isinstance(arguments, str):
        arguments = {"input": arguments}
    if not isinstance(arguments, Mapping):
        return []
    diffs = list(_edits(arguments)) or list(_patches(arguments)) or list(_writes(arguments))
    return [_cut(diff, most_lines) for diff in diffs]


def _cut(diff: Diff, most: int) -> Diff:
    return Diff(diff.path, diff.lines[:most], max(len(diff.lines) - most, 0))


def _edits(arguments: Mapping[str, Any]) -> Iterator[Diff]:
    path = _first(arguments, _PATHS) or ""
    several = arguments.get("edits")
    for edit in several if isinstance(several, list) else [arguments]:
        if isinstance(edit, Mapping):
            before, after = _first(edit, _BEFORE), _first(edit, _AFTER)
            if before is not None and after is not None:
                yield Diff(_first(edit, _PATHS) or path, compare(before, after))


def _writes(arguments: Mapping[str, Any]) -> Iterator[Diff]:
    path, text = _first(arguments, _PATHS), _first(arguments, _WHOLE)
    if path and text is not None:
        yield Diff(path, [Line("added", line) for line in text.splitlines()])


def _patches(arguments: Mapping[str, Any]) -> Iterator[Diff]:
    text = _first(arguments, _PATCHES)
    if text is None or not text.lstrip().startswith(_PATCH_STARTS):
        return
    path, lines = "", list[Line]()
    for raw in text.splitlines():
        mark = next((mark for mark in _FILE_MARKS if raw.startswith(mark)), None)
        if mark or raw.startswith("diff --git "):
            if lines:
                yield Diff(path, lines)
            path, lines = raw.removeprefix(mark) if mark else raw.rpartition(" b/")[2], []
        elif not raw.startswith(("*** ", "--- ", "+++ ", "index ")):
            lines.append(_patch_line(raw))
    if lines:
        yield Diff(path, lines)


def _patch_line(raw: str) -> Line:
    if raw.startswith("@@"):
        return Line("place", raw.strip("@ "))
    kinds: Mapping[str, Kind] = {"+": "added", "-": "removed"}
    kind = kinds.get(raw[:1], "same")
    return Line(kind, raw[1:] if raw[:1] in "+- " else raw)


def compare(before: str, after: str) -> list[Line]:
    """The lines of two texts, as a unified diff."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) + len(new) > _COMPARED_LINES:
        return [*(Line("removed", line) for line in old), *(Line("added", line) for line in new)]
    compared = list(unified_diff(old, new, lineterm="", n=_CONTEXT_LINES))[2:]
    lines = [_patch_line(line) for line in compared]
    # The place of the first change says nothing: line 1 is the first line of the edit, not of the file.
    return [line if line.kind != "place" else Line("place", "…") for line in lines[1:]]


def _first(arguments: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((value for name in names if isinstance(value := arguments.get(name), str)), None)
