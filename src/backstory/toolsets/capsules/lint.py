"""The six sections of a capsule: what counts as one, which are missing, where each begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import Struct

__all__ = ["PURPOSES", "SECTIONS", "Section", "canonical_name", "missing_sections", "open_fence", "sections"]

# In canonical order, with the names that are accepted for each.
_NAMES: dict[str, tuple[str, ...]] = {
    "Objective": ("objective", "goal", "purpose"),
    "Current status": ("current status", "status", "state", "where we are"),
    "Decisions": ("decisions", "decisions/constraints", "constraints", "choices", "key decisions"),
    "Next actions": ("next actions", "next steps", "action items", "todo", "tasks"),
    "Key locations": ("key locations", "locations", "files", "paths", "references", "key files"),
    "Open questions": ("open questions", "open questions/risks", "questions", "risks", "unknowns"),
}
SECTIONS: tuple[str, ...] = tuple(_NAMES)
PURPOSES: dict[str, str] = {
    "Objective": "what the work is for",
    "Current status": "what is done, what works, what does not",
    "Decisions": "choices made and constraints that hold, with the reason",
    "Next actions": "what to do next, in order",
    "Key locations": "the files, commands, branches and links that matter",
    "Open questions": "what is unknown or could go wrong",
}
_CANONICAL = {name: section for section, names in _NAMES.items() for name in names}
_CANONICAL_KEY = {name.replace("/", " "): section for name, section in _CANONICAL.items()}

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|$)")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}(#{1,6})(?!#)[ \t]*(.*)")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})[ \t]*")
# `**Objective**` alone on its line, `**Objective:** text`, `**Objective**: text`, each also as an item of a list
_BOLD = re.compile(r" {0,3}(?:[-*+] +)?(\*\*|__)(?P<name>[^*:]+?)(?:\1[ \t]*:|:[ \t]*\1|\1[ \t]*$)")
_LABEL = re.compile(r"(?P<name>\w[^:]{0,40}?)[ \t]*:")
_NUMBER = re.compile(r"^(?:\d{1,3}(?:\.\d{1,3})+[.):]*\s|\d{1,3}[.):]+)\s*")
_EDGES = re.compile(r"^[\W_]+|[\W_]+$")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# A form that is not a heading ranks below all headings: any heading ends it, and it ends no heading's section.
_NOT_A_HEADING = 7


class Section(Struct, frozen=True):
    """One section of a Markdown text: the offsets of its heading, of what follows it, and of the next section."""

    name: str
    level: int
    start: int
    body: int
    end: int


def canonical_name(name: str) -> str | None:
    """Which of the six sections a heading stands for, if any."""
    folded = " ".join(name.lower().split())
    return _CANONICAL.get(re.sub(r"\s*(?:/|&|\band\b)\s*", "/", folded))


def missing_sections(text: str) -> list[str]:
    """The required sections that `text` does not have, in canonical order."""
    present = {canonical_name(section.name) for section in sections(text)} | _json_sections(text)
    return [section for section in SECTIONS if section not in present]


def sections(text: str) -> list[Section]:
    """The sections of a Markdown text: every heading, and every other form that names one of the six."""
    ends = [len(text)] * (_NOT_A_HEADING + 1)
    found = []
    for name, level, start, body in reversed(list(_starts(text))):
        found.append(Section(name, level, start, body, min(ends[: level + 1])))
        ends[level] = start
    return found[::-1]


def open_fence(text: str) -> str:
    """The fence of a code block that begins in the text and does not end; empty when there is none."""
    fence = ""
    for line in _LINE.finditer(text):
        fence = _fence_after(fence, line[1])
    return fence


def _fence_after(fence: str, line: str) -> str:
    """The fence of the code block that is open after a line, given the one that was open before it."""
    opening = _FENCE.match(line)
    if not opening:
        return fence
    if not fence:
        return opening[1]
    return "" if opening[1].startswith(fence) and not line[opening.end() :].strip() else fence


def _starts(text: str) -> Iterator[tuple[str, int, int, int]]:
    """Name, level, offset and body offset of each section's first line; lines inside fenced code are passed over."""
    fence = ""
    above: re.Match[str] | None = None
    for line in _LINE.finditer(text):
        content, before, above = line[1], above, None
        was_open, fence = fence, _fence_after(fence, content)
        if was_open or fence:
            continue
        if heading := _HEADING.fullmatch(content):
            yield _bare(heading[2]), len(heading[1]), line.start(), line.end()
        elif before and (rule := _UNDERLINE.fullmatch(content)) and canonical_name(_bare(before[1])):
            yield _bare(before[1]), 1 if rule[1][0] == "=" else 2, before.start(), line.end()
        elif label := _label(content):
            name, after = label
            # What follows on the same line is already the section's content.
            body = line.start() + after if content[after:].strip() else line.end()
            yield name, _NOT_A_HEADING, line.start(), body
        else:
            above = line


def _label(line: str) -> tuple[str, int] | None:
    """The section a bold or `Name:` line opens, and the offset of what follows its name."""
    if bold := _BOLD.match(line):
        name = _bare(bold["name"])
        return (name, bold.end()) if canonical_name(name) else None
    if (plain := _LABEL.match(line)) and canonical_name(plain["name"]):
        return plain["name"], plain.end()
    return None


def _bare(heading: str) -> str:
    """A heading's words without what people put around them: numbers, emphasis, a colon, closing marks, an emoji."""
    return _EDGES.sub("", _NUMBER.sub("", _EDGES.sub("", heading)))


def _json_sections(text: str) -> set[str]:
    """The sections that are top-level keys of a JSON capsule; `next_actions` and `nextActions` are fine too."""
    if not text.lstrip().startswith("{"):
        return set()
    try:
        keys = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return set()
    words = (re.sub(r"[\s_/&-]+(?:and[\s_-]+)?", " ", _HUMP.sub(" ", key).lower()).strip() for key in keys)
    return {_CANONICAL_KEY[word] for word in words if word in _CANONICAL_KEY}
