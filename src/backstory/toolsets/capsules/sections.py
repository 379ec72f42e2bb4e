"""The sections of a capsule's text: the six that are required, where each begins and ends, and texts made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...egress import Mode, egress
from .answers import CapsuleError
from .capsule import Capsule

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

# A byte order mark before the first line is no part of it: some editors write one.
_LINE = re.compile(r"(?:\A\ufeff)?([^\r\n]*)(\r\n|\r|\n|$)")
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
# Placeholders of a section that is still empty.
_PLACEHOLDER = re.compile(
    r"[-*(\[_\s]*(tbd|todo|n/?a|none( yet| currently)?|pending|empty|unknown|\.{3}|…)?[-*)\]_.\s]*", re.I
)
_LIST_ITEM = re.compile(r"\s*([-*+]|\d{1,9}[.)])\s")


class Section(Struct, frozen=True):
    """One section of a Markdown text: the offsets of its heading, of its body, and of the next section."""

    name: str
    level: int
    start: int
    body: int
    end: int


def check_text(text: str, *, max_chars: int, allow_thin: bool) -> None:
    """Refuse a text that is too large, then one that misses sections. A blank one is refused even with `allow_thin`."""
    if len(text) > max_chars:
        raise CapsuleError.too_large(max_chars, len(text))
    if (not allow_thin or not text.strip()) and (missing := missing_sections(text)):
        raise CapsuleError.too_thin({section: PURPOSES[section] for section in missing})


def canonical_name(name: str) -> str | None:
    """The required section that a heading names, if any."""
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
    """Name, level, offset and body offset of each section's first line; lines inside fenced code are skipped."""
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
            # The rest of the line is already the section's content.
            body = line.start(1) + after if content[after:].strip() else line.end()
            yield name, _NOT_A_HEADING, line.start(), body
        else:
            above = line


def _label(line: str) -> tuple[str, int] | None:
    """The section that a bold or `Name:` line opens, and the offset after its name."""
    if bold := _BOLD.match(line):
        name = _bare(bold["name"])
        return (name, bold.end()) if canonical_name(name) else None
    if (plain := _LABEL.match(line)) and canonical_name(plain["name"]):
        return plain["name"], plain.end()
    return None


def _bare(heading: str) -> str:
    """A heading's words without numbers, emphasis, a colon, closing marks or an emoji around them."""
    return _EDGES.sub("", _NUMBER.sub("", _EDGES.sub("", heading)))


def _json_sections(text: str) -> set[str]:
    """The sections that are top-level keys of a JSON capsule, in any spelling: `next_actions`, `nextActions`."""
    text = text.removeprefix("\ufeff")
    if not text.lstrip().startswith("{"):
        return set()
    try:
        keys = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return set()
    words = (re.sub(r"[\s_/&-]+(?:and[\s_-]+)?", " ", _HUMP.sub(" ", key).lower()).strip() for key in keys)
    return {_CANONICAL_KEY[word] for word in words if word in _CANONICAL_KEY}


# Editing


class Extended(Struct, frozen=True):
    text: str
    section: str
    replaced: bool


def extend_section(text: str, section: str, content: str) -> Extended:
    """Add `content` at the end of a section, or in place of its placeholder."""
    target = _find(sections(text), section)
    newline = "\r\n" if "\r\n" in text else "\n"
    head, body, tail = text[: target.body], text[target.body : target.end], text[target.end :]
    replaced = _PLACEHOLDER.fullmatch(body) is not None
    kept = "" if replaced else body.rstrip()
    if kept:
        kept += newline * (1 if _continues_list(kept, content) else 2)
    elif not head.endswith(("\n", "\r")):
        # Either the text ends with the heading, or the section starts on the line of its name. Several lines, such as
        # a code block, need one of their own.
        kept = newline if target.body == len(text) or "\n" in content.strip() else " "
    gap = newline * 2 if tail else newline if text.endswith(("\n", "\r")) else ""
    return Extended(f"{head}{kept}{content.strip()}{gap}{tail}", target.name, replaced)


def _continues_list(body: str, content: str) -> bool:
    last_line = body.splitlines()[-1]
    return bool(_LIST_ITEM.match(content)) and bool(_LIST_ITEM.match(last_line) or last_line[:1].isspace())


def _find(present: Sequence[Section], name: str) -> Section:
    """The section with this heading, else one with another name of the same section."""
    if not present:
        raise CapsuleError.invalid("section", "Only a capsule with Markdown sections can be appended to; use update")
    folded = " ".join(name.lower().split())
    for section in present:
        if " ".join(section.name.lower().split()) == folded:
            return section
    canonical = canonical_name(name)
    for section in present:
        if canonical and canonical_name(section.name) == canonical:
            return section
    names = ", ".join(section.name for section in present)
    raise CapsuleError.invalid("section", f'The capsule has no section "{name}"; it has: {names}')


def bundle_markdown(capsules: Sequence[Capsule]) -> str:
    """The capsules one after the other, each under its display name. A code block ends with its capsule."""
    return "\n\n---\n\n".join(f"## {_display_name(capsule)}\n\n{_closed(capsule.text.strip())}" for capsule in capsules)


def _closed(text: str) -> str:
    fence = open_fence(text)
    return f"{text}\n{fence}" if fence else text


def bundle_json(capsules: Sequence[Capsule], mode: Mode) -> str:
    """The capsules as a JSON text. Egress applies here: inside JSON a control character is an escape sequence."""
    parts: list[dict[str, Any]] = [
        {
            "id": capsule.id,
            "workspace": capsule.workspace,
            "name": capsule.name,
            "display_name": _display_name(capsule),
            "text": capsule.text,
            "chars": capsule.chars,
        }
        for capsule in capsules
    ]
    return msgspec.json.encode({"parts": egress(parts, mode)}).decode()


def _display_name(capsule: Capsule) -> str:
    return " ".join((capsule.title or capsule.name or capsule.id).split())
